"""The output layer fused with its cross entropy, computed in chunks of tokens.

The logits of all tokens are never held at the same time.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from attent.ops import native, onednn
from attent.ops.eligibility import autocast_dtype, can_run_native, can_use_amx
from attent.ops.onednn import can_use_onednn

# Number of logits that PyTorch holds at a time, and of tokens below which products become slow. The library works in
# place and reads each logit while its row is in the cache: its chunks are 8 MiB, since larger products gain more than
# smaller chunks would.
CHUNK, MIN_TOKENS = 2**20, 128
NATIVE_BYTES, MIN_NATIVE_TOKENS = 2**23, 256
# Tokens per tile of 16-bit products, and tokens per step when the library sums the logits' gradients for the bias.
TILE, ROWS = 32, 16

# Results for a chunk of logits, which are overwritten: the sum of the losses, and if needed the logits' gradients in
# their type (softmax − ε/V, minus 1 − ε at the target) and, with a bias, the gradients' sum over the tokens.
ChunkLoss = tuple[Tensor, Tensor | None, Tensor | None]


def linear_cross_entropy(
    features: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    target: Tensor,
    label_smoothing: float = 0.0,
) -> Tensor:
    """Return the mean cross entropy of tokens predicted from features by a linear layer, in nats per token.

        −(1 − ε) log p(y) − ε/V Σ_v log p(v),   p = softmax(W x + b)

    The forward pass also computes the gradients, while each chunk of logits is available. The product has the dtype of
    the features, or autocast's; everything after it is at least float32.

    Source: Szegedy et al. (2016), §7, arXiv 1512.00567; Vaswani et al. (2017), §5.4, arXiv 1706.03762.

    Args:
        features: (N, E).
        weight: (V, E).
        bias: (V,) or None.
        target: the tokens to predict, (N,).
        label_smoothing: ε, 0 to 1.

    Returns:
        A scalar, at least float32.
    """
    ways = autocast_dtype(features), torch.is_grad_enabled(), can_use_onednn(features, weight)
    return _LinearCrossEntropy.apply(features, weight, bias, target, label_smoothing, *ways)


def _chunk_size(vocabulary: int, dtype: torch.dtype, *, is_native: bool) -> int:
    """Return the number of tokens whose logits are computed at a time."""
    if is_native:
        return max(NATIVE_BYTES // (dtype.itemsize * vocabulary) // TILE * TILE, MIN_NATIVE_TOKENS)
    return max(CHUNK // vocabulary, MIN_TOKENS)


class _LinearCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        features: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        target: Tensor,
        smoothing: float,
        dtype: torch.dtype,
        needs_grad: bool,
        is_onednn: bool,
    ) -> Tensor:
        ctx.dtypes = (features.dtype, weight.dtype, None if bias is None else bias.dtype)
        features = features.to(dtype)
        is_native = _can_run_native(features, target, len(weight))
        if is_native and dtype == torch.bfloat16 and can_use_amx(features, weight, bias):
            loss, *gradients = _forward_amx(features, weight, bias, target, smoothing, needs_grad)
            ctx.save_for_backward(*gradients)
            ctx.scale = 1.0
            return loss
        chunk_loss = _native_loss if is_native else reference_loss
        size = _chunk_size(len(weight), dtype, is_native=is_native)
        matrix, accumulation_dtype = weight.to(dtype), torch.promote_types(dtype, torch.float32)
        total = torch.zeros((), dtype=accumulation_dtype, device=features.device)
        dfeatures = torch.empty_like(features) if needs_grad else None
        dweight = torch.zeros(weight.shape, dtype=accumulation_dtype, device=weight.device) if needs_grad else None
        dbias = weight.new_zeros(len(weight), dtype=accumulation_dtype) if needs_grad and bias is not None else None
        if dweight is not None and is_onednn:
            # The memory layout that the products have.
            dweight = weight.new_zeros(weight.shape[::-1]).T
        # Overwritten by each chunk.
        buffer = None if is_onednn else features.new_empty(min(size, len(target)), len(weight))
        product = torch.empty_like(matrix) if needs_grad and dtype != accumulation_dtype else None
        for begin in range(0, len(target), size):
            rows = features[begin : begin + size]
            logits = (
                onednn.multiply(rows, matrix)
                if buffer is None
                else torch.matmul(rows, matrix.T, out=buffer[: len(rows)])
            )
            loss, dlogits, bias_sum = chunk_loss(logits, bias, target[begin : begin + size], smoothing, needs_grad)
            total += loss
            if dfeatures is not None and dweight is not None and dlogits is not None:
                if is_onednn:
                    dfeatures[begin : begin + size] = onednn.multiply(dlogits, matrix.T)
                    dweight += onednn.weight_gradient(dlogits, rows)
                else:
                    torch.mm(dlogits, matrix, out=dfeatures[begin : begin + size])
                    if product is None:
                        dweight.addmm_(dlogits.T, rows)
                    else:
                        dweight += torch.mm(dlogits.T, rows, out=product)
            if dbias is not None and bias_sum is not None:
                dbias += bias_sum
        ctx.scale = 1 / max(len(target), 1)
        ctx.save_for_backward(dfeatures, dweight, dbias)
        return total * ctx.scale

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        scale = gradient * ctx.scale
        gradients = [
            None if dtype is None else (part.to(torch.promote_types(part.dtype, dtype)) * scale).to(dtype)
            for part, dtype in zip(ctx.saved_tensors, ctx.dtypes, strict=True)
        ]
        return *gradients, None, None, None, None, None


def _can_run_native(features: Tensor, target: Tensor, classes: int) -> bool:
    """Return whether the library can compute this; for targets out of range, PyTorch raises the error."""
    if (
        not target.numel()
        or target.dtype != torch.int64
        or not can_run_native(features, dtypes=(torch.bfloat16, torch.float32))
    ):
        return False
    minimum, maximum = torch.aminmax(target)
    return int(minimum) >= 0 and int(maximum) < classes


def _forward_amx(
    features: Tensor, weight: Tensor, bias: Tensor | None, target: Tensor, smoothing: float, needs_grad: bool
) -> tuple[Tensor, Tensor | None, Tensor | None, Tensor | None]:
    """Return the mean loss, and if needed its gradients for features, weight and bias, without a tensor of logits."""
    features, losses, scale = features.contiguous(), weight.new_empty(len(target)), 1 / len(target)
    dfeatures = torch.empty_like(features) if needs_grad else None
    dweight = torch.empty_like(weight) if needs_grad else None
    dbias = torch.zeros_like(bias) if needs_grad and bias is not None else None
    tensors = (features, weight, bias, target.contiguous(), losses, dfeatures, dweight, dbias)
    native.run("attent_linear_cross_entropy_amx", tensors, *features.shape, len(weight), needs_grad, smoothing, scale)
    return losses.sum() * scale, dfeatures, dweight, dbias


def _native_loss(logits: Tensor, bias: Tensor | None, target: Tensor, smoothing: float, needs_grad: bool) -> ChunkLoss:
    tokens, classes = logits.shape
    losses = torch.empty(tokens)
    shift = None if bias is None else bias.float().contiguous()
    bias_sums = torch.empty(-(-tokens // ROWS), classes) if needs_grad and bias is not None else None
    tensors = (logits, target.contiguous(), shift, losses, bias_sums)
    native.run(
        "attent_linear_cross_entropy",
        tensors,
        tokens,
        classes,
        logits.dtype == torch.bfloat16,
        needs_grad,
        smoothing,
    )
    return losses.sum(), logits if needs_grad else None, None if bias_sums is None else bias_sums.sum(0)


def reference_loss(
    logits: Tensor, bias: Tensor | None, target: Tensor, smoothing: float, needs_grad: bool
) -> ChunkLoss:
    """Compute the loss of some tokens' logits in plain PyTorch; see `ChunkLoss`."""
    scores = logits.to(torch.promote_types(logits.dtype, torch.float32))
    if bias is not None:
        scores += bias
    log_probs, target = F.log_softmax(scores, -1), target[:, None]
    loss = (smoothing - 1) * log_probs.gather(1, target).sum()
    # 0 · ∞ is NaN.
    if smoothing:
        loss -= smoothing * log_probs.mean(-1).sum()
    if not needs_grad:
        return loss, None, None
    dlogits = log_probs.exp_().sub_(smoothing / log_probs.shape[1])
    dlogits.scatter_add_(1, target, dlogits.new_full((1, 1), smoothing - 1).expand(target.shape))
    return loss, dlogits.to(logits.dtype), None if bias is None else dlogits.sum(0)
