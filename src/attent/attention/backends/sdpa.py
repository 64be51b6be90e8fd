"""Dot forms under softmax, through PyTorch's scaled_dot_product_attention, which computes all pairs."""

from functools import partial
from typing import Literal

import torch
from torch import Tensor

from attent.attention import reference
from attent.attention.backends import bands, select
from attent.attention.base import DotScore, LoweredSide
from attent.attention.call import Call, Prepared, lower_key
from attent.attention.masks.causal import Causal
from attent.attention.scores import SCORES
from attent.attention.scores.dot import Dot
from attent.attention.scores.scaled_dot import ScaledDot
from attent.ops import sdpa
from attent.ops.eligibility import is_exporting, is_known_true, is_vmap_alone, needs_plain_torch

# Their lowered sides are the queries and keys themselves.
PLAIN: tuple[type[DotScore], ...] = (Dot, ScaledDot)


CAPABILITIES = frozenset({"bias", "gpu"})


def unsupported(call: Call) -> str | None:
    """Return why PyTorch's attention cannot serve this call, None if it can."""
    if not isinstance(call.score, DotScore):
        return f"score {type(call.score).__name__} has no dot form"
    if reason := select.missing_capability(call, CAPABILITIES):
        return reason
    if call.dtype in (torch.bfloat16, torch.float16) and not call.score.lowers_exactly:
        return f"the lowered form of {type(call.score).__name__} would be rounded to {call.dtype}"
    if call.bias is not None and call.bias.dtype != call.dtype:
        return f"it would round the bias from {call.bias.dtype} to {call.dtype}"
    if not call.keys or not call.queries:
        return "there is nothing to attend to"
    if needs_plain_torch() and (call.device.type == "cpu" or not is_vmap_alone()):
        return "PyTorch's kernels do not support functional derivatives, or vmap on a CPU"
    return None


def choose(prepared: Prepared) -> select.Variant:
    """Choose one of the variants of `ops.sdpa`."""
    call = prepared.call
    is_causal = _causality(call) == "pytorch"
    keys = min(call.keys, call.queries) if is_causal else call.keys
    mask_needs_grad = call.bias is not None and call.bias.requires_grad
    variant = sdpa.choose(
        call.queries * keys, call.device, needs_grad=_needs_grad(prepared), mask_needs_grad=mask_needs_grad
    )
    return select.Variant(variant, partial(_run_all, variant=variant))


def _needs_grad(prepared: Prepared) -> bool:
    """Return whether the lowered sides or the values may need gradients."""
    call, query, (features, bias, center), value = prepared
    if not torch.is_grad_enabled():
        return False
    if any(part is not None and part.requires_grad for part in (query, features, bias, center, value)):
        return True
    # a custom score may use tensors that are not among its parameters
    return type(call.score) not in PLAIN and (
        type(call.score) not in SCORES.values()
        or any(part.requires_grad for part in (*call.score.parameters(), *call.score.buffers()))
    )


def _run_all(call: Call, query: Tensor, key: LoweredSide, value: Tensor, *, variant: sdpa.Variant) -> Tensor:
    """Compute the context, (B, H, Tq, Dv), of all pairs at once."""
    # on a CPU, PyTorch's function reads keys that heads share without copies; on a GPU, some of its kernels do not
    is_plain = isinstance(call.score, PLAIN) and key.bias is None and call.device.type == "cpu"
    is_grouped = is_plain and variant == "pytorch" and key.features.shape[1] != call.heads and not is_exporting()
    if (
        call.mask is None
        and call.bias is None
        and call.dtype == torch.float32
        and isinstance(call.score, PLAIN)
        and key.bias is None
    ):
        # the most common call has nothing to prepare
        scale = call.score.scale(call.query_width)
        features = key.features if is_grouped else call.repeat_kv(key.features)
        return sdpa.twice_differentiable(
            *(query, features, value if is_grouped else call.repeat_kv(value)),
            *(None, False, scale, "grouped" if is_grouped else variant),
        )
    causality = _causality(call)
    if is_grouped and causality != "table":
        variant = "grouped"
    else:
        key, value = call.repeat_kv_side(key), call.repeat_kv(value)
    is_causal, allowed = causality == "pytorch", call.allowed(call.pairs()) if causality == "table" else None
    if is_causal and call.keys > call.queries:
        # no query sees the keys after the last query
        bias = None if key.bias is None else key.bias[:, :, : call.queries]
        key = LoweredSide(key.features[:, :, : call.queries], bias, key.center)
        value = value[:, :, : call.queries]
    visible, sees_any = None, None
    if allowed is not None:
        visible = allowed.any(-2)
        key, value = reference.zero_hidden_keys(visible, key, value)
        rows = allowed.any(-1, keepdim=True)
        if not is_known_true(rows.all, call.device):
            # a fully masked row sees every key and is set to zero afterwards: kernels differ in such rows
            sees_any, allowed = rows, allowed | ~rows
    query, features, scale = _lowered(call, query, key, visible)
    bias = _with_bias(call, allowed)
    if _is_slow_in_16_bits(call, (query, features, value)):
        query, features, value = query.float(), features.float(), value.float()
        bias = bias if bias is None or bias.dtype == torch.bool else bias.float()
    context = sdpa.twice_differentiable(query, features, value, bias, is_causal, scale, variant).to(call.dtype)
    return context if sees_any is None else context.masked_fill(~sees_any, 0.0)


def _lowered(call: Call, query: Tensor, key: LoweredSide, visible: Tensor | None) -> tuple[Tensor, Tensor, float]:
    """Lower both sides to features whose product times the scale, also returned, is the score."""
    lowered_key = (
        key
        if call.lowered
        else lower_key(call.score, key.features, call.heads, call.score.center(key.features, visible))
    )
    return bands.dot_operands(call, call.score.lower_query(query, lowered_key.center), lowered_key)


def _is_slow_in_16_bits(call: Call, inputs: tuple[Tensor, ...]) -> bool:
    """Return whether PyTorch's CPU kernel is slower in 16 bits than in 32 for these gradients."""
    return (
        call.device.type == "cpu"
        and call.dtype in (torch.bfloat16, torch.float16)
        and call.keys < select.SIXTEEN_BIT_GRADIENTS
        and torch.is_grad_enabled()
        and any(tensor.requires_grad for tensor in inputs)
    )


def _causality(call: Call) -> Literal["none", "pytorch", "table"]:
    """Return "pytorch" if PyTorch's causal mask is enough, "none" if nothing is hidden, else "table"."""
    if call.mask is None and call.bias is None:
        return "none"
    if (
        isinstance(call.mask, Causal)
        and call.bias is None
        and isinstance(call.start, int)
        and not select.has_open_sizes(call)
    ):
        if call.start >= call.keys - 1:  # every query sees every key
            return "none"
        if call.start == 0:  # PyTorch counts from the first key, regardless of the lengths
            return "pytorch"
    return "table"


def _with_bias(call: Call, allowed: Tensor | None) -> Tensor | None:
    if call.bias is None or allowed is None:
        return allowed
    # fully masked rows were opened before, so every row with a pair hidden by −∞ has a visible one too
    return call.bias.masked_fill(call.bias == -torch.inf, 0.0).masked_fill(~allowed, -torch.inf)
