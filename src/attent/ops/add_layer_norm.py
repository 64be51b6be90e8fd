"""x + Dropout(f) and its layer normalization, computed in one sweep over the features in training."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attent.ops import native
from attent.ops.autograd import double_backward, needs_double_backward
from attent.ops.dropout import dropout, feature_mask, threshold
from attent.ops.eligibility import can_run_native

DTYPES = (torch.float32, torch.bfloat16)


def add_layer_norm(
    features: Tensor, residual: Tensor | None, norm: nn.LayerNorm, share: float, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """Return x + Dropout(f) and LayerNorm(x + Dropout(f)).

    In training in float32 on a CPU, with or without bfloat16 autocast, the library computes both in one sweep, and
    their gradients in another. It uses the hash-based dropout of `attent.ops.dropout`, with a seed from torch's
    generator; elsewhere `dropout` of that file is used, which drops different features for the same seed.

    Args:
        features: x, (…, E).
        residual: f, (…, E); None if there is nothing to add.
        norm: the layer normalization over E.
        share: the current dropout probability of f, 0 to 1; 0 during evaluation.
        dtype: the dtype of the norm's output in the library; plain PyTorch returns that of x.
    """
    if _can_run_native(features, residual, norm, dtype):
        share = 0.0 if residual is None else share
        seed = int(torch.randint(2**31 - 1, ())) if share else 0
        # Contiguous here: second derivatives need the saved tensors to be the function's own arguments.
        features = features.contiguous()
        total, normalized = _AddLayerNorm.apply(
            features, residual, norm.weight, norm.bias, _Options(seed, share, norm.eps, dtype)
        )
        return features if total is None else total, normalized
    return reference(features, residual, norm, share)


def reference(features: Tensor, residual: Tensor | None, norm: nn.LayerNorm, share: float) -> tuple[Tensor, Tensor]:
    """Compute `add_layer_norm` in plain PyTorch."""
    if residual is not None:
        features = features + (dropout(residual, share) if share else residual)
    return features, norm(features)


def _can_run_native(features: Tensor, residual: Tensor | None, norm: nn.LayerNorm, dtype: torch.dtype) -> bool:
    """Return whether the library can compute; it is used only if gradients are needed, since exporters need PyTorch."""
    return (
        norm.training
        and dtype in DTYPES
        and norm.weight is not None
        and norm.bias is not None
        and (residual is None or (residual.dtype in DTYPES and residual.shape == features.shape))
        and torch.is_grad_enabled()
        and features.numel() > 0
        and can_run_native(features, norm.weight, norm.bias)
    )


class _Options(NamedTuple):
    seed: int
    share: float
    epsilon: float
    dtype: torch.dtype

    def dropout(self) -> tuple[float, ...]:
        """Return the seed, the threshold of hashes, and the factor on features that are kept."""
        return self.seed, threshold(self.share), 1.0 / (1.0 - self.share)


class _AddLayerNorm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, features: Tensor, residual: Tensor | None, weight: Tensor, bias: Tensor, options: _Options
    ) -> tuple[Tensor | None, Tensor]:
        width = features.shape[-1]
        rows = features.numel() // width
        total = None if residual is None else torch.empty_like(features)
        normalized = torch.empty_like(features, dtype=options.dtype)
        statistics = features.new_empty(rows, 2)
        ctx.options, ctx.residual_dtype = options, None if residual is None else residual.dtype
        is_half = ctx.residual_dtype == torch.bfloat16, options.dtype == torch.bfloat16
        inputs = (features, None if residual is None else residual.contiguous(), weight.contiguous(), bias.contiguous())
        tensors = (*inputs, total, normalized, statistics)
        native.run("attent_add_layer_norm", tensors, rows, width, *is_half, *options.dropout(), options.epsilon)
        ctx.save_for_backward(features if total is None else total, weight, statistics)
        ctx.set_materialize_grads(False)
        return total, normalized

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        dtotal, dnormalized = gradients
        (total, weight, statistics), options = ctx.saved_tensors, ctx.options
        if dnormalized is None:
            dnormalized = torch.zeros_like(total, dtype=options.dtype)
        if needs_double_backward(*gradients):
            return *_plain_backward(total, weight, dtotal, dnormalized, options, ctx.residual_dtype), None
        dfeatures, dweight, dbias = torch.empty_like(total), torch.empty_like(weight), torch.empty_like(weight)
        dresidual = None if ctx.residual_dtype is None else torch.empty_like(total, dtype=ctx.residual_dtype)
        inputs = (
            total,
            dnormalized.contiguous(),
            None if dtotal is None else dtotal.contiguous(),
            weight.contiguous(),
            statistics,
        )
        outputs = (dfeatures, dresidual, dweight, dbias)
        is_half = ctx.residual_dtype == torch.bfloat16, options.dtype == torch.bfloat16
        native.run(
            "attent_add_layer_norm_gradients",
            (*inputs, *outputs),
            len(statistics),
            total.shape[-1],
            *is_half,
            *options.dropout(),
        )
        return dfeatures, dresidual, dweight, dbias, None


def _plain_backward(
    total: Tensor,
    weight: Tensor,
    dtotal: Tensor | None,
    dnormalized: Tensor,
    options: _Options,
    residual_dtype: torch.dtype | None,
) -> tuple[Tensor | None, ...]:
    def normalize(total: Tensor, weight: Tensor) -> Tensor:
        return F.layer_norm(total, weight.shape, weight, torch.zeros_like(weight), options.epsilon).to(options.dtype)

    needs_grad = total.requires_grad, weight.requires_grad
    dfeatures, dweight = double_backward(normalize, (total, weight), dnormalized, needs_grad)
    dbias = dnormalized.to(weight.dtype).reshape(-1, len(weight)).sum(0)
    if dtotal is not None:
        dfeatures = dfeatures + dtotal
    if residual_dtype is None or dfeatures is None:
        return dfeatures, None, dweight, dbias
    mask = feature_mask(total, options.share, options.seed).keep_mask().view_as(total)
    return dfeatures, (dfeatures * mask / (1.0 - options.share)).to(residual_dtype), dweight, dbias
