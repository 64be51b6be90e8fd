"""Attention: one formula with swappable parts, and its weights computed on demand."""

from attent.attention.arguments import prepare
from attent.attention.attend import attend, explain
from attent.attention.base import Mask, Normalizer, Position, Score, Weighting
from attent.attention.maps.attention_map import AttentionMap
from attent.attention.maps.rollout import rollout

__all__ = [
    "AttentionMap",
    "Mask",
    "Normalizer",
    "Position",
    "Score",
    "Weighting",
    "attend",
    "explain",
    "prepare",
    "rollout",
]
