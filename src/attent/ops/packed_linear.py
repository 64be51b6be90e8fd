"""Linear layers with packed weights, for inference: each row's result is independent of the other rows.

PyTorch's products sum in an order that depends on the number of rows, and are slower for the few rows of a search step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import chain
from operator import attrgetter, is_
from threading import Lock
from typing import Any, NamedTuple, TypeVar, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attent.ops import native
from attent.ops.eligibility import can_run_native
from attent.ops.mapped import give_back, is_mapped

T = TypeVar("T")
_versions, _shapes = attrgetter("_version"), attrgetter("shape")


class ModuleTree:
    """A snapshot of the modules below a root module, and of all their parameters.

    It holds no reference to the root.

    Args:
        root: the root module.
    """

    def __init__(self, root: nn.Module) -> None:
        self.modules = [*_descendants(root)]
        nodes = [root, *self.modules]
        self._tables = [table for module in nodes for table in (module._modules, module._parameters)]
        self._entries = [*chain.from_iterable(map(dict.values, self._tables))]
        self._hooks = [hooks for module in nodes for hooks in (module._forward_hooks, module._forward_pre_hooks)]
        self.parameters = [entry for entry in self._entries if isinstance(entry, Tensor)]
        self._derived: dict[Callable[..., Any], Any] = {}

    @property
    def is_current(self) -> bool:
        """True if no module or parameter has been replaced since."""
        entries = [*chain.from_iterable(map(dict.values, self._tables))]
        return len(entries) == len(self._entries) and all(map(is_, entries, self._entries))

    @property
    def has_hooks(self) -> bool:
        """True if one of the modules has a forward hook."""
        return any(self._hooks)

    def versions(self) -> list[object] | None:
        """Return values that change with the parameters: addresses, version counters and shapes.

        None if a parameter has no version counter.
        """
        try:
            counters = [*map(_versions, self.parameters)]
        except RuntimeError:
            # created in inference mode
            return None
        return [*map(Tensor.data_ptr, self.parameters), *counters, *map(_shapes, self.parameters)]

    def derive(self, find: Callable[..., T], *arguments: Any) -> T:
        """Return a function's result for these modules; it is computed once and must not refer to the root."""
        if find not in self._derived:
            self._derived[find] = find(*arguments)
        return self._derived[find]


def _descendants(module: nn.Module) -> Iterator[nn.Module]:
    for child in module._modules.values():
        if child is not None:
            yield child
            yield from _descendants(child)


# Columns of a panel, whose weights are stored side by side.
PANEL = 64
# 8-bit weights are padded to a multiple of this many features, as in int8.h.
STEP = 64
# Panels that are packed at a time, to limit memory.
CHUNK = 8


class WeightType(IntEnum):
    """The types in which packed weights are stored, as the library numbers them."""

    FLOAT32 = 0
    BFLOAT16 = 1
    INT8 = 2
    # rows are rounded by a factor of the matrix, in place of their largest number
    INT8_FIXED = 10


class Piece(NamedTuple):
    """A piece of packed weights: its size in bytes, and a function that writes it into a tensor of that size."""

    size: int
    write: Callable[[Tensor], None]


class _Packed(NamedTuple):
    parameters: list[Tensor]  # at packing, held so that their memory is not reused
    versions: list[object]  # their addresses, version counters and shapes
    weights: Tensor


@dataclass(eq=False)
class _Packing:
    """The packed weights of a module, stored as its attribute, with the data to check that they are current.

    Args:
        tree: the modules below it when they were last read.
        kind: the type of its packed weights.
        layer: the layer that shares the weight, if the module is an embedding.
        packed: the packed weights, once they exist.
        factor: the factor by which a layer's input is rounded to 8 bits; 0 if it is computed for each row.
    """

    tree: ModuleTree | None = None
    kind: WeightType = WeightType.FLOAT32
    layer: nn.Linear | None = None
    packed: _Packed | None = None
    factor: float = 0.0

    def __reduce__(self) -> tuple[type[_Packing], tuple[()]]:
        # a copy of a module packs its own weights
        return _Packing, ()


