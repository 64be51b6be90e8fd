"""Linear layers of the same features, side by side: in training under bfloat16, where the processor has matrix tiles, in a few sweeps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attent.ops import native
from attent.ops.autograd import double_backward, needs_double_backward
from attent.ops.eligibility import can_use_amx

# What the extension's tiles divide, the layers it takes side by side, and weights above which its sums over tokens would take much memory.
WIDTH, LAYERS, LARGEST = 32, 3, 2**20


def project(features: Tensor, *layers: nn.Linear) -> tuple[Tensor, ...]:
    """x Wᵀ + b of each layer: (…, E) → (…, each layer's width).

    While training in bfloat16 autocast on a CPU with matrix tiles the extension computes them: features are read once for all
    layers, weights and their gradients stay float32, and so does a bias. Elsewhere each layer computes its own.

    Args:
        features: x, (…, E).
        layers: of the same features; at most three are computed together.
    """
    if not serves(features, *layers):
        return tuple(layer(features) for layer in layers)
    found: tuple[Tensor, ...] = ()
    for first in range(0, len(layers), LAYERS):
        some = layers[first : first + LAYERS]
        parameters = [one for layer in some for one in (layer.weight, layer.bias)]
        # made here, as what is kept for second derivatives must be an argument itself
        found += _Projections.apply(features.to(torch.bfloat16).contiguous(), *parameters)
    return found


def serves(features: Tensor, *layers: nn.Linear) -> bool:
    """Whether the extension computes these: in training alone, and where nothing but the layers' own formula is to happen."""
    if not torch.is_grad_enabled():
        return False
    if not torch.is_autocast_enabled("cpu") or torch.get_autocast_dtype("cpu") != torch.bfloat16:
        return False
    if type(features) is not Tensor or not features.numel() or not can_use_amx(features):
        return False
    return all(plain(layer, features.shape[-1]) for layer in layers)


def plain(layer: nn.Module, width: int) -> bool:
    """Whether a layer is PyTorch's own, of so many features, in training, of sizes that the extension takes."""
    if type(layer) is not nn.Linear or not layer.training or layer._forward_hooks or layer._forward_pre_hooks or layer._backward_hooks:
        return False
    if layer.in_features != width or width % WIDTH or layer.out_features % WIDTH or layer.weight.numel() > LARGEST:
        return False
    given = [layer.weight] if layer.bias is None else [layer.weight, layer.bias]
    return all(
        type(one) is nn.Parameter and one.dtype == torch.float32 and one.device.type == "cpu" and one.is_contiguous() for one in given
    )


def products(features: Tensor, weights: Sequence[Tensor], biases: Sequence[Tensor | None], *, relu: bool = False) -> tuple[Tensor, ...]:
    """x Wᵀ + b, (…, W's rows) in bfloat16, of bfloat16 x and up to three float32 W and b; with relu, nothing below zero."""
    found = tuple(features.new_empty(*features.shape[:-1], len(weight)) for weight in weights)
    nothing = features.new_empty(0)
    given = [part for parts in zip(weights, biases, found, strict=True) for part in parts]
    given += [nothing] * (3 * (LAYERS - len(weights)))
    tensors = (features, *(nothing if one is None else one for one in given))
    sizes = features.numel() // features.shape[-1], features.shape[-1]
    native.run("attent_linear", tensors, *sizes, *_padded([len(weight) for weight in weights]), relu)
    return found


def back(slopes: Sequence[Tensor], weights: Sequence[Tensor], above: Tensor | None = None) -> Tensor:
    """Σ dy W in bfloat16, the gradient of what several layers read; zero where `above` is given and not above zero."""
    width = weights[0].shape[1]
    found = slopes[0].new_empty(*slopes[0].shape[:-1], width)
    nothing = found.new_empty(0)
    given = [part for parts in zip(slopes, weights, strict=True) for part in parts] + [nothing] * (2 * (LAYERS - len(weights)))
    number = found.numel() // width
    sizes = _padded([len(weight) for weight in weights])
    native.run("attent_linear_inputs", (*given, nothing if above is None else above, found), number, *sizes, width)
    return found


def of_parameters(slope: Tensor, features: Tensor, bias: bool) -> tuple[Tensor, Tensor | None]:
    """dyᵀ x and the sum of dy over all tokens, in float32: the gradients of a layer's weight and bias."""
    outer, inner = slope.shape[-1], features.shape[-1]
    of_weight = slope.new_empty(outer, inner, dtype=torch.float32)
    of_bias = slope.new_empty(outer if bias else 0, dtype=torch.float32)
    native.run("attent_linear_weights", (slope, features, of_weight, of_bias), slope.numel() // outer, outer, inner)
    return of_weight, of_bias if bias else None


def linear(features: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """x Wᵀ + b in the features' type, in plain PyTorch."""
    return F.linear(features, weight.to(features.dtype), None if bias is None else bias.to(features.dtype))


def _padded(sizes: list[int]) -> list[int]:
    return sizes + [0] * (LAYERS - len(sizes))


class _Projections(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, features: Tensor, *parameters: Tensor | None) -> tuple[Tensor, ...]:
        ctx.save_for_backward(features, *parameters)
        return products(features, parameters[::2], parameters[1::2])  # pyright: ignore[reportArgumentType]

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor | None, ...]:
        features, *parameters = ctx.saved_tensors
        weights, biases = parameters[::2], parameters[1::2]
        if needs_double_backward(*slopes):
            return double_backward(_all, ctx.saved_tensors, slopes, ctx.needs_input_grad)
        slopes = tuple(slope.contiguous() for slope in slopes)
        found = [back(slopes, weights) if ctx.needs_input_grad[0] else None]
        for slope, bias in zip(slopes, biases, strict=True):
            found += of_parameters(slope, features, bias is not None)
        return tuple(found)


def _all(features: Tensor, *parameters: Tensor | None) -> tuple[Tensor, ...]:
    pairs = zip(parameters[::2], parameters[1::2], strict=True)
    return tuple(linear(features, weight, bias) for weight, bias in pairs)  # pyright: ignore[reportArgumentType]
