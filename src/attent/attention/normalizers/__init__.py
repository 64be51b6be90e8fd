"""The normalisers: scores → weights, one idea a file, found by the name of its file."""

from __future__ import annotations

from attent import registry
from attent.attention.base import Normaliser
from attent.attention.normalizers.entmax15 import Entmax15
from attent.attention.normalizers.hard import Hard
from attent.attention.normalizers.identity import Identity
from attent.attention.normalizers.sigmoid import Sigmoid
from attent.attention.normalizers.softmax import Softmax
from attent.attention.normalizers.sparsemax import Sparsemax
from attent.attention.normalizers.top_k import TopK

NORMALISERS: dict[str, type[Normaliser]] = registry.parts(__name__)

__all__ = ["NORMALISERS", "Entmax15", "Hard", "Identity", "Sigmoid", "Softmax", "Sparsemax", "TopK"]
