"""Linear layers with packed weights, for inference: each row's result is independent of the other rows.

PyTorch's products sum in another order for another number of rows, and take longer for the few rows of a search step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attent.ops import native
from attent.ops.eligibility import can_run_native

# Columns of a panel, whose weights lie side by side; every piece is as long as some panels of one feature.
PANEL = 64


class _Packed(NamedTuple):
    parameters: list[Tensor]  # at packing, held so that their memory is not reused
    versions: list[tuple[int, int, torch.Size]]  # their addresses, version counters and shapes
    weights: Tensor


_cache: WeakKeyDictionary[nn.Module, _Packed] = WeakKeyDictionary()


def packed_weights(module: nn.Module, pieces: Callable[[], Iterable[Tensor]]) -> Tensor:
    """Return the pieces of a module end to end, packed again when a parameter has changed.

    PyTorch does not count changes through `.data` nor those by fused optimizers: call `forget` after such.

    Args:
        module: the owner of the parameters.
        pieces: computes them.
    """
    parameters = [*_parameters(module)]
    if any(parameter.is_inference() for parameter in parameters):
        return torch.cat([*pieces()])
    versions = [(parameter.data_ptr(), parameter._version, parameter.shape) for parameter in parameters]
    if module not in _cache or _cache[module].versions != versions:
        _cache[module] = _Packed([parameter.detach() for parameter in parameters], versions, torch.cat([*pieces()]))
    return _cache[module].weights


def forget(model: nn.Module) -> None:
    """Pack every module of a model again at its next use."""
    for module in model.modules():
        _cache.pop(module, None)


def _parameters(module: nn.Module) -> Iterator[Tensor]:
    """Yield a module's parameters and its children's; `module.parameters()` takes ten times as long."""
    for parameter in module._parameters.values():
        if parameter is not None:
            yield parameter
    for child in module._modules.values():
        if child is not None:
            yield from _parameters(child)


def vector(numbers: Tensor | None, size: int) -> Tensor:
    """Return numbers padded with zeros to whole panels; all zeros for None."""
    return torch.zeros(padded(size)) if numbers is None else F.pad(numbers, (0, -size % PANEL))


def padded(columns: int) -> int:
    """Return the number of columns in whole panels."""
    return -(-columns // PANEL) * PANEL


def panels(weight: Tensor, bias: Tensor | None) -> list[Tensor]:
    """Return a weight (N, K) in panels of columns, and the bias (N,)."""
    columns, depth = weight.shape
    packed = F.pad(weight, (0, 0, 0, -columns % PANEL)).view(-1, PANEL, depth).transpose(1, 2)
    return [packed.flatten(), vector(bias, columns)]


def is_batch_invariant(layer: nn.Linear, *features: Tensor) -> bool:
    """Return whether a row of `linear` is now independent of the others; search then need not fill up its batches."""
    return type(layer) is nn.Linear and can_run_native(layer.weight, *features, in_inference=True)


def linear(layer: nn.Linear, features: Tensor) -> Tensor:
    """Return `layer(features)`, (…, K) → (…, N); in the library each row is independent of the others."""
    if not is_batch_invariant(layer, features):
        return layer(features)
    weights = packed_weights(layer, lambda: panels(layer.weight, layer.bias))
    return product(weights, features, features.new_empty(*features.shape[:-1], layer.out_features))


def product(packed: Tensor, features: Tensor, out: Tensor) -> Tensor:
    """Write features (…, K) times panels, plus the bias that follows these, to contiguous `out`, (…, N)."""
    depth, rows = features.shape[-1], features.contiguous()
    native.run("attent_packed_gemm", (rows, packed, out), rows.numel() // depth, depth, out.shape[-1])
    return out
