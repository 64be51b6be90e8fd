"""Scores of tanh form and their gradients by the compiled extension, where there is one."""

from __future__ import annotations

import torch
from torch import Tensor

from attent.ops import native as extension

# What a thread takes is a run of features. Where there are fewer runs than TASKS, rows are cut into slabs, each with its own sums of the
# keys' gradients; the shapes alone decide, so that the sums do not depend on the threads.
FEATURES, TASKS, SLAB_ROWS = 16, 8, 64


def why_not() -> str | None:
    """Why the extension cannot be used; None if it can."""
    return None if extension.library() is not None else "its extension was not compiled when attent was installed"


def scores(query: Tensor, key: Tensor, v: Tensor) -> Tensor:
    """v·tanh(q' + k') of every pair.

    Args:
        query: q', float32 (B, H, Tq, D).
        key: k', (B, H, Tk, D).
        v: (H|1, D).

    Returns:
        (B, H, Tq, Tk).

    Raises:
        MemoryError: the extension had none left.
    """
    query, key, v = (tensor.detach().contiguous() for tensor in (query, key, v))
    found = query.new_empty(*query.shape[:-1], key.shape[-2])
    if found.numel():
        sizes = (query.shape[0] * query.shape[1], v.shape[0], query.shape[2], key.shape[2], query.shape[3])
        extension.run("attent_tanh_scores", (query, key, v, found), *sizes)
    return found


def gradients(query: Tensor, key: Tensor, v: Tensor, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of q', k' and v, in their shapes, given that of the scores.

    Args:
        query: q', float32 (B, H, Tq, D).
        key: k', (B, H, Tk, D).
        v: (H|1, D).
        gradient: of the scores, (B, H, Tq, Tk).

    Raises:
        MemoryError: the extension had none left.
    """
    query, key, v, gradient = (tensor.detach().contiguous() for tensor in (query, key, v, gradient))
    if not gradient.numel():
        return torch.zeros_like(query), torch.zeros_like(key), torch.zeros_like(v)
    batch, heads, queries, width = query.shape
    runs = batch * heads * max(-(-width // FEATURES), 1)
    slabs = max(min(-(-TASKS // runs), -(-queries // SLAB_ROWS)), 1)
    dq, dk = torch.empty_like(query), query.new_empty(batch, heads, slabs, key.shape[2], width)
    dv = query.new_empty(batch, heads, slabs, width)
    sizes = (batch * heads, v.shape[0], queries, key.shape[2], width, slabs)
    extension.run("attent_tanh_gradients", (query, key, v, gradient, dq, dk, dv), *sizes)
    return dq, dk[:, :, 0] if slabs == 1 else dk.sum(2), dv.sum((0, 2)) if v.shape[0] == heads else dv.sum((0, 1, 2))[None]