_lock = Lock()


def _packing_of(module: nn.Module) -> _Packing:
    packing = vars(module).get("_packing")
    # several threads may call this at the same time
    return vars(module).setdefault("_packing", _Packing()) if packing is None else packing


def module_tree(root: nn.Module) -> ModuleTree:
    """Return an up-to-date tree of a module."""
    packing = _packing_of(root)
    tree = packing.tree
    if tree is None or not tree.is_current:
        tree = packing.tree = ModuleTree(root)
    return tree


def packed_weights(module: nn.Module, pieces: Callable[[], Iterable[Piece]]) -> Tensor:
    """Return the pieces of a module, concatenated as bytes; they are packed again after a parameter has changed.

    PyTorch does not register changes made through `.data` or by fused optimizers: call `forget` after these.

    Args:
        module: the owner of the parameters.
        pieces: returns the pieces of the module.
    """
    tree = module_tree(module)
    versions = tree.versions()
    if versions is None:
        return _pack(pieces())
    packing = _packing_of(module)
    if (packed := packing.packed) is None or packed.versions != versions:
        # several threads may search at the same time
        with _lock:
            if (packed := packing.packed) is None or packed.versions != versions:
                parameters = [parameter.detach() for parameter in tree.parameters]
                packed = packing.packed = _Packed(parameters, versions, _pack(pieces()))
    return packed.weights


def size_of(pieces: Iterable[Piece]) -> int:
    """Return the total size of pieces, in bytes."""
    return sum(piece.size for piece in pieces)


def adopt(module: nn.Module, weights: Tensor) -> None:
    """Use existing packed weights for a module, as returned by `packed_weights`, until a parameter changes."""
    tree = module_tree(module)
    if (versions := tree.versions()) is not None:
        parameters = [parameter.detach() for parameter in tree.parameters]
        _packing_of(module).packed = _Packed(parameters, versions, weights)


def _pack(pieces: Iterable[Piece]) -> Tensor:
    pieces, start = [*pieces], 0
    packed = torch.empty(size_of(pieces), dtype=torch.uint8)
    for piece in pieces:
        piece.write(packed[start : start + piece.size])
        start += piece.size
    return packed


def forget(model: nn.Module) -> None:
    """Discard the packed weights of a model; each module is packed again at its next use."""
    for module in model.modules():
        if (packing := vars(module).get("_packing")) is not None:
            packing.packed = None


def vector(numbers: Tensor, size: int) -> Piece:
    """Return a piece with the numbers of a vector (size,), padded to whole panels."""

    def write(out: Tensor) -> None:
        out.zero_().view(torch.float32)[:size] = numbers

    return Piece(4 * padded(size), write)


