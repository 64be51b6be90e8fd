"""Dot forms under softmax, through PyTorch's scaled_dot_product_attention.

On a CPU it computes band by band if a mask hides most pairs: a window, documents, blocks of a long sequence.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from attent.attention import mask_info, reference
from attent.attention.backends import bands, select
from attent.attention.backends.bands import Band
from attent.attention.base import DotScore, LoweredSide
from attent.attention.call import Call, Prepared, lower_key
from attent.attention.mask_info import AdditiveMask, additive_mask
from attent.attention.masks.causal import Causal
from attent.attention.scores import SCORES
from attent.attention.scores.dot import Dot
from attent.attention.scores.scaled_dot import ScaledDot
from attent.ops import sdpa
from attent.ops.autograd import checkpointed, double_backward, needs_double_backward, no_autocast
from attent.ops.eligibility import is_known_true, is_transformed, is_vmap_alone, needs_plain_torch

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
    """Choose "block_sparse", or one of the variants of `ops.sdpa` for all pairs at once."""
    call = prepared.call
    if (parts := sparse_bands(call)) is not None:
        return select.Variant("block_sparse", partial(_run_bands, parts=parts))
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
    if type(call.score) in PLAIN:
        return False
    # a custom score may use tensors that are not among its parameters
    return type(call.score) not in SCORES.values() or any(
        part.requires_grad for part in (*call.score.parameters(), *call.score.buffers())
    )


def _run_all(call: Call, query: Tensor, key: LoweredSide, value: Tensor, *, variant: sdpa.Variant) -> Tensor:
    """Compute the context, (B, H, Tq, Dv), of all pairs at once."""
    if (
        call.mask is None
        and call.bias is None
        and call.dtype == torch.float32
        and isinstance(call.score, PLAIN)
        and key.bias is None
    ):
        # the most common call has nothing to prepare
        scale = call.score.scale(call.query_width)
        return sdpa.twice_differentiable(
            query, call.repeat_kv(key.features), call.repeat_kv(value), None, False, scale, variant
        )
    key, value = call.repeat_kv_side(key), call.repeat_kv(value)
    causality = _causality(call)
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
    if (
        call.device.type != "cpu"
        or call.dtype not in (torch.bfloat16, torch.float16)
        or call.keys >= select.SIXTEEN_BIT_GRADIENTS
    ):
        return False
    return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in inputs)


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


def sparse_bands(call: Call) -> list[Band] | None:
    """Return the bands to compute, none of them empty; None if all pairs at once are faster or the only way."""
    # for causality from the first key on, PyTorch skips hidden pairs itself
    if call.mask is None or (
        isinstance(call.mask, Causal) and call.bias is None and isinstance(call.start, int) and call.start == 0
    ):
        return None
    if (
        call.device.type != "cpu"
        or torch.compiler.is_compiling()
        or (call.bias is not None and call.bias.requires_grad)
    ):
        return None
    # transforms use PyTorch's own kernel
    parts = None if is_transformed() else bands.worthwhile_bands(call, select.SPARSE, select.MANY)
    return None if parts is None else [band for band in parts if len(band.keys)]


def _run_bands(call: Call, query: Tensor, key: LoweredSide, value: Tensor, *, parts: list[Band]) -> Tensor:
    """Compute the context, (B, H, Tq, Dv), band by band; queries in no band see nothing."""
    key, value = call.repeat_kv_side(key), call.repeat_kv(value)
    visible = mask_info.visible_keys_of(call)
    if visible is not None:
        key, value = reference.zero_hidden_keys(visible, key, value)
    *sides, scale = _lowered(call, query, key, visible)
    # the kernel requires keys and values of equal width
    width = max(sides[0].shape[-1], value.shape[-1])
    padded = [
        F.pad(tensor, (0, width - tensor.shape[-1])) if tensor.shape[-1] < width else tensor
        for tensor in (*sides, value)
    ]
    return _BlockSparse.apply(*padded, _Bands(call, parts, scale))[..., : call.value_width]


@dataclass(frozen=True)
class _Bands:
    """The bands of a call and the factor on q·k."""

    call: Call
    bands: list[Band]
    scale: float

    def with_mask_terms(self, dtype: torch.dtype) -> Iterator[tuple[Band, Tensor | None, Tensor | None]]:
        """Yield each band with the term on its scores and its fully masked rows (…, rows, 1), as in `AdditiveMask`."""
        call = self.call
        bounds = None if call.bias is not None else mask_info.key_bounds(call, exact=True)
        bounds = None if bounds is None else torch.stack(torch.broadcast_tensors(*bounds))  # (2, B|1, H|1, Tq)
        last_name, mask = b"", AdditiveMask(None, None)
        for band in self.bands:
            if bounds is None or isinstance(band.keys, Tensor):
                pairs = call.pairs(*band.pairs_of(call))
                mask = additive_mask(
                    call.allowed(pairs), None if call.bias is None else call.bias_at_pairs(pairs, call.bias), dtype
                )
                last_name = b""
            else:
                # in a window all bands but the first and last have the same mask
                relative = bounds[..., band.own] - band.keys.start
                name = relative.numpy().tobytes() + len(band.keys).to_bytes(8, "little")
                if name != last_name:
                    keys = torch.arange(len(band.keys), dtype=torch.int32)
                    begin, end = relative.to(torch.int32)[..., None]
                    last_name, mask = name, additive_mask((keys >= begin) & (keys < end), None, dtype)
            yield band, mask.term, mask.fully_masked


class _BlockSparse(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, work: _Bands) -> Tensor:
        has_all_rows = sum(len(band.rows) for band in work.bands) == query.shape[2]
        context, sums = (value.new_empty if has_all_rows else value.new_zeros)(*query.shape[:3], value.shape[3]), []
        for band, term, fully_masked in work.with_mask_terms(query.dtype):
            parts = query[:, :, band.own], key[:, :, band.key_slice], value[:, :, band.key_slice]
            part, total = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
                *parts, 0.0, False, attn_mask=term, scale=work.scale
            )
            context[:, :, band.own] = part if fully_masked is None else part.masked_fill(fully_masked, 0.0)
            sums.append(total)
        ctx.save_for_backward(query, key, value, context, *sums)
        ctx.work = work
        return context

    @staticmethod
    @no_autocast
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        query, key, value, context, *sums = ctx.saved_tensors
        work: _Bands = ctx.work
        if needs_double_backward(gradient):
            # narrow, since a slice of everything would be an alias, which batched gradients do not support
            gradients = [gradient.narrow(2, band.rows.start, len(band.rows)) for band in work.bands]
            return *double_backward(partial(_contexts_by_products, work), (query, key, value), gradients), None
        # gradients of keys that bands share are summed in float32 at least
        exact = torch.promote_types(query.dtype, torch.float32)
        dq, dk, dv = torch.zeros_like(query), torch.zeros_like(key, dtype=exact), torch.zeros_like(value, dtype=exact)
        for (band, term, fully_masked), total in zip(work.with_mask_terms(query.dtype), sums, strict=True):
            parts = query[:, :, band.own], key[:, :, band.key_slice], value[:, :, band.key_slice]
            of_band = gradient[:, :, band.own]
            of_band = of_band if fully_masked is None else of_band.masked_fill(fully_masked, 0.0)
            gradients = sdpa.fused_gradients(of_band, *parts, term, context[:, :, band.own], total, False, work.scale)
            dq[:, :, band.own] = gradients[0]
            band.add_key_gradient(dk, gradients[1].to(exact))
            band.add_key_gradient(dv, gradients[2].to(exact))
        return dq, dk.to(key.dtype), dv.to(value.dtype), None


def _contexts_by_products(work: _Bands, query: Tensor, key: Tensor, value: Tensor) -> list[Tensor]:
    """Compute the bands' contexts by plain products, which store none of their weights."""
    contexts = []
    for band, term, fully_masked in work.with_mask_terms(query.dtype):
        parts = query[:, :, band.own], key[:, :, band.key_slice], value[:, :, band.key_slice]
        context = checkpointed(sdpa.products, *parts, term, False, work.scale)
        contexts.append(context if fully_masked is None else context.masked_fill(fully_masked, 0.0))
    return contexts
