"""Dot forms under softmax on a CPU in C++, by tiles of keys.

The kernel reads queries, keys and values by their strides, the heads of a projection interleaved, and writes the
context and gradients in the same layout: splitting and merging heads copies nothing. It skips tiles that the
mask hides, and holds no table of scores. A bias of offsets, such as ALiBi's, is passed as a vector for each head.
"""

from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from attent.attention import reference
from attent.attention.backends import select, tiled
from attent.attention.backends.sdpa import PLAIN
from attent.attention.base import DotScore, LoweredSide, Pairs, Position
from attent.attention.call import Call, Prepared
from attent.ops import operators
from attent.ops.dense_attention import DTYPES, DenseAttention, is_compiled
from attent.ops.eligibility import can_run_native, can_run_operator, is_known_true, is_transformed

CAPABILITIES = frozenset({"bias", "dropout", "position bias", "sink", "soft cap"})


def unsupported(call: Call) -> str | None:
    """Return why this backend cannot serve a call, None if it can."""
    if not isinstance(call.score, PLAIN):
        return f"score {type(call.score).__name__} is not the plain dot product"
    if reason := select.missing_capability(call, CAPABILITIES):
        return reason
    if call.dtype not in DTYPES:
        return f"it supports float32, bfloat16 and float16, not {call.dtype}"
    if call.is_empty:
        return "there is nothing to attend to"
    if call.position is not None and _bias_by_offset(call, torch.zeros(1, dtype=torch.int64)) is None:
        return f"the bias that {type(call.position).__name__} adds depends on more than offsets, or on the sequence"
    if can_run_native() or (is_compiled() and can_run_operator()):
        return None
    if torch.compiler.is_compiling() or is_compiled():
        return "it does not support forward-mode derivatives, vmap, compilers or dispatch modes"
    return "its extension was not compiled when attent was installed"


def run(call: Call, query: Tensor, key: LoweredSide, value: Tensor) -> Tensor:
    """Compute the context of each query, (B, H, Tq, Dv)."""
    assert isinstance(call.score, DotScore)
    scale = call.score.scale(call.query_width)
    begin, end, bias = _mask_terms(call)
    tensors = query, key.features, value, bias, _offset_bias(call), call.sink
    if torch.compiler.is_compiling():
        seed = call.seed if isinstance(call.seed, Tensor | None) else torch.full((1,), call.seed)
        return operators.dense_attention(*tensors, begin, end, seed, scale, call.soft_cap, call.dropout)[0]
    seed = 0 if call.seed is None else int(call.seed)
    return DenseAttention(scale, begin, end, call.soft_cap, call.dropout, seed, partial(_plain, call))(*tensors)


def _mask_terms(call: Call) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """Return the key ranges, (B|1, H|1, Tq|1) each, and the bias, (B|1, H|1, Tq|1, Tk).

    The bias also describes a mask without such ranges.
    """
    bias = None if call.bias is None else call.bias.float().expand(-1, -1, -1, call.keys)
    if call.mask is None:
        return None, None, bias
    if call.key_range is not None and call.key_range.exact:
        # a range that ends before it begins is empty to the kernel
        begin, end = (bound.to(torch.int64).clamp(0, call.keys).squeeze(-1) for bound in call.key_range[:2])
        return begin, end, bias
    allowed = call.mask.allowed(call.pairs())
    allowed = allowed.expand(*allowed.shape[:3], call.keys)
    return None, None, (torch.zeros(()) if bias is None else bias).where(allowed, -torch.inf)


def _offset_bias(call: Call) -> Tensor | None:
    """Return the bias of a position at i − j + Tk − 1 for query i and key j, (H|1, Tq + Tk − 1)."""
    if call.position is None:
        return None
    bias = _bias_by_offset(call, torch.arange(call.keys - 1, -call.queries, -1))
    assert bias is not None
    return bias.float()


def _bias_by_offset(call: Call, offsets: Tensor) -> Tensor | None:
    """Return the bias by offset, the key's index minus the query's; None if offsets do not determine it."""
    assert call.position is not None
    start = call.start
    if isinstance(start, Tensor):
        start = start.reshape(-1)
        if len(start) > 1 and not is_known_true((start == start[0]).all, start.device):
            return None
        start = start[0]
    return call.position.bias_by_offset(offsets - start)


class _OffsetBias(Position):
    """The bias by offset, in the form that `DenseAttention` expects."""

    biases = True

    def __init__(self, offset_bias: Tensor, keys: int) -> None:
        super().__init__()
        self.offset_bias, self.keys = offset_bias, keys

    def bias(self, pairs: Pairs) -> Tensor:
        """Return the bias, (1, H|1, Tq, Tk)."""
        return self.offset_bias[:, pairs.query_index[:, None] - pairs.key_index + self.keys - 1][None]


def _plain(
    call: Call,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None,
    offset_bias: Tensor | None,
    sink: Tensor | None,
) -> Tensor:
    """Compute the context by operations that PyTorch can differentiate."""
    call = replace(
        call, bias=bias, sink=sink, position=None if offset_bias is None else _OffsetBias(offset_bias, call.keys)
    )
    prepared = Prepared(call, query, LoweredSide(key), value)
    return reference.run(*prepared) if is_transformed() else tiled.choose(prepared).run(*prepared)
