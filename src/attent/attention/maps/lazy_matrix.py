"""A matrix of queries and keys whose rows are computed when they are read."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from types import EllipsisType
from typing import TypeVar

import torch
from torch import Tensor, nn

from attent.attention import reference
from attent.attention.backends import bands, sdpa
from attent.attention.backends.tanh import fused_scores
from attent.attention.base import LoweredSide, Mask, Normalizer, TanhScore
from attent.attention.call import Call
from attent.errors import ArgumentError, ShapeError, StaleMapError
from attent.ops.eligibility import is_known_true, without_autocast

Index = int | slice | Tensor | list[int] | EllipsisType

T = TypeVar("T")


class Versions:
    """The tensors of a call and their version counters.

    PyTorch counts every in-place change, through any view of the tensor, except changes through `.data` and changes of
    tensors made in inference mode.
    """

    def __init__(self, call: Call, query: Tensor, key: LoweredSide) -> None:
        tensors = [] if torch.compiler.is_compiling() else call_tensors(call, query, key)
        # a leaf has no graph to keep alive; for other tensors, a detached view shares the counter
        self._versions = [
            (name, tensor if tensor.is_leaf else tensor.detach(), tensor._version)
            for name, tensor in tensors
            if not tensor.is_inference()
        ]

    def check(self) -> None:
        """Raise StaleMapError if a tensor has been changed since."""
        for name, tensor, version in self._versions:
            if tensor._version != version:
                raise StaleMapError(
                    f"{name} was changed in place after this map was made, so its weights can no longer be computed; "
                    "take map.keep() before the change, or attend again"
                )


def call_tensors(call: Call, query: Tensor, key: LoweredSide) -> Iterator[tuple[str, Tensor]]:
    """Yield every tensor that the weights of a call depend on, with its name for errors."""
    yield "query", query
    yield from (("key", part) for part in key if part is not None)
    for name, part in (("score", call.score), ("position", call.position)):
        if part is not None:
            yield from (
                (f"{name}'s {own}", tensor) for own, tensor in (*part.named_parameters(), *part.named_buffers())
            )
    for name, part in (("mask", call.mask), ("normalizer", call.normalizer), ("weighting", call.weighting)):
        yield from ((name, tensor) for tensor in _part_tensors(part))
    yield from (
        (name, tensor)
        for name, tensor in (("bias", call.bias), ("query_start", call.start))
        if isinstance(tensor, Tensor)
    )


def copy_call(call: Call, query: Tensor, key: LoweredSide) -> tuple[Call, Tensor, LoweredSide]:
    """Return the call, query and key with every tensor copied and detached."""
    copies: dict[int, object] = {}
    for _, tensor in call_tensors(call, query, key):
        own = tensor.detach().clone()
        copies[id(tensor)] = nn.Parameter(own, requires_grad=False) if isinstance(tensor, nn.Parameter) else own

    def copy_of(part: T) -> T:
        return copy.deepcopy(part, copies)

    parts = {
        name: copy_of(getattr(call, name))
        for name in ("score", "normalizer", "mask", "bias", "position", "start", "weighting")
    }
    return replace(call, **parts), copy_of(query), copy_of(key)


def _part_tensors(part: object) -> Iterator[Tensor]:
    """Yield the tensors of a mask, a normalizer or a weighting, and of the masks that a mask combines."""
    for value in vars(part).values() if hasattr(part, "__dict__") else ():
        for item in value if isinstance(value, tuple | list) else (value,):
            if isinstance(item, Tensor):
                yield item
            elif isinstance(item, Mask | Normalizer):
                yield from _part_tensors(item)


class LazyMatrix:
    """A step of a call's formula as a lazy matrix (B, H, Tq, Tk): only the rows that are read are computed.

    It holds the queries and keys of the call without copying them, and raises StaleMapError if they have since been
    changed in place.

    Args:
        call: the call.
        query: (B, H, Tq, Dq).
        key: features (B, G, Tk, Dk), or the lowered key side of a cache.
        is_detached: True if results carry no graph.
        versions: the versions of the tensors to compare with; the current ones if not given.
    """

    def __init__(
        self,
        call: Call,
        query: Tensor,
        key: LoweredSide,
        *,
        is_detached: bool = False,
        versions: Versions | None = None,
    ) -> None:
        self.call, self.query, self.key, self._is_detached = call, query, key, is_detached
        self._versions = Versions(call, query, key) if versions is None else versions
        self._lowered: LoweredSide | None = None

    def step(self, steps: dict[str, Tensor]) -> Tensor:
        """Return this matrix's step of the formula, from all steps up to the weights."""
        raise NotImplementedError

    @property
    def shape(self) -> tuple[int, ...]:
        """(B, H, Tq, Tk), or as many of these axes as the caller's tensors had."""
        call = self.call
        leading = {4: (call.batch, call.heads), 3: (call.batch,), 2: ()}[call.axes]
        return (*leading, call.queries, call.keys)

    def rows(self, rows: Tensor) -> Tensor:
        """Return the rows of some queries, (B, H, len(rows), Tk).

        Raises:
            StaleMapError: a tensor of the call has since been changed in place.
        """
        return self._read_runs([rows])[0]

    def dense(self) -> Tensor:
        """Return the whole matrix in its shape, which takes memory for Tq · Tk numbers.

        Raises:
            StaleMapError: a tensor of the call has since been changed in place.
        """
        runs = [torch.arange(run.start, run.stop, device=self.call.device) for run in row_runs(self.call)]
        return self.call.restore_axes(torch.cat(self._read_runs(runs or [self._all()[:0]]), 2))

    def __getitem__(self, index: Index | tuple[Index, ...]) -> Tensor:
        """Return the numbers at an index, computing only the rows that it selects.

        Each axis takes a number, a slice or a list; lists along several axes select their product.
        """
        *leading, rows, columns = self._checked_indices(index)
        row_index = self._all()[rows]
        result = self.call.restore_axes(self.rows(row_index.reshape(-1)))  # (…, rows, Tk)
        for axis, item in reversed(list(enumerate((*leading, slice(None) if row_index.dim() else 0, columns)))):
            result = result[(slice(None),) * axis + (item,)]
        return result

    def __iter__(self) -> Iterator[Tensor]:
        return (self[index] for index in range(self.shape[0]))

    def steps(self, rows: Tensor) -> dict[str, Tensor]:
        """Return every step of the formula up to the weights for some rows, (B, H, len(rows), Tk) each."""
        call, key = self.call, self.key_side()
        pairs = call.pairs(rows)
        query = call.score.lower_query(self.query[:, :, rows].to(call.accumulation_dtype), key.center)
        fast = partial(fused_scores, call.score) if isinstance(call.score, TanhScore) else None
        return reference.steps_to_weights(
            call, pairs, query, key, call.allowed(pairs), lowered=True, score_lowered=fast
        )

    def key_side(self) -> LoweredSide:
        """Return the lowered keys of every head, in the accumulation type, with invisible keys zeroed.

        They are cached if they carry no graph.
        """
        self._versions.check()
        has_graph = torch.is_grad_enabled() and any(
            part.requires_grad for part in (*self.key, *self.call.score.parameters()) if part is not None
        )
        if has_graph or self._lowered is None:
            # only keys matter here
            lowered, _ = bands.lower_keys(self.call, self.key, self.key.features)
            if has_graph:
                return lowered
            self._lowered = lowered
        return self._lowered

    def shared_key_side(self) -> LoweredSide:
        """Return `key_side`, but keys that heads share once only, (B, G, Tk, D'), where that gives the same numbers."""
        call, (features, bias, _) = self.call, self.key
        is_plain = type(call.score) in sdpa.PLAIN and bias is None and not features.requires_grad
        if features.shape[1] == call.heads or self._lowered is not None or not is_plain:
            return self.key_side()
        if call.mask is not None and not is_known_true(lambda: torch.isfinite(features.sum()), call.device):
            return self.key_side()
        self._versions.check()
        return LoweredSide(features.to(call.accumulation_dtype))

    def _read_runs(self, runs: Iterable[Tensor]) -> list[Tensor]:
        with (
            torch.set_grad_enabled(torch.is_grad_enabled() and not self._is_detached),
            without_autocast(self.call.device),
        ):
            return [self._compute_rows(rows) for rows in runs]

    def _compute_rows(self, rows: Tensor) -> Tensor:
        return self.step(self.steps(rows))

    def _all(self) -> Tensor:
        return torch.arange(self.call.queries, device=self.call.device)

    def _checked_indices(self, index: Index | tuple[Index, ...]) -> list[int | slice | Tensor]:
        items = list(index) if isinstance(index, tuple) else [index]
        dots = [position for position, item in enumerate(items) if item is Ellipsis]
        axes = len(self.shape)
        if len(dots) > 1 or len(items) - len(dots) > axes:
            raise ShapeError(
                f"a map of shape {self.shape} takes up to {axes} indices and one ellipsis, got {len(items)}"
            )
        dot = dots[0] if dots else len(items)
        filled = items[:dot] + [slice(None)] * (axes - len(items) + len(dots)) + items[dot + len(dots) :]
        return [self._checked_index(item, axis) for axis, item in enumerate(filled)]

    def _checked_index(self, item: Index, axis: int) -> int | slice | Tensor:
        length = self.shape[axis]
        if isinstance(item, list):
            item = torch.tensor(item, dtype=torch.int64 if not item else None, device=self.call.device)
        if (
            isinstance(item, bool)
            or not isinstance(item, int | slice | Tensor)
            or (isinstance(item, Tensor) and item.dim() > 1)
        ):
            raise ArgumentError(f"a map is indexed by numbers, slices and lists, got {item!r}")
        if isinstance(item, slice):
            if item.step is not None and item.step < 1:
                raise ArgumentError(f"a map's slices go forward, got a step of {item.step}")
            return item
        if isinstance(item, Tensor) and (
            item.is_floating_point() or (item.dtype == torch.bool and tuple(item.shape) != (length,))
        ):
            raise ArgumentError(
                f"axis {axis} of a map of shape {self.shape} takes whole numbers or {length} booleans, got {item!r}"
            )
        numbers = [item] if isinstance(item, int) else [] if item.dtype == torch.bool else item.reshape(-1).tolist()
        for number in numbers:
            if not -length <= number < length:
                raise ArgumentError(f"index {number} is out of range for axis {axis} of a map of shape {self.shape}")
        return item


def row_runs(call: Call) -> list[range]:
    """Return the rows of all heads, in runs that fit a tile."""
    # dot and tanh forms hold no more than the scores
    return bands.row_tiles(call, None if call.score.form is None else 1)
