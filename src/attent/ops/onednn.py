"""Float32 products by oneDNN, which PyTorch ships alongside MKL: about twice as fast where MKL does not use AVX-512.

The last bits of a row depend on the number of rows, so it is used only in training, and by `F.linear` in models that
request it.
"""

import platform
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attent import system
from attent.ops.autograd import double_backward, needs_double_backward
from attent.ops.eligibility import can_run_custom_function

# Smaller products take about 10 µs, no longer than the overhead of calling the kernel from Python.
MULTIPLICATIONS = 2**20
# The choices of `using_onednn`; the last one applies.
_choices: list[bool] = []


@cache
def is_faster() -> bool:
    """Return whether oneDNN is the faster library on this machine.

    It is faster on AMD processors with AVX-512 if PyTorch uses MKL. With only AVX2, MKL is as fast, or up to 1.7 times
    faster (benchmarks/results/training.md).
    """
    if not torch.backends.mkl.is_available() or not hasattr(torch.ops.mkldnn, "_linear_pointwise"):
        return False
    processor = Path("/proc/cpuinfo").read_text(encoding="utf-8") if system.IS_LINUX else platform.processor()
    return torch.backends.cpu.get_cpu_capability().startswith("AVX512") and "AuthenticAMD" in processor


def prefers_onednn() -> bool:
    """Return whether to prefer oneDNN for products: the choice of `using_onednn`, else whether it is faster."""
    return (_choices[-1] and hasattr(torch.ops.mkldnn, "_linear_pointwise")) if _choices else is_faster()


@contextmanager
def using_onednn(choice: bool) -> Iterator[None]:
    """Use oneDNN, or MKL, within the block, in all threads."""
    _choices.append(choice)
    try:
        yield
    finally:
        _choices.pop()


def can_use_onednn(*tensors: Tensor | None) -> bool:
    """Return whether oneDNN can compute with these tensors: float32 on a CPU that prefers it, recording gradients.

    No tracer, dispatch mode or transform may need to see the computation.
    """
    return (
        torch.is_grad_enabled()
        and can_run_custom_function()
        and prefers_onednn()
        and torch.backends.mkldnn.enabled
        and not torch.is_autocast_enabled("cpu")
        and not torch.jit.is_tracing()  # pyright: ignore[reportPrivateImportUsage]
        and not torch._C._len_torch_dispatch_stack()  # pyright: ignore[reportAttributeAccessIssue]
        and all(tensor is None or _is_plain(tensor) for tensor in tensors)
    )


def _is_plain(tensor: Tensor) -> bool:
    is_dense = type(tensor) in (Tensor, nn.Parameter) and tensor.layout == torch.strided
    return is_dense and tensor.device.type == "cpu" and tensor.dtype == torch.float32 and tensor.numel() > 0


