"""PyTorch's fused attention on a CPU band by band, where a mask hides most pairs: a window, documents, blocks of a long sequence."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from attent.attention import mask_info
from attent.attention.backends import block_sparse, select
from attent.attention.backends.block_sparse import Band
from attent.attention.call import Call
from attent.attention.mask_info import AdditiveMask, additive
from attent.attention.masks.causal import Causal
from attent.ops.autograd import checkpointed, double_backward, needs_double_backward, no_autocast
from attent.ops.eligibility import is_transformed
from attent.ops.sdpa import fused_gradients, products


def serve(call: Call) -> list[Band] | None:
    """The bands to compute, none of them empty; None where all at once is better, or the only way."""
    # causal from the first key on PyTorch skips what is hidden by itself
    if call.mask is None or (isinstance(call.mask, Causal) and call.bias is None and isinstance(call.start, int) and call.start == 0):
        return None
    if call.device.type != "cpu" or torch.compiler.is_compiling() or (call.bias is not None and call.bias.requires_grad):
        return None
    # vmap and its kin go through PyTorch's own
    if is_transformed():
        return None
    found = block_sparse.sparse(call, select.SPARSE, select.MANY)
    return None if found is None else [band for band in found if len(band.keys)]


def run(call: Call, query: Tensor, key: Tensor, value: Tensor, scale: float, some: list[Band]) -> Tensor:
    """The context of each query, (B, H, Tq, Dv).

    Args:
        call: the call.
        query: (B, H, Tq, D), lowered.
        key: (B, H, Tk, D), lowered; keys that no query sees are finite.
        value: (B, H, Tk, Dv).
        scale: the factor on q·k.
        some: the bands; queries in none of them see nothing.
    """
    # the kernel wants keys and values of one width
    width = max(query.shape[-1], value.shape[-1])
    query, key, value = (
        F.pad(tensor, (0, width - tensor.shape[-1])) if tensor.shape[-1] < width else tensor for tensor in (query, key, value)
    )
    return _Bands.apply(query, key, value, _Work(call, some, scale))[..., : call.value_width]


@dataclass(frozen=True)
class _Work:
    call: Call
    bands: list[Band]
    scale: float

    def each(self, dtype: torch.dtype) -> Iterator[tuple[Band, Tensor | None, Tensor | None]]:
        """The bands, what is added to the scores of each, and which of its rows see nothing (…, rows, 1); None where nothing or no row."""
        call = self.call
        bounds = None if call.bias is not None else mask_info.key_bounds(call, exact=True)
        ends = None if bounds is None else torch.stack(torch.broadcast_tensors(*bounds))  # (2, B|1, H|1, Tq)
        last, made = b"", AdditiveMask(None, None)
        for band in self.bands:
            if ends is None or isinstance(band.keys, Tensor):
                pairs = call.pairs(*band.pairs_of(call))
                made, last = additive(call.allowed(pairs), None if call.bias is None else call.bias_of(pairs, call.bias), dtype), b""
            else:
                # in a window all bands but the first and last see the same
                here = ends[..., band.own] - band.keys.start
                name = here.numpy().tobytes() + len(band.keys).to_bytes(8, "little")
                if name != last:
                    keys = torch.arange(len(band.keys), dtype=torch.int32)
                    first, behind = here.to(torch.int32)[..., None]
                    last, made = name, additive((keys >= first) & (keys < behind), None, dtype)
            yield band, made.term, made.fully_masked


class _Bands(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, work: _Work) -> Tensor:
        every = sum(len(band.rows) for band in work.bands) == query.shape[2]
        context, sums = (value.new_empty if every else value.new_zeros)(*query.shape[:3], value.shape[3]), []
        for band, term, dead in work.each(query.dtype):
            some = query[:, :, band.own], key[:, :, band.key_slice], value[:, :, band.key_slice]
            found, total = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(*some, 0.0, False, attn_mask=term, scale=work.scale)
            context[:, :, band.own] = found if dead is None else found.masked_fill(dead, 0.0)
            sums.append(total)
        ctx.save_for_backward(query, key, value, context, *sums)
        ctx.work = work
        return context

    @staticmethod
    @no_autocast
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        query, key, value, context, *sums = ctx.saved_tensors
        work: _Work = ctx.work
        if needs_double_backward(gradient):
            # a slice of everything would be an alias, of which there is no batch
            gradients = [gradient.narrow(2, band.rows.start, len(band.rows)) for band in work.bands]
            return *double_backward(partial(_plain, work), (query, key, value), gradients), None
        # what bands share is summed in float32 at least
        exact = torch.promote_types(query.dtype, torch.float32)
        dq, dk, dv = torch.zeros_like(query), torch.zeros_like(key, dtype=exact), torch.zeros_like(value, dtype=exact)
        for (band, term, dead), total in zip(work.each(query.dtype), sums, strict=True):
            some = query[:, :, band.own], key[:, :, band.key_slice], value[:, :, band.key_slice]
            up = gradient[:, :, band.own] if dead is None else gradient[:, :, band.own].masked_fill(dead, 0.0)
            found = fused_gradients(up, *some, term, context[:, :, band.own], total, False, work.scale)
            dq[:, :, band.own] = found[0]
            band.add(dk, found[1].to(exact))
            band.add(dv, found[2].to(exact))
        return dq, dk.to(key.dtype), dv.to(value.dtype), None


def _plain(work: _Work, query: Tensor, key: Tensor, value: Tensor) -> list[Tensor]:
    """The bands' contexts by plain products, which keep none of their weights."""
    contexts = []
    for band, term, dead in work.each(query.dtype):
        some = query[:, :, band.own], key[:, :, band.key_slice], value[:, :, band.key_slice]
        context = checkpointed(products, *some, term, False, work.scale)
        contexts.append(context if dead is None else context.masked_fill(dead, 0.0))
    return contexts
