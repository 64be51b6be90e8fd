"""The normalisers: scores → weights, one idea a file, found by the name of its file."""

from __future__ import annotations

from attent import names
from attent.attention.normalisers.entmax15 import Entmax15
from attent.attention.normalisers.hard import Hard
from attent.attention.normalisers.identity import Identity
from attent.attention.normalisers.sigmoid import Sigmoid
from attent.attention.normalisers.softmax import Softmax
from attent.attention.normalisers.sparsemax import Sparsemax
from attent.attention.normalisers.top_k import TopK
from attent.attention.parts import Normaliser

NORMALISERS: dict[str, type[Normaliser]] = names.parts(__name__)

__all__ = ["NORMALISERS", "Entmax15", "Hard", "Identity", "Sigmoid", "Softmax", "Sparsemax", "TopK"]
