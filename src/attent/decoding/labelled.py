"""Attention weights with the names of their rows and columns."""

from __future__ import annotations

from dataclasses import dataclass

from attent.attention.maps.attention_map import AttentionMap


@dataclass(frozen=True)
class LabelledMap:
    """Attention weights, and what their rows and columns are about.

    Args:
        weights: (1, H, Tq, Tk).
        rows: what each query is about, Tq labels; in the decoder the token produced by the row's step, so that row t is about
            target piece t, not the token read in, which is the piece before it.
        columns: what each key is about, Tk labels; in the decoder's self-attention the pieces given, from BOS on.
    """

    weights: AttentionMap
    rows: tuple[str, ...]
    columns: tuple[str, ...]
