"""Dot forms under softmax, through PyTorch's scaled_dot_product_attention."""

from __future__ import annotations

import torch
from torch import Tensor

from attent.attention import mask_info, reference
from attent.attention.backends import row_tiles, sdpa_blocks, select
from attent.attention.backends.block_sparse import Band
from attent.attention.backends.capabilities import missing
from attent.attention.base import DotScore, LoweredSide
from attent.attention.call import Call, lower_key
from attent.attention.masks.causal import Causal
from attent.attention.scores.dot import Dot
from attent.attention.scores.scaled_dot import ScaledDot
from attent.ops.eligibility import is_known_true, is_vmap_alone, needs_plain_torch
from attent.ops.sdpa import twice_differentiable

# Their lowered sides are the queries and keys themselves.
PLAIN: tuple[type[DotScore], ...] = (Dot, ScaledDot)


CAPABILITIES = frozenset({"bias", "bias gradient", "gpu"})


def unsupported(call: Call) -> str | None:
    """Return why PyTorch's attention cannot serve this call, None if it can."""
    if not isinstance(call.score, DotScore):
        return f"score {type(call.score).__name__} has no dot form"
    if reason := missing(call, CAPABILITIES):
        return reason
    if call.dtype in (torch.bfloat16, torch.float16) and not call.score.lowers_exactly:
        return f"the lowered form of {type(call.score).__name__} would be rounded to {call.dtype}"
    if call.bias is not None and call.bias.dtype != call.dtype:
        return f"it would round the bias from {call.bias.dtype} to {call.dtype}"
    if not call.keys or not call.queries:
        return "there is nothing to attend to"
    if needs_plain_torch() and (call.device.type == "cpu" or not is_vmap_alone()):
        return "PyTorch's kernels have no functional derivatives, and no vmap on a CPU"
    return None


def run(call: Call, query: Tensor, key: LoweredSide, value: Tensor) -> Tensor:
    """The context of each query, (B, H, Tq, Dv)."""
    if call.mask is None and call.bias is None and call.dtype == torch.float32 and isinstance(call.score, PLAIN) and key.bias is None:
        # the commonest call has nothing to prepare
        scale = call.score.scale(call.query_width)
        return twice_differentiable(query, call.repeat_kv(key.features), call.repeat_kv(value), None, False, scale)
    some = sdpa_blocks.serve(call)
    return _whole(call, query, key, value) if some is None else _by_bands(call, query, key, value, some)


def _by_bands(call: Call, query: Tensor, key: LoweredSide, value: Tensor, some: list[Band]) -> Tensor:
    key, value = call.repeat_kv_side(key), call.repeat_kv(value)
    seen = mask_info.visible(call)
    if seen is not None:
        key, value = reference.without_hidden(seen, key, value)
    query, features, scale = _sides(call, query, key, seen)
    return sdpa_blocks.run(call, query, features, value, scale, some)


def _whole(call: Call, query: Tensor, key: LoweredSide, value: Tensor) -> Tensor:
    key, value = call.repeat_kv_side(key), call.repeat_kv(value)
    causal, allowed = _mask(call)
    if causal and call.keys > call.queries:
        # keys behind the last query are seen by none
        bias = None if key.bias is None else key.bias[:, :, : call.queries]
        key = LoweredSide(key.features[:, :, : call.queries], bias, key.center)
        value = value[:, :, : call.queries]
    seen, alive = None, None
    if allowed is not None:
        seen = allowed.any(-2)
        key, value = reference.without_hidden(seen, key, value)
        every = allowed.any(-1, keepdim=True)
        if not is_known_true(every.all, call.device):
            # a row that may see nothing looks at everything, and is set to zero afterwards: no backend's habits enter
            alive, allowed = every, allowed | ~every
    query, features, scale = _sides(call, query, key, seen)
    bias = _with_bias(call, allowed)
    if _slow_in_16_bits(call, (query, features, value)):
        query, features, value = query.float(), features.float(), value.float()
        bias = bias if bias is None or bias.dtype == torch.bool else bias.float()
    context = twice_differentiable(query, features, value, bias, causal, scale).to(call.dtype)
    return context if alive is None else context.masked_fill(~alive, 0.0)


def _sides(call: Call, query: Tensor, key: LoweredSide, seen: Tensor | None) -> tuple[Tensor, Tensor, float]:
    """Both sides lowered to features whose product times the scale, also returned, is the score."""
    lowered_key = key if call.lowered else lower_key(call.score, key.features, call.heads, call.score.center(key.features, seen))
    return row_tiles.products_of(call, call.score.lower_query(query, lowered_key.center), lowered_key)


def _slow_in_16_bits(call: Call, inputs: tuple[Tensor, ...]) -> bool:
    """Return whether PyTorch's CPU kernel is slower in 16 bits than in 32 for these gradients."""
    if call.device.type != "cpu" or call.dtype not in (torch.bfloat16, torch.float16) or call.keys >= select.SIXTEEN_BIT_GRADIENTS:
        return False
    return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in inputs)


def _mask(call: Call) -> tuple[bool, Tensor | None]:
    """Return whether PyTorch's causal mask is enough, and if not, which pairs may attend."""
    if call.mask is None and call.bias is None:
        return False, None
    if isinstance(call.mask, Causal) and call.bias is None and isinstance(call.start, int) and not select.has_open_sizes(call):
        if call.start >= call.keys - 1:  # every query sees every key
            return False, None
        if call.start == 0:  # PyTorch counts from the first key, whatever the lengths
            return True, None
    return False, call.allowed(call.pairs())


def _with_bias(call: Call, allowed: Tensor | None) -> Tensor | None:
    if call.bias is None or allowed is None:
        return allowed
    # rows that see nothing were opened before, so a hidden pair is −∞ here only beside one that is seen
    return call.bias.masked_fill(call.bias == -torch.inf, 0.0).masked_fill(~allowed, -torch.inf)
