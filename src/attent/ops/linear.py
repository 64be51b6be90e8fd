"""Linear layers over the same features, and the feed-forward network, for training.

The library used depends on the processor and the dtype: oneDNN for float32 on some processors, and the compiled library
under bfloat16 autocast on processors with matrix tiles (AMX). The latter reads features once for all layers; weights,
biases and their gradients stay float32.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attent.ops import native, onednn
from attent.ops.autograd import double_backward, needs_double_backward
from attent.ops.eligibility import AMX_WIDTH, can_use_amx

# Layers that the library computes together, and the number of weights beyond which its sums over tokens need too much
# memory.
LAYERS, MAX_WEIGHTS = 3, 2**20


def linear(features: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Return x Wᵀ + b, (…, E) → (…, N), as `F.linear` does."""
    if onednn.can_use_onednn(features, weight, bias) and features.shape[-1] == weight.shape[1]:
        return onednn.linear(features, weight, bias)
    return F.linear(features, weight, bias)


def project(features: Tensor, *layers: nn.Linear) -> tuple[Tensor, ...]:
    """Return x Wᵀ + b of each layer: (…, E) → (…, the layer's width).

    Args:
        features: x, (…, E).
        layers: the layers that read these features; at most three are computed together.
    """
    if not _can_use_amx(features, *layers):
        return tuple(
            linear(features, layer.weight, layer.bias) if _is_plain(layer) else layer(features) for layer in layers
        )
    results: tuple[Tensor, ...] = ()
    for begin in range(0, len(layers), LAYERS):
        parameters = [parameter for layer in layers[begin : begin + LAYERS] for parameter in (layer.weight, layer.bias)]
        # Converted here: second derivatives need the saved tensors to be the function's own arguments.
        results += _Linear.apply(features.to(torch.bfloat16).contiguous(), *parameters)
    return results


def feed_forward(features: Tensor, widen: nn.Linear, narrow: nn.Linear, activation: Any) -> Tensor:
    """Return activation(x W₁ + b₁) W₂ + b₂, (…, E) → (…, E); relu is computed within the product."""
    parameters = widen.weight, widen.bias, narrow.weight, narrow.bias
    if activation is F.relu and _can_use_amx(features, widen) and _is_tileable(narrow):
        return _FeedForward.apply(features.to(torch.bfloat16).contiguous(), *parameters)
    if activation is F.relu and _is_plain(widen) and _is_plain(narrow) and onednn.can_use_onednn(features, *parameters):
        return onednn.feed_forward(features, *parameters)
    return project(activation(project(features, widen)[0]), narrow)[0]


def _can_use_amx(features: Tensor, *layers: nn.Linear) -> bool:
    """Return whether AMX can be used: gradients recorded under bfloat16 autocast, and plain layers without hooks."""
    return (
        torch.is_grad_enabled()
        and torch.is_autocast_enabled("cpu")
        and torch.get_autocast_dtype("cpu") == torch.bfloat16
        and type(features) is Tensor
        and features.numel() > 0
        and can_use_amx(features)
        and all(_is_tileable(layer) and layer.in_features == features.shape[-1] for layer in layers)
    )


def _is_plain(layer: nn.Module) -> bool:
    """Return whether a layer is one of PyTorch's own classes, in training mode and without hooks."""
    has_hooks = layer._forward_hooks or layer._forward_pre_hooks or layer._backward_hooks or layer._backward_pre_hooks
    return type(layer) is nn.Linear and layer.training and not has_hooks


def _is_tileable(layer: nn.Linear) -> bool:
    """Return whether a layer is plain, with a size and dtype that the library supports."""
    return (
        _is_plain(layer)
        and layer.in_features % AMX_WIDTH == layer.out_features % AMX_WIDTH == 0
        and layer.weight.numel() <= MAX_WEIGHTS
        and all(parameter is None or type(parameter) is nn.Parameter for parameter in (layer.weight, layer.bias))
        and can_use_amx(layer.weight, layer.weight, layer.bias)
    )