def linear(features: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Return x Wᵀ + b, (…, K) → (…, N); requires `can_use_onednn`."""
    return _OnednnLinear.apply(features, weight, bias)


def feed_forward(
    features: Tensor, widen: Tensor, widen_bias: Tensor | None, narrow: Tensor, narrow_bias: Tensor | None
) -> Tensor:
    """Return max(0, x W₁ᵀ + b₁) W₂ᵀ + b₂, (…, E) → (…, N); requires `can_use_onednn`.

    The relu is fused into the first product.
    """
    return _OnednnFeedForward.apply(features, widen, widen_bias, narrow, narrow_bias)


def multiply(features: Tensor, weight: Tensor, bias: Tensor | None = None, *, relu: bool = False) -> Tensor:
    """Return x Wᵀ + b, or its relu, without recording gradients: (…, K) and (N, K) → (…, N)."""
    rows = features.reshape(-1, features.shape[-1])
    # For slices of a matrix, oneDNN falls back to its reference kernel, which is thousands of times slower.
    if not weight.is_contiguous() and not weight.T.is_contiguous():
        weight = weight.contiguous()
    product = torch.ops.mkldnn._linear_pointwise(rows, weight, bias, "relu" if relu else "none", [], "")
    return product.view(*features.shape[:-1], len(weight))


def mm(left: Tensor, right: Tensor, out: Tensor | None = None) -> Tensor:
    """Return the product of two matrices like `torch.mm`, in training, without recording gradients."""
    if left.dtype != torch.float32 or not left.numel() or not prefers_onednn() or not torch.backends.mkldnn.enabled:
        return torch.mm(left, right, out=out)
    product = multiply(left, right.T)
    return product if out is None else out.copy_(product)


def can_serve(left: Tensor, right: Tensor, bias: Tensor | None = None) -> bool:
    """Return whether oneDNN can multiply two matrices, and the product is large enough to be worth the call."""
    return (
        left.dim() == right.dim() == 2
        and left.shape[1] == right.shape[0]
        and left.numel() * right.shape[1] >= MULTIPLICATIONS
        and (bias is None or bias.shape == right.shape[1:])
        and prefers_onednn()
        and torch.backends.mkldnn.enabled
        and all(tensor is None or _is_plain(tensor) for tensor in (left, right, bias))
    )


def product(left: Tensor, right: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return the contiguous product of two matrices, plus a bias per column; requires `can_serve`."""
    if bias is None and left.T.is_contiguous() and not left.is_contiguous():
        # the gradient of a weight, dyᵀ x
        return weight_gradient(left.T, right).contiguous()
    return multiply(left, right.T, bias)


def weight_gradient(doutput: Tensor, features: Tensor) -> Tensor:
    """Return dyᵀ x, summed over all tokens: (…, N) and (…, K) → (N, K), transposed in memory if N > K."""
    columns, rows = doutput.reshape(-1, doutput.shape[-1]).T, features.reshape(-1, features.shape[-1]).T
    # The product with fewer rows than columns is faster.
    return multiply(columns, rows) if len(columns) <= len(rows) else multiply(rows, columns).T


class _OnednnLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, features: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(features, weight, bias)
        return multiply(features, weight, bias)

    @staticmethod
    def backward(ctx: Any, doutput: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        features, weight, bias = ctx.saved_tensors
        needs_grad = ctx.needs_input_grad
        if needs_double_backward(doutput):
            return double_backward(F.linear, (features, weight, bias), doutput, needs_grad)
        dfeatures = multiply(doutput, weight.T) if needs_grad[0] else None
        return dfeatures, *_parameter_gradients(doutput, features, needs_grad[1:])


class _OnednnFeedForward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, features: Tensor, *parameters: Tensor | None) -> Tensor:
        widen, widen_bias, narrow, narrow_bias = parameters
        assert widen is not None and narrow is not None
        hidden = multiply(features, widen, widen_bias, relu=True)
        ctx.save_for_backward(features, *parameters, hidden)
        return multiply(hidden, narrow, narrow_bias)

    @staticmethod
    def backward(ctx: Any, doutput: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        *inputs, hidden = ctx.saved_tensors
        needs_grad = ctx.needs_input_grad
        if needs_double_backward(doutput):
            return double_backward(plain_feed_forward, inputs, doutput, needs_grad)
        features, widen, _, narrow, _ = inputs
        dhidden = multiply(doutput, narrow.T)
        torch.ops.aten.threshold_backward.grad_input(dhidden, hidden, 0, grad_input=dhidden)
        dfeatures = multiply(dhidden, widen.T) if needs_grad[0] else None
        return (
            dfeatures,
            *_parameter_gradients(dhidden, features, needs_grad[1:3]),
            *_parameter_gradients(doutput, hidden, needs_grad[3:]),
        )


def _parameter_gradients(
    doutput: Tensor, features: Tensor, needs_grad: Sequence[bool]
) -> tuple[Tensor | None, Tensor | None]:
    """Return dyᵀ x and the sum of dy over all tokens; None for gradients that are not needed."""
    dweight = weight_gradient(doutput, features).contiguous() if needs_grad[0] else None
    return dweight, doutput.reshape(-1, doutput.shape[-1]).sum(0) if needs_grad[1] else None


def plain_linear(features: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Compute `linear` in plain PyTorch, in the type of the features."""
    return F.linear(features, weight.to(features.dtype), None if bias is None else bias.to(features.dtype))


def plain_feed_forward(
    features: Tensor, widen: Tensor, widen_bias: Tensor | None, narrow: Tensor, narrow_bias: Tensor | None
) -> Tensor:
    """Compute `feed_forward` in plain PyTorch, in the type of the features."""
    return plain_linear(F.relu(plain_linear(features, widen, widen_bias)), narrow, narrow_bias)
