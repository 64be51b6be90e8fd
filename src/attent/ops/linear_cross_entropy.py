"""The output layer and its cross entropy in one, some tokens at a time: no tensor of every token's logits is ever held."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from attent.ops import native

# Logits that are held at a time, and tokens below which products lose their pace. The extension works in place and reads each logit
# while its row is in the cache: as many as 8 MiB hold, and products of so many tokens are worth more than a smaller piece.
CHUNK, LEAST = 2**20, 128
BYTES, LEAST_COMPILED = 2**23, 256
# Tokens that products of 16 bits take at a time, and those whose slopes the extension sums on its own for the bias.
TILE, ROWS = 32, 16


def output_loss(features: Tensor, weight: Tensor, bias: Tensor | None, target: Tensor, label_smoothing: float = 0.0) -> Tensor:
    """The mean cross entropy of tokens told from features by a linear layer, in nats per token.

        −(1 − ε) log p(y) − ε/V Σ_v log p(v),   p = softmax(W x + b)

    Gradients are computed on the way, from each piece of logits while it is there. The product is that of the features'
    type, or of autocast's; what follows it is float32 at least.

    Source: Szegedy et al. (2016), §7, arXiv 1512.00567; Vaswani et al. (2017), §5.4, arXiv 1706.03762.

    Args:
        features: (N, E).
        weight: (V, E).
        bias: (V,) or None.
        target: the tokens to be told, (N,).
        label_smoothing: ε, 0 to 1.

    Returns:
        A scalar, float32 at least.
    """
    device = features.device.type
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else features.dtype
    return _OutputLoss.apply(features, weight, bias, target, label_smoothing, dtype, torch.is_grad_enabled())


class _OutputLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        features: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        target: Tensor,
        smoothing: float,
        dtype: torch.dtype,
        wanted: bool,
    ) -> Tensor:
        ours = features.to(dtype)
        compiles = _compiles(ours, target, len(weight))
        if compiles and _has_tiles(ours, weight, bias):
            loss, *parts = _tiled(ours, weight, bias, target, smoothing, wanted)
            ctx.save_for_backward(*parts)
            ctx.types = (features.dtype, weight.dtype, None if bias is None else bias.dtype, 1.0)
            return loss
        theirs = weight.to(dtype)
        exact = torch.promote_types(dtype, torch.float32)
        total = torch.zeros((), dtype=exact, device=features.device)
        by_feature = torch.empty_like(ours) if wanted else None
        by_weight = torch.zeros(weight.shape, dtype=exact, device=weight.device) if wanted else None
        by_bias = torch.zeros(weight.shape[0], dtype=exact, device=weight.device) if wanted and bias is not None else None
        if compiles:
            turn, size = _compiled, max(BYTES // (dtype.itemsize * len(weight)) // TILE * TILE, LEAST_COMPILED)
        else:
            turn, size = _plain, max(CHUNK // len(weight), LEAST)
        # written over by each piece
        held = ours.new_empty(min(size, len(target)), len(weight))
        product = torch.empty_like(theirs) if wanted and dtype != exact else None
        for rows in range(0, len(target), size):
            some, told = ours[rows : rows + size], target[rows : rows + size]
            logits = torch.matmul(some, theirs.T, out=held[: len(some)])
            loss, slope, of_bias = turn(logits, bias, told, smoothing, wanted)
            total += loss
            if by_feature is not None and by_weight is not None and slope is not None:
                torch.mm(slope, theirs, out=by_feature[rows : rows + size])
                if product is None:
                    by_weight.addmm_(slope.T, some)
                else:
                    by_weight += torch.mm(slope.T, some, out=product)
            if by_bias is not None and of_bias is not None:
                by_bias += of_bias
        share = 1 / max(len(target), 1)
        ctx.save_for_backward(by_feature, by_weight, by_bias)
        ctx.types = (features.dtype, weight.dtype, None if bias is None else bias.dtype, share)
        return total * share

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        *types, share = ctx.types
        scale = gradient * share
        found = [
            None if dtype is None else (part.to(torch.promote_types(part.dtype, dtype)) * scale).to(dtype)
            for part, dtype in zip(ctx.saved_tensors, types, strict=True)
        ]
        return *found, None, None, None, None


def _compiles(features: Tensor, target: Tensor, classes: int) -> bool:
    """Whether the extension serves; PyTorch says what is wrong with targets that are no classes."""
    if features.device.type != "cpu" or features.dtype not in (torch.bfloat16, torch.float32) or not target.numel():
        return False
    if torch.compiler.is_compiling() or native.library() is None or target.dtype != torch.int64:
        return False
    least, most = torch.aminmax(target)
    return int(least) >= 0 and int(most) < classes


def _has_tiles(features: Tensor, weight: Tensor, bias: Tensor | None) -> bool:
    """Whether the processor's matrix tiles take these."""
    if features.dtype != torch.bfloat16 or features.shape[1] % 32 or not native.has_amx():
        return False
    return all(one is None or (one.dtype == torch.float32 and one.is_contiguous()) for one in (weight, bias))


