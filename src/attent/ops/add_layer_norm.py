"""x + Dropout(f) and its layer normalisation, in one sweep over the features where the extension can."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from attent.ops import native
from attent.ops.autograd import needs_double_backward
from attent.ops.dropout import Drops, drops
from attent.ops.eligibility import can_run_native


def residual_norm(
    features: Tensor, output: Tensor | None, dropout: Callable[[Tensor], Tensor], share: float, norm: nn.LayerNorm, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """x + Dropout(f), and LayerNorm(x + Dropout(f)).

    While training in float32 on a CPU, with or without bfloat16 in autocast, the extension computes both in one sweep, and their
    gradients in another. What is dropped is then the hash of `attent.ops.dropout`, of a seed from torch's generator; elsewhere
    it is `dropout`'s own, so that the same seed drops other features there.

    Args:
        features: x, (…, E).
        output: f, (…, E); None if there is nothing to add.
        dropout: applied to f where PyTorch computes.
        share: the share of f that is dropped, 0 while evaluating.
        norm: over E.
        dtype: what the norm is needed in; it is x's where PyTorch computes it.
    """
    if _serves(features, output, norm, dtype):
        share = 0.0 if output is None else share
        seed = int(torch.randint(2**31 - 1, ())) if share else 0
        work = _Work(seed, share, norm.eps, dtype)
        # made contiguous here, as what is kept for second derivatives must be an argument itself
        together, normalised = _ResidualNorm.apply(features.contiguous(), output, norm.weight, norm.bias, work)
        return features if together is None else together, normalised
    together = features if output is None else features + dropout(output)
    return together, norm(together)


def _serves(features: Tensor, output: Tensor | None, norm: nn.LayerNorm, dtype: torch.dtype) -> bool:
    """Whether the extension does: without gradients to come PyTorch is used, which compilers and exporters can follow."""
    if not (norm.training and torch.is_grad_enabled() and can_run_native()):
        return False
    types = (torch.float32, torch.bfloat16)
    if dtype not in types or (output is not None and (output.dtype not in types or output.shape != features.shape)):
        return False
    exact = (features, norm.weight, norm.bias)
    return features.numel() > 0 and all(one is not None and one.dtype == torch.float32 and one.device.type == "cpu" for one in exact)


class _Work(NamedTuple):
    """What a sweep needs besides tensors."""

    seed: int
    share: float
    epsilon: float
    dtype: torch.dtype

    def drops(self, number: int, width: int) -> Drops:
        """Which features stay, as of the weights of one sequence and one head."""
        return drops(number, width, self.share, self.seed)

    def numbers(self) -> tuple[float, ...]:
        """The seed, the threshold below which a hash says that a feature goes, and what is multiplied with those that stay."""
        return self.seed, int(self.share * 2**32), 1.0 / (1.0 - self.share)


class _ResidualNorm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, features: Tensor, output: Tensor | None, weight: Tensor, bias: Tensor, work: _Work
    ) -> tuple[Tensor | None, Tensor]:
        width = features.shape[-1]
        number = features.numel() // width
        together = None if output is None else torch.empty_like(features)
        normalised = torch.empty_like(features, dtype=work.dtype)
        statistics = features.new_empty(number, 2)
        halves = output is not None and output.dtype == torch.bfloat16, work.dtype == torch.bfloat16
        nothing = features.new_empty(0)
        tensors = (
            features,
            nothing if output is None else output.contiguous(),
            weight.contiguous(),
            bias.contiguous(),
            nothing if together is None else together,
            normalised,
            statistics,
        )
        native.run("attent_residual_norm", tensors, number, width, *halves, *work.numbers(), work.epsilon)
        ctx.save_for_backward(features if together is None else together, weight, statistics)
        ctx.work, ctx.of_output = work, None if output is None else output.dtype
        ctx.set_materialize_grads(False)
        return together, normalised

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        dtogether, dnormalised = gradients
        together, weight, statistics = ctx.saved_tensors
        if dnormalised is None:
            dnormalised = torch.zeros_like(together, dtype=ctx.work.dtype)
        if needs_double_backward(*gradients):
            return *_differentiable(together, weight, dtogether, dnormalised, ctx.work, ctx.of_output), None
        width = together.shape[-1]
        dfeatures, dweight, dbias = torch.empty_like(together), torch.empty_like(weight), torch.empty_like(weight)
        doutput = None if ctx.of_output is None else torch.empty_like(together, dtype=ctx.of_output)
        nothing = together.new_empty(0)
        tensors = (
            together,
            dnormalised.contiguous(),
            nothing if dtogether is None else dtogether.contiguous(),
            weight.contiguous(),
            statistics,
            dfeatures,
            nothing if doutput is None else doutput,
            dweight,
            dbias,
        )
        halves = ctx.of_output == torch.bfloat16, ctx.work.dtype == torch.bfloat16
        native.run("attent_residual_norm_gradients", tensors, len(statistics), width, *halves, *ctx.work.numbers())
        return dfeatures, doutput, dweight, dbias, None


def _differentiable(
    together: Tensor, weight: Tensor, dtogether: Tensor | None, dnormalised: Tensor, work: _Work, of_output: torch.dtype | None
) -> tuple[Tensor | None, ...]:
    """The gradients in plain PyTorch, for those who differentiate them."""
    variance, mean = torch.var_mean(together, -1, correction=0, keepdim=True)
    unit, gradient = (together - mean) * torch.rsqrt(variance + work.epsilon), dnormalised.to(together.dtype)
    weighted = gradient * weight
    apart = weighted - weighted.mean(-1, keepdim=True) - unit * (weighted * unit).mean(-1, keepdim=True)
    dfeatures = apart * torch.rsqrt(variance + work.epsilon)
    if dtogether is not None:
        dfeatures = dfeatures + dtogether
    dweight, dbias = (one.reshape(-1, len(weight)).sum(0) for one in (gradient * unit, gradient))
    if of_output is None:
        return dfeatures, None, dweight, dbias
    kept = work.drops(together.numel() // together.shape[-1], together.shape[-1]).kept().view_as(together)
    return dfeatures, (dfeatures * kept / (1.0 - work.share)).to(of_output), dweight, dbias
