"""Evaluate functions of one pair, (batch, head, query, key), for all pairs of a tile."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves


class IndexByTensors(TorchFunctionMode):
    """Let tensor[i, j] accept indices batched by vmap, which Python would convert to numbers."""

    def __torch_function__(self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is Tensor.__getitem__:
            indices = tree_leaves(args[1])
            if all(isinstance(index, Tensor) for index in indices):
                return torch.ops.aten.index(args[0], indices)
        return func(*args, **(kwargs or {}))


def for_all_pairs(
    function: Callable[..., Tensor], batch: Tensor, head: Tensor, query: Tensor, key: Tensor, *scores: Tensor
) -> Tensor:
    """Return a function's results for all pairs, (B, H, Tq, Tk).

    Axes that the function ignores are expanded, not computed.

    Args:
        function: a function of the pair's score (if scores are given) and its batch, head, query and key indices.
        batch: batch indices, (B,).
        head: head indices, (H,).
        query: query indices, (Tq,).
        key: key indices, (Tk,).
        scores: none, or one tensor (B, H, Tq, Tk).
    """
    shape = len(batch), len(head), len(query), len(key)
    if 0 in shape:
        # vmap does not support empty axes
        return scores[0] if scores else torch.zeros(shape, dtype=torch.bool, device=batch.device)
    own = (0,) * len(scores)
    for axis in (3, 2, 1, 0):
        indices = [None, None, None, None]
        indices[axis] = 0  # pyright: ignore[reportArgumentType, reportCallIssue]
        function = torch.vmap(function, in_dims=(*own, *indices))
    with IndexByTensors():
        return function(*scores, batch, head, query, key)


def for_all_offsets(function: Callable[..., Tensor], heads: Tensor, offsets: Tensor, score: Tensor) -> Tensor:
    """Return a function's results for one score and each offset of the key from the query, (H|1, offsets).

    Args:
        function: a function of the pair's score and its batch, head, query and key indices.
        heads: head indices, (H,); the result has one row if the function ignores the head.
        offsets: the offsets, integers.
        score: the score, a single number.
    """
    query, key = (-offsets).clamp(min=0), offsets.clamp(min=0)
    function = torch.vmap(function, in_dims=(None, None, None, 0, 0))
    function = torch.vmap(function, in_dims=(None, None, 0, None, None))
    with IndexByTensors():
        result = function(score, heads.new_zeros(()), heads, query, key)
    # an axis that the function ignores is expanded
    return result if result.stride(0) else result[:1]
