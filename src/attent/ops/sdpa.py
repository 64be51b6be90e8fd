"""PyTorch's attention on a CPU, with the second derivatives that its fused kernel lacks.

Plain matrix products are used where they are faster.
"""

from collections.abc import Iterator
from functools import partial
from itertools import product
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from attent.ops.autograd import double_backward, needs_double_backward, no_autocast
from attent.ops.eligibility import is_known_true, is_transformed

# Up to this many pairs per head, plain products compute gradients faster than PyTorch's CPU kernel.
SHORT = 64 * 64
# Pairs per tile of the plain products that replace the kernel's inaccurate gradients.
TILE = 2**20
# The value of torch._fused_sdp_choice for the fused CPU kernel.
FUSED = 1
# From this log Σ exp on, the fused kernel's gradients are not used: their relative error is up to 3e-7 times it.
LOGARITHM = 64.0
_forward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default
_backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward.default


Variant = Literal["products", "twice_differentiable", "pytorch", "grouped"]


def choose(pairs: int, device: torch.device, *, needs_grad: bool, mask_needs_grad: bool) -> Variant:
    """Choose between plain products, PyTorch's kernel with second derivatives, and PyTorch's function as it is.

    The last also supports transforms and compilers.

    Args:
        pairs: the number of pairs of a head.
        device: the device of the tensors.
        needs_grad: whether query, key or value need gradients.
        mask_needs_grad: whether the additive mask needs gradients.
    """
    is_differentiated = needs_grad and torch.is_grad_enabled() and not mask_needs_grad and device.type == "cpu"
    if not is_differentiated or torch.compiler.is_compiling() or is_transformed():
        return "pytorch"
    return "products" if pairs <= SHORT else "twice_differentiable"


def twice_differentiable(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    causal: bool,
    scale: float,
    variant: Variant | None = None,
) -> Tensor:
    """Compute scaled_dot_product_attention, with gradients that can be differentiated again.

    Args:
        query: (B, H, Tq, D).
        key: (B, H, Tk, D); with the variant "grouped", heads share keys and values, (B, G, Tk, D).
        value: (B, H, Tk, Dv).
        mask: an additive mask, or a boolean mask of the pairs that may attend, or None.
        causal: whether query i sees only the keys up to i.
        scale: the factor on q·k.
        variant: the result of `choose`, if it was already called.
    """
    needs_grad, mask_needs_grad = (
        any(part.requires_grad for part in (query, key, value)),
        mask is not None and mask.requires_grad,
    )
    pairs = query.shape[-2] * key.shape[-2]
    variant = variant or choose(pairs, query.device, needs_grad=needs_grad, mask_needs_grad=mask_needs_grad)
    return VARIANTS[variant](query, key, value, mask, causal, scale)


def _pytorch(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, causal: bool, scale: float) -> Tensor:
    return F.scaled_dot_product_attention(query, key, value, attn_mask=mask, is_causal=causal, scale=scale)


def _grouped(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, causal: bool, scale: float) -> Tensor:
    return F.scaled_dot_product_attention(
        query, key, value, attn_mask=mask, is_causal=causal, scale=scale, enable_gqa=True
    )


def _by_products(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, causal: bool, scale: float) -> Tensor:
    exact = torch.promote_types(value.dtype, torch.float32)
    return _Products.apply(query.to(exact), key.to(exact), value.to(exact), mask, causal, scale).to(value.dtype)


def _fused(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, causal: bool, scale: float) -> Tensor:
    choice = torch._fused_sdp_choice(query, key, value, mask, 0.0, causal, scale=scale)  # pyright: ignore[reportPrivateImportUsage]
    if choice != FUSED:
        # PyTorch computes plain steps itself, which have derivatives of every order
        return _pytorch(query, key, value, mask, causal, scale)
    if mask is not None and mask.dtype == torch.bool:
        mask = torch.zeros(mask.shape, dtype=query.dtype).masked_fill_(~mask, -torch.inf)
    return _Fused.apply(query, key, value, mask, causal, scale)


VARIANTS = {
    "products": _by_products, "twice_differentiable": _fused, "pytorch": _pytorch, "grouped": _grouped
}  # fmt: skip


class _Fused(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, causal: bool, scale: float
    ) -> Tensor:
        context, logsumexp = _forward(query, key, value, 0.0, causal, attn_mask=mask, scale=scale)
        ctx.save_for_backward(query, key, value, mask, context, logsumexp)
        ctx.causal, ctx.scale = causal, scale
        return context

    @staticmethod
    @no_autocast
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        query, key, value, mask, context, logsumexp = ctx.saved_tensors
        if needs_double_backward(gradient):
            plain = partial(products, mask=mask, causal=ctx.causal, scale=ctx.scale)
            return *double_backward(plain, (query, key, value), gradient), None, None, None
        return (
            *fused_gradients(gradient, query, key, value, mask, context, logsumexp, ctx.causal, ctx.scale),
            None,
            None,
            None,
        )