def padded(columns: int) -> int:
    """Return the number of columns, rounded up to whole panels."""
    return -(-columns // PANEL) * PANEL


def product_size(depth: int, columns: int, kind: WeightType) -> int:
    """Return the size in bytes of the panels of a weight (N, K), including biases."""
    if kind >= WeightType.INT8:
        bytes_of_column = -(-depth // STEP) * STEP + (16 if kind is WeightType.INT8_FIXED else 12)
    else:
        bytes_of_column = (2 if kind is WeightType.BFLOAT16 else 4) * depth + 4
    return padded(columns) * bytes_of_column


def panels(
    weights: Sequence[Tensor], biases: Sequence[Tensor | None], kind: WeightType, factors: Sequence[float] = ()
) -> Piece:
    """Return a piece with concatenated weights (N, K) and their biases (N,) in panels of columns.

    With INT8_FIXED, `factors` are those of the weights; they need whole panels, otherwise all get the first one.
    """
    columns, depth = sum(map(len, weights)), weights[0].shape[1]

    def write(out: Tensor) -> None:
        weight, bias = weights[0] if len(weights) == 1 else torch.cat([*weights]), None
        if biases[0] is not None:
            bias = torch.cat([bias for bias in biases if bias is not None])
        columns = out.view(-1, product_size(depth, PANEL, kind))
        scales = torch.cat([_scales(part) for part in weights]) if kind >= WeightType.INT8 else weight[:, 0]
        for rows, scale, to in zip(
            *(x.split(CHUNK * PANEL) for x in (weight, scales)), columns.split(CHUNK), strict=True
        ):
            _write_panels(rows, scale, bias if bias is None else bias[: len(rows)], to, kind)
            if is_mapped(weight):
                give_back(rows)
            bias = bias if bias is None else bias[len(rows) :]
        if kind is WeightType.INT8_FIXED:
            of_panels = [factor for factor, part in zip(factors, weights, strict=True) for _ in part[::PANEL]]
            of_panels = of_panels if len(of_panels) == len(columns) else [factors[0]] * len(columns)
            columns[:, -8 * PANEL : -4 * PANEL].view(torch.float32).copy_(torch.tensor(of_panels)[:, None])
        if len(weights) > 1:
            for part in filter(is_mapped, weights):
                give_back(part)

    return Piece(product_size(depth, columns, kind), write)


def native_kind(kind: WeightType) -> int:
    """Return the library's number for a weight type, which for 8 bits also identifies the kernel."""
    return kind + native.int8_kernel() if kind >= WeightType.INT8 else int(kind)


def kind_of_native(number: int) -> WeightType:
    """Return the weight type for a number of the library."""
    return WeightType(max(kind for kind in WeightType if kind <= number))


def _scales(weight: Tensor) -> Tensor:
    """Return the scale of 8 bits of each column of a product, for a weight (N, K): a 127th of its largest number.

    A weight that was rounded to 8 bits as a whole before keeps its numbers, whose scale is the smallest of them.
    """
    chunks, largest, smallest = weight.split(CHUNK * PANEL), list[Tensor](), list[Tensor]()
    for chunk in chunks:
        sizes = chunk.abs()
        largest.append(sizes.amax(-1))
        smallest.append(sizes.where(sizes > 0, torch.inf).amin())
        if is_mapped(weight):
            give_back(chunk)
    scales, step = torch.cat(largest) / 127, torch.stack(smallest).amin()
    is_rounded = bool(scales.amax() < step * 1.001) and all(bool(_is_whole(chunk / step)) for chunk in chunks)
    return step.expand(len(weight)) if is_rounded else scales


def _is_whole(numbers: Tensor) -> Tensor:
    return (numbers - numbers.round()).abs().amax() < 1e-3


def _write_panels(weight: Tensor, scale: Tensor, bias: Tensor | None, out: Tensor, kind: WeightType) -> None:
    """Write a weight (N, K) and its bias into panels (P, bytes); with 8 bits, its columns have these scales (N,)."""
    missing, depth = -len(weight) % PANEL, weight.shape[1]
    out[:, -4 * PANEL :].view(torch.float32).copy_(
        torch.zeros(1) if bias is None else F.pad(bias, (0, missing)).view(-1, PANEL)
    )
    panels = F.pad(weight, (0, 0, 0, missing)).view(-1, PANEL, depth)
    if kind >= WeightType.INT8:
        end = out.shape[1] - (4 * PANEL if kind is WeightType.INT8_FIXED else 0)
        _write_int8(panels, F.pad(scale, (0, missing)).view(-1, PANEL, 1), out[:, :end])
        return
    by_feature, dtype = panels.transpose(1, 2), torch.bfloat16 if kind is WeightType.BFLOAT16 else torch.float32
    out[:, : -4 * PANEL].view(dtype).view(by_feature.shape).copy_(by_feature)


def _write_int8(weight: Tensor, scale: Tensor, out: Tensor) -> None:
    """Write panels (P, 64, K) rounded to 8 bits by their scales (P, 64, 1).

    Four features of each column are stored side by side, followed by the columns' scales and −128 times their sums.
    """
    rounded = F.pad((weight / scale.where(scale > 0, 1.0)).round_(), (0, -weight.shape[-1] % STEP))
    by_group = rounded.unflatten(-1, (-1, 4)).transpose(1, 2)
    out[:, : -12 * PANEL].view(torch.int8).view(by_group.shape).copy_(by_group)
    out[:, -12 * PANEL : -8 * PANEL].view(torch.float32).copy_(scale[..., 0])
    out[:, -8 * PANEL : -4 * PANEL].view(torch.int32).copy_(-128 * rounded.sum(-1))


def set_kind(model: nn.Module, kind: WeightType) -> None:
    """Set the storage type of a model's packed weights."""
    forget(model)
    layers = {id(module.weight): module for module in model.modules() if isinstance(module, nn.Linear)}
    for module in model.modules():
        packing = _packing_of(module)
        packing.kind = kind
        if not isinstance(module, nn.Linear):
            packing.layer = layers.get(id(getattr(module, "weight", None)))


def set_factor(layer: nn.Linear, factor: float) -> None:
    """Set the factor by which a layer's input is rounded, for INT8_FIXED; 0 computes it for each row."""
    _packing_of(layer).factor = factor


def factors(layers: Iterable[nn.Module]) -> list[float]:
    """Return the factors of layers that `set_factor` set."""
    return [_packing_of(layer).factor for layer in layers]


def kind_of(module: nn.Module) -> WeightType:
    """Return the type of a module's packed weights."""
    return _packing_of(module).kind


def layer_of(embedding: nn.Module) -> nn.Linear | None:
    """Return the layer that shares an embedding's weight, so that its packed columns are the embedding's rows."""
    layer = _packing_of(embedding).layer
    return layer if layer is not None and layer.weight is embedding.weight else None


def table(module: nn.Module) -> Tensor:
    """Return the rows of an embedding in the form that the library reads.

    float32 rows are returned unchanged; other types are packed like the columns of a layer.
    """
    if kind_of(module) is WeightType.FLOAT32:
        return cast(Tensor, module.weight)
    return packed_columns(layer_of(module) or module)


def packed_columns(module: nn.Module) -> Tensor:
    """Return the packed weight and bias of a layer, or the packed weight of an embedding, with its rows as columns."""
    return packed_weights(module, lambda: columns_of(module))


def columns_of(module: nn.Module) -> list[Piece]:
    """Return the pieces of a layer, or those of an embedding, with its rows as columns."""
    bias = cast(Tensor | None, getattr(module, "bias", None))
    return [panels([cast(Tensor, module.weight)], [bias], kind_of(module), factors([module]))]


def is_there() -> bool:
    """Return whether the compiled library, which multiplies packed weights, is available."""
    return native.library() is not None


def is_batch_invariant(layer: nn.Linear, *features: Tensor) -> bool:
    """Return whether rows of `linear` are currently independent of each other; search then need not pad its batches."""
    return type(layer) is nn.Linear and can_run_native(layer.weight, *features, in_inference=True)


def linear(layer: nn.Linear, features: Tensor) -> Tensor:
    """Return `layer(features)`, (…, K) → (…, N); in the library, each row is independent of the others."""
    if not is_batch_invariant(layer, features):
        return layer(features)
    return product(
        packed_columns(layer), features, features.new_empty(*features.shape[:-1], layer.out_features), kind_of(layer)
    )


def product(packed: Tensor, features: Tensor, out: Tensor, kind: WeightType) -> Tensor:
    """Multiply features (…, K) by panels, add the biases, and write the result to contiguous `out`, (…, N)."""
    depth, rows = features.shape[-1], features.contiguous()
    native.run(
        "attent_packed_gemm", (rows, packed, out), rows.numel() // depth, depth, out.shape[-1], native_kind(kind)
    )
    return out