def _forward(
    features: Tensor, weights: Sequence[Tensor], biases: Sequence[Tensor | None], *, relu: bool = False
) -> tuple[Tensor, ...]:
    """Return x Wᵀ + b in bfloat16, (…, rows of W), for bfloat16 x and up to three float32 W and b.

    If `relu` is set, negative results are replaced by zero.
    """
    results = tuple(features.new_empty(*features.shape[:-1], len(weight)) for weight in weights)
    operands = [operand for operands in zip(weights, biases, results, strict=True) for operand in operands]
    sizes = features.numel() // features.shape[-1], features.shape[-1]
    native.run("attent_linear", (features, *_padded(operands, 3 * LAYERS)), *sizes, *_sizes(weights), relu)
    return results


def _input_gradient(doutputs: Sequence[Tensor], weights: Sequence[Tensor], inputs: Tensor | None = None) -> Tensor:
    """Return Σ dy W in bfloat16; zero where `inputs`, the output of a relu, is given and not positive."""
    width = weights[0].shape[1]
    dinputs = doutputs[0].new_empty(*doutputs[0].shape[:-1], width)
    operands = [operand for operands in zip(doutputs, weights, strict=True) for operand in operands]
    tensors = (*_padded(operands, 2 * LAYERS), inputs, dinputs)
    native.run("attent_linear_input_gradients", tensors, dinputs.numel() // width, *_sizes(weights), width)
    return dinputs


def _parameter_gradients(doutput: Tensor, features: Tensor, has_bias: bool) -> tuple[Tensor, Tensor | None]:
    """Return dyᵀ x and the sum of dy over all tokens, in float32."""
    rows, columns = doutput.shape[-1], features.shape[-1]
    dweight = doutput.new_empty(rows, columns, dtype=torch.float32)
    dbias = doutput.new_empty(rows, dtype=torch.float32) if has_bias else None
    native.run(
        "attent_linear_weight_gradients", (doutput, features, dweight, dbias), doutput.numel() // rows, rows, columns
    )
    return dweight, dbias


def _padded(operands: list[Any], count: int) -> list[Any]:
    return operands + [None] * (count - len(operands))


def _sizes(weights: Sequence[Tensor]) -> list[int]:
    return [len(weight) for weight in weights] + [0] * (LAYERS - len(weights))


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, features: Tensor, *parameters: Tensor | None) -> tuple[Tensor, ...]:
        ctx.save_for_backward(features, *parameters)
        return _forward(features, parameters[::2], parameters[1::2])  # pyright: ignore[reportArgumentType]

    @staticmethod
    def backward(ctx: Any, *doutputs: Tensor) -> tuple[Tensor | None, ...]:
        features, *parameters = ctx.saved_tensors
        if needs_double_backward(*doutputs):
            return double_backward(_reference, ctx.saved_tensors, doutputs, ctx.needs_input_grad)
        weights, biases = parameters[::2], parameters[1::2]
        doutputs = tuple(doutput.contiguous() for doutput in doutputs)
        gradients = [_input_gradient(doutputs, weights) if ctx.needs_input_grad[0] else None]
        for doutput, bias in zip(doutputs, biases, strict=True):
            gradients += _parameter_gradients(doutput, features, bias is not None)
        return tuple(gradients)


def _reference(features: Tensor, *parameters: Tensor | None) -> tuple[Tensor, ...]:
    pairs = zip(parameters[::2], parameters[1::2], strict=True)
    return tuple(onednn.plain_linear(features, weight, bias) for weight, bias in pairs)  # pyright: ignore[reportArgumentType]


class _FeedForward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, features: Tensor, *parameters: Tensor | None) -> Tensor:
        widen, widen_bias, narrow, narrow_bias = parameters
        assert widen is not None and narrow is not None
        (hidden,) = _forward(features, (widen,), (widen_bias,), relu=True)
        ctx.save_for_backward(features, *parameters, hidden)
        return _forward(hidden, (narrow,), (narrow_bias,))[0]

    @staticmethod
    def backward(ctx: Any, doutput: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        *inputs, hidden = ctx.saved_tensors
        if needs_double_backward(doutput):
            return double_backward(onednn.plain_feed_forward, inputs, doutput, ctx.needs_input_grad)
        features, widen, widen_bias, narrow, narrow_bias = inputs
        doutput = doutput.contiguous()
        dnarrow = _parameter_gradients(doutput, hidden, narrow_bias is not None)
        dhidden = _input_gradient((doutput,), (narrow,), inputs=hidden)
        dwiden = _parameter_gradients(dhidden, features, widen_bias is not None)
        return _input_gradient((dhidden,), (widen,)), *dwiden, *dnarrow
