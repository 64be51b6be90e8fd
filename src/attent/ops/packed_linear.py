"""Weights laid out as the extension's loops read them, and products with them, each row's numbers its own.

PyTorch's products sum in another order for another number of rows, and for the few rows of a search's step take longer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attent.ops import native
from attent.ops.eligibility import can_run_native

# Columns of a panel, whose weights lie beside each other; every piece is as long as some panels of one feature.
PANEL = 64

# What was laid out of each module's parameters, and what these were: the tensor, kept so that its memory is not another's, where it lies,
# and how often it had been written to.
_made: WeakKeyDictionary[nn.Module, tuple[list[tuple[Tensor, int, int]], Tensor]] = WeakKeyDictionary()


def possible(parameter: Tensor) -> bool:
    """Whether the extension computes with parameters like this one: nobody wants gradients, a graph or another precision."""
    return torch.is_inference_mode_enabled() and not torch.is_autocast_enabled("cpu") and can_run_native(parameter)


def laid_out(module: nn.Module, pieces: Callable[[], Iterable[Tensor]]) -> Tensor:
    """The pieces of a module end to end, made again when a parameter has changed.

    PyTorch does not count changes through `.data` nor those by fused optimizers: `forget` after such.

    Args:
        module: whose parameters they are made of.
        pieces: makes them.
    """
    parameters = [*_parameters(module)]
    known = _made.get(module)
    if known is not None and len(known[0]) == len(parameters):
        for parameter, (kept, place, version) in zip(parameters, known[0], strict=True):
            if parameter.data_ptr() != place or parameter._version != version or kept.shape != parameter.shape:
                break
        else:
            return known[1]
    together = torch.cat([*pieces()])
    if not any(parameter.is_inference() for parameter in parameters):
        _made[module] = [(parameter.detach(), parameter.data_ptr(), parameter._version) for parameter in parameters], together
    return together


def forget(model: nn.Module) -> None:
    """Lay everything out again when it is needed next."""
    for module in model.modules():
        _made.pop(module, None)


def _parameters(module: nn.Module) -> Iterator[Tensor]:
    """Its parameters and its children's; `module.parameters()` takes ten times as long."""
    for parameter in module._parameters.values():
        if parameter is not None:
            yield parameter
    for child in module._modules.values():
        if child is not None:
            yield from _parameters(child)


def vector(numbers: Tensor | None, size: int) -> Tensor:
    """Numbers with zeros behind them; nothing but zeros where there are none."""
    lacking = -size % PANEL
    return torch.zeros(size + lacking) if numbers is None else F.pad(numbers, (0, lacking))


def padded(columns: int) -> int:
    """So many columns, and those that fill up the last panel."""
    return -(-columns // PANEL) * PANEL


def panels(weight: Tensor, bias: Tensor | None) -> list[Tensor]:
    """A weight (N, K) in panels of columns, and the bias (N,)."""
    columns, depth = weight.shape
    packed = F.pad(weight, (0, 0, 0, -columns % PANEL)).view(-1, PANEL, depth).transpose(1, 2)
    return [packed.flatten(), vector(bias, columns)]


def linear(layer: nn.Linear, features: Tensor) -> Tensor:
    """`layer(features)`, (…, K) → (…, N); by the extension where it can, then each row's numbers are its own."""
    if type(layer) is not nn.Linear or not possible(layer.weight) or features.dtype != torch.float32:
        return layer(features)
    weights = laid_out(layer, lambda: panels(layer.weight, layer.bias))
    return product(weights, features, features.new_empty(*features.shape[:-1], layer.out_features))


def product(packed: Tensor, features: Tensor, to: Tensor) -> Tensor:
    """Features (…, K) times panels, which are followed by the bias, put to where there is room for them, (…, N) without gaps."""
    depth, rows = features.shape[-1], features.contiguous()
    native.run("attent_products", (rows, packed, to), rows.numel() // depth, depth, to.shape[-1])
    return to