def fused_gradients(
    gradient: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    context: Tensor,
    logsumexp: Tensor,
    causal: bool,
    scale: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the fused kernel's gradients of query, key and value, or those of plain products where it is inaccurate.

    The kernel recomputes weights as exp(score − log Σ exp), whose relative error is that of a float32 the size of the
    logarithm. If a bias of −3e38 fills a row, the logarithm of the number of keys is rounded away, and every weight
    becomes 1.

    Args:
        gradient: the gradient of the context.
        query: (B, H, Tq, D).
        key: (B, H, Tk, D).
        value: (B, H, Tk, D).
        mask: a tensor added to the scores, (B|1, H|1, Tq|1, Tk|1), or None.
        context: (B, H, Tq, D), as the kernel returned it.
        logsumexp: each row's log Σ exp, (B, H, Tq), as the kernel returned it.
        causal: whether query i sees only the keys up to i.
        scale: the factor on q·k.
    """
    is_large = logsumexp.abs() > LOGARITHM
    if not is_known_true(is_large.any, logsumexp.device):
        return _backward(gradient, query, key, value, context, logsumexp, 0.0, causal, attn_mask=mask, scale=scale)
    # exp(score − ∞) = 0 excludes these rows, which the products below compute.
    small = logsumexp.masked_fill(is_large, torch.inf)
    gradients = _backward(gradient, query, key, value, context, small, 0.0, causal, attn_mask=mask, scale=scale)
    exact, keys = torch.promote_types(query.dtype, torch.float32), key.shape[2]
    dquery, dkey, dvalue = (part.to(exact) for part in gradients)
    for sequence, heads, rows in _tiles_of(is_large, keys):
        index = sequence, heads, rows
        term = None if mask is None else mask.expand(*is_large.shape, keys)[index]
        if causal:
            term = torch.zeros(len(rows), keys, dtype=exact).masked_fill_(
                torch.arange(keys) > rows[:, None], -torch.inf
            )
        inputs = [part.to(exact) for part in (query[index], key[sequence, heads], value[sequence, heads])]
        of_large = gradient[index].masked_fill(~is_large[index][..., None], 0.0).to(exact)
        parts = double_backward(partial(products, mask=term, causal=False, scale=scale), inputs, of_large)
        dquery[index] += parts[0]
        dkey[sequence, heads] += parts[1]
        dvalue[sequence, heads] += parts[2]
    return dquery.to(query.dtype), dkey.to(key.dtype), dvalue.to(value.dtype)


def _tiles_of(marked: Tensor, keys: int) -> Iterator[tuple[int, slice, Tensor]]:
    """Yield the sequence, heads and rows of tiles that together contain all marked rows (B, H, Tq)."""
    width = max(TILE // (keys * marked.shape[2]), 1)
    for sequence, first in product(range(marked.shape[0]), range(0, marked.shape[1], width)):
        heads = slice(first, first + width)
        rows = marked[sequence, heads].any(0).nonzero()[:, 0]
        yield from ((sequence, heads, row_tile) for row_tile in rows.split(max(TILE // keys, 1)) if len(row_tile))


class _Products(torch.autograd.Function):
    """`products` for float32 or float64 inputs, with half as many operations."""

    @staticmethod
    def forward(
        ctx: Any, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, causal: bool, scale: float
    ) -> Tensor:
        rows, keys = query.shape[:3], key.shape[2]
        scores = _scaled_bmm(query.flatten(0, 1), key.flatten(0, 1).mT, scale).view(*rows, keys)
        weights = torch.softmax(_hidden(scores, mask, causal), -1).flatten(0, 1)  # (B·H, Tq, Tk)
        ctx.save_for_backward(query, key, value, mask, weights)
        ctx.causal, ctx.scale = causal, scale
        return torch.bmm(weights, value.flatten(0, 1)).view(*rows, value.shape[3])

    @staticmethod
    @no_autocast
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        query, key, value, mask, weights = ctx.saved_tensors
        if needs_double_backward(gradient):
            plain = partial(products, mask=mask, causal=ctx.causal, scale=ctx.scale)
            return *double_backward(plain, (query, key, value), gradient), None, None, None
        gradient = gradient.flatten(0, 1)
        dvalue = torch.bmm(weights.mT, gradient)
        dweights = torch.bmm(gradient, value.flatten(0, 1).mT)
        dscores = torch._softmax_backward_data(dweights, weights, -1, weights.dtype)  # pyright: ignore[reportPrivateImportUsage]
        dquery, dkey = (
            _scaled_bmm(dscores, key.flatten(0, 1), ctx.scale),
            _scaled_bmm(dscores.mT, query.flatten(0, 1), ctx.scale),
        )
        return dquery.view_as(query), dkey.view_as(key), dvalue.view_as(value), None, None, None


def _scaled_bmm(left: Tensor, right: Tensor, factor: float) -> Tensor:
    """Compute batched matrix products (n, …, …) times a factor, in one pass."""
    return torch.baddbmm(left.new_empty(1, 1, 1), left, right, beta=0, alpha=factor)


def products(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, causal: bool, scale: float) -> Tensor:
    """Compute attention with the two matrix products of the formula."""
    exact = value.to(torch.promote_types(value.dtype, torch.float32))
    scores = (query.to(exact.dtype) * scale) @ key.to(exact.dtype).mT
    return (torch.softmax(_hidden(scores, mask, causal), -1) @ exact).to(value.dtype)


def _hidden(scores: Tensor, mask: Tensor | None, causal: bool) -> Tensor:
    """Return the scores with −∞ for hidden pairs, or with the additive mask added."""
    # Adding takes a tenth of the time of masked_fill.
    if causal:
        scores = scores + torch.full(scores.shape[-2:], -torch.inf, dtype=scores.dtype).triu(1)
    if mask is not None:
        scores = scores + (
            torch.zeros(mask.shape, dtype=scores.dtype).masked_fill_(~mask, -torch.inf)
            if mask.dtype == torch.bool
            else mask
        )
    return scores
