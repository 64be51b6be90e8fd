"""Dot forms under softmax on a CPU in C++, by tiles of keys.

The kernel reads queries, keys and values by their strides, the heads of a projection interleaved, and writes the context and gradients
so too: neither splitting nor merging heads copies a number. It skips tiles that the mask hides, and holds no table of scores.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from attent.attention import mask_info, reference
from attent.attention.backends import select, tiled
from attent.attention.backends.sdpa import PLAIN
from attent.attention.base import DotScore, LoweredSide
from attent.attention.call import Call, Prepared
from attent.ops.dense_attention import DTYPES, DenseAttention, is_compiled
from attent.ops.eligibility import can_run_native, is_transformed

CAPABILITIES = frozenset({"bias", "dropout"})


def unsupported(call: Call) -> str | None:
    """Return why this backend cannot serve a call, None if it can."""
    if not isinstance(call.score, PLAIN):
        return f"score {type(call.score).__name__} is not the plain dot product"
    if reason := select.missing_capability(call, CAPABILITIES):
        return reason
    if call.dtype not in DTYPES:
        return f"it takes float32 and bfloat16, not {call.dtype}"
    if call.is_empty:
        return "there is nothing to attend to"
    if can_run_native():
        return None
    if torch.compiler.is_compiling() or is_compiled():
        return "it has no forward-mode derivatives, no vmap, and nothing for a compiler or a dispatch mode"
    return "its extension was not compiled when attent was installed"


def run(call: Call, query: Tensor, key: LoweredSide, value: Tensor) -> Tensor:
    """Compute the context of each query, (B, H, Tq, Dv)."""
    assert isinstance(call.score, DotScore)
    scale = call.score.scale(call.query_width)
    seed = 0 if call.seed is None else int(call.seed)
    plain = partial(_plain, call)
    return DenseAttention(plain, scale, *_key_ranges_or_bias(call), dropout=call.dropout, seed=seed)(query, key.features, value)


def _key_ranges_or_bias(call: Call) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """Return the mask as key ranges, (B, H, Tq) each, where it has such, else as what is added to the scores, (B, H, Tk, Tq|1)."""
    if call.mask is None and call.bias is None:
        return None, None, None
    bounds = None if call.bias is not None else mask_info.key_bounds(call, exact=True)
    if bounds is not None:
        begin, end = (bound.to(torch.int64).expand(call.batch, call.heads, call.queries) for bound in bounds)
        return begin, end, None
    allowed = call.allowed(call.pairs())
    assert allowed is not None
    bias = torch.zeros(()) if call.bias is None else call.bias.detach().float()
    bias = bias.where(allowed, -torch.inf).mT.contiguous()  # (B|1, H|1, Tk|1, Tq|1)
    return None, None, bias.expand(call.batch, call.heads, call.keys, -1)


def _plain(call: Call, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Compute the context by steps that PyTorch differentiates."""
    prepared = Prepared(call, query, LoweredSide(key), value)
    return reference.run(*prepared) if is_transformed() else tiled.choose(prepared).run(*prepared)
