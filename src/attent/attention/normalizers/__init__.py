"""The normalizers, one per file: functions from scores to weights."""

from attent import registry
from attent.attention.base import Normalizer
from attent.attention.normalizers.entmax15 import Entmax15
from attent.attention.normalizers.hard import Hard
from attent.attention.normalizers.identity import Identity
from attent.attention.normalizers.sigmoid import Sigmoid
from attent.attention.normalizers.softmax import Softmax
from attent.attention.normalizers.sparsemax import Sparsemax
from attent.attention.normalizers.top_k import TopK

NORMALIZERS: dict[str, type[Normalizer]] = registry.parts(__name__)

__all__ = ["NORMALIZERS", "Entmax15", "Hard", "Identity", "Sigmoid", "Softmax", "Sparsemax", "TopK"]
