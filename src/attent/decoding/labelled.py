"""Attention weights with labels for their rows and columns."""

from __future__ import annotations

from dataclasses import dataclass

from attent.attention.maps.attention_map import AttentionMap


@dataclass(frozen=True)
class LabelledMap:
    """Attention weights, and the pieces of text that their rows and columns stand for.

    Args:
        weights: (1, H, Tq, Tk).
        rows: Tq labels of the queries. In a decoder row t is labelled with the token that step t produces (target piece t), not
            with the token that it reads (the piece before).
        columns: Tk labels of the keys; in a decoder's self-attention the tokens read, from BOS on.
    """

    weights: AttentionMap
    rows: tuple[str, ...]
    columns: tuple[str, ...]