def _tiled(
    features: Tensor, weight: Tensor, bias: Tensor | None, target: Tensor, smoothing: float, wanted: bool
) -> tuple[Tensor, Tensor | None, Tensor | None, Tensor | None]:
    """The mean loss, and if wanted its gradients in features, weight and bias, without a tensor of logits."""
    features, nothing = features.contiguous(), weight.new_empty(0)
    losses = weight.new_empty(len(target))
    of_features = torch.empty_like(features) if wanted else None
    of_weight = torch.empty_like(weight) if wanted else None
    of_bias = torch.zeros_like(bias) if wanted and bias is not None else None
    tensors = (features, weight, bias, target.contiguous(), losses, of_features, of_weight, of_bias)
    share = 1 / len(target)
    sizes = *features.shape, len(weight)
    native.run("attent_output_loss_tiles", tuple(nothing if one is None else one for one in tensors), *sizes, wanted, smoothing, share)
    return losses.sum() * share, of_features, of_weight, of_bias


# What both ways make of some tokens' logits, which are lost: the sum of their losses, and if wanted their slopes, softmax − ε/V less
# 1 − ε at the target, in the type of the logits, and the slopes' sum over the tokens where there is a bias.
Turned = tuple[Tensor, Tensor | None, Tensor | None]


def _compiled(logits: Tensor, bias: Tensor | None, told: Tensor, smoothing: float, wanted: bool) -> Turned:
    tokens, classes = logits.shape
    losses = torch.empty(tokens)
    shift = torch.empty(0) if bias is None else bias.float().contiguous()
    columns = torch.empty(-(-tokens // ROWS) if wanted and bias is not None else 0, classes)
    halves = logits.dtype == torch.bfloat16
    native.run("attent_output_loss", (logits, told.contiguous(), shift, losses, columns), tokens, classes, halves, wanted, smoothing)
    return losses.sum(), logits if wanted else None, columns.sum(0) if len(columns) else None


def _plain(logits: Tensor, bias: Tensor | None, told: Tensor, smoothing: float, wanted: bool) -> Turned:
    exact = logits.to(torch.promote_types(logits.dtype, torch.float32))
    if bias is not None:
        exact += bias
    logs, told = F.log_softmax(exact, -1), told[:, None]
    loss = (smoothing - 1) * logs.gather(1, told).sum()
    # 0 · ∞ is no number
    if smoothing:
        loss -= smoothing * logs.mean(-1).sum()
    if not wanted:
        return loss, None, None
    slope = logs.exp_().sub_(smoothing / logs.shape[1])
    slope.scatter_add_(1, told, slope.new_full((1, 1), smoothing - 1).expand(told.shape))
    return loss, slope.to(logits.dtype), None if bias is None else slope.sum(0)
