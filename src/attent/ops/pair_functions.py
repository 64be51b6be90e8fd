"""Functions of one pair, (batch, head, query, key), computed for all pairs of a tile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves


class IndexByTensors(TorchFunctionMode):
    """Have tensor[i, j] take indices that vmap has batched, which Python would read as numbers."""

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

    An axis that it does not look at is expanded, not computed.

    Args:
        function: takes the score of a pair, if scores are given, and its indices in the batch, of the head, the query
            and the key.
        batch: (B,) indices.
        head: (H,).
        query: (Tq,).
        key: (Tk,).
        scores: none, or one tensor (B, H, Tq, Tk).
    """
    shape = len(batch), len(head), len(query), len(key)
    if 0 in shape:
        # vmap takes no empty axis
        return scores[0] if scores else torch.zeros(shape, dtype=torch.bool, device=batch.device)
    own = (0,) * len(scores)
    for axis in (3, 2, 1, 0):
        indices = [None, None, None, None]
        indices[axis] = 0  # pyright: ignore[reportArgumentType, reportCallIssue]
        function = torch.vmap(function, in_dims=(*own, *indices))
    with IndexByTensors():
        return function(*scores, batch, head, query, key)


def for_all_offsets(function: Callable[..., Tensor], heads: Tensor, offsets: Tensor, score: Tensor) -> Tensor:
    """Return a function's results for one score and pairs with the key at each offset from the query.

    They are (H|1, offsets).

    Args:
        function: takes the score of a pair, and its indices in the batch, of the head, the query and the key.
        heads: (H,) indices; the function's results have one row if it does not look at the head.
        offsets: whole numbers.
        score: one number.
    """
    query, key = (-offsets).clamp(min=0), offsets.clamp(min=0)
    function = torch.vmap(function, in_dims=(None, None, None, 0, 0))
    function = torch.vmap(function, in_dims=(None, None, 0, None, None))
    with IndexByTensors():
        result = function(score, heads.new_zeros(()), heads, query, key)
    # an axis that the function does not look at is expanded
    return result if result.stride(0) else result[:1]
