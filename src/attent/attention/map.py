"""The weights as a matrix that is computed only where it is looked at."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from types import EllipsisType

import torch
from torch import Tensor

from attent.attention import formula
from attent.attention.call import Call, Prepared
from attent.attention.kernels import rows as by_rows
from attent.attention.parts import Side
from attent.errors import ArgumentError, ShapeError

Index = int | slice | Tensor | list[int] | EllipsisType


class AttentionMap:
    """The weights α(qᵢ, kⱼ) of one call, as a lazy matrix (B, H, Tq, Tk).

    It keeps the queries and keys it was made of, memory linear in the sequence, and computes the rows that are asked for.
    The weights are those before dropout.

    `call`, `query` and `key` are those of the call, rotary positions already turned.

    Example:
        >>> context, weights = attent.attend(query, key, value, return_map=True)
        >>> weights[..., 5, :10]  # how query 5 looks at the first ten keys, (B, H, 10)
    """

    def __init__(self, call: Call, query: Tensor, key: Side, *, detached: bool = False) -> None:
        self.call, self.query, self.key, self._detached = call, query, key, detached
        self._lowered: by_rows.Lowered | None = None

    @classmethod
    def of(cls, prepared: Prepared) -> AttentionMap:
        """The map of a call."""
        return cls(prepared.call, prepared.query, prepared.key)

    @property
    def shape(self) -> tuple[int, ...]:
        """(B, H, Tq, Tk), or as many of the axes as the caller's tensors had."""
        call = self.call
        front = {4: (call.batch, call.heads), 3: (call.batch,), 2: ()}[call.axes]
        return (*front, call.queries, call.keys)

    @property
    def distribution(self) -> bool:
        """Whether each row that sees anything sums to one."""
        return self.call.normaliser.distribution

    def detach(self) -> AttentionMap:
        """The same map, cut off from the graph."""
        parts = (None if part is None else part.detach() for part in self.key)
        return AttentionMap(self.call, self.query.detach(), Side(*parts), detached=True)  # pyright: ignore[reportArgumentType]

    def rows(self, rows: Tensor) -> Tensor:
        """The weights of some queries, (B, H, len(rows), Tk)."""
        return self._of([rows])[0]

    def _of(self, tiles: Iterable[Tensor]) -> list[Tensor]:
        """The weights of each run of rows; both sides are lowered once for all."""
        call, found = self.call, []
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self._detached), torch.autocast(call.device.type, enabled=False):
            lowered = self._both_sides()
            for rows in tiles:
                pairs, ours = call.pairs(rows), by_rows.of_query(lowered.query, rows)
                found.append(formula.weights_of(call, pairs, ours, lowered.key, call.allowed(pairs), lowered=True)["weights"])
        return found

    def _both_sides(self) -> by_rows.Lowered:
        if self._lowered is not None and not torch.is_grad_enabled():
            return self._lowered
        # the values play no part in the weights
        nothing = self.query.new_zeros(self.call.batch, self.call.key_heads, self.call.keys, 0)
        lowered = by_rows.lower(self.call, self.query, self.key, nothing)
        if not torch.is_grad_enabled():
            # a graph, by contrast, serves one backward
            self._lowered = lowered
        return lowered

    def dense(self) -> Tensor:
        """All weights, in the map's shape: memory Tq · Tk."""
        return self.call.restored(torch.cat(self._of(self._tiles() or [self._all()[:0]]), 2))

    def argmax(self) -> Tensor:
        """The key that each query looks at most, (…, Tq); the first of equals."""
        with torch.no_grad():
            best = [self.rows(rows).argmax(-1) for rows in self._tiles()]
        return self.call.restored(torch.cat(best or [self._all()[:0].expand(self.call.batch, self.call.heads, 0)], 2))

    def __getitem__(self, index: Index | tuple[Index, ...]) -> Tensor:
        """Exactly the weights asked for; rows that are not asked for cost nothing.

        Each axis takes a number, a slice or a list; lists along several axes choose their product.
        """
        *front, rows, columns = self._full(index)
        which = self._all()[rows]
        single = which.dim() == 0
        weights = self.call.restored(self.rows(which.reshape(-1)))  # (…, rows, Tk)
        for axis, chosen in reversed(list(enumerate((*front, slice(None) if not single else 0, columns)))):
            weights = _taken(weights, axis, chosen)
        return weights

    def __iter__(self) -> Iterator[Tensor]:
        return (self[place] for place in range(self.shape[0]))

    def __repr__(self) -> str:
        call = self.call
        return f"AttentionMap(shape={self.shape}, score={type(call.score).__name__}, normaliser={type(call.normaliser).__name__})"

    def _all(self) -> Tensor:
        return torch.arange(self.call.queries, device=self.call.device)

    def _tiles(self) -> list[Tensor]:
        return [torch.arange(tile.start, tile.stop, device=self.call.device) for tile in by_rows.tiles(self.call)]

    def _full(self, index: Index | tuple[Index, ...]) -> list[int | slice | Tensor]:
        given = list(index) if isinstance(index, tuple) else [index]
        dots = [place for place, item in enumerate(given) if item is Ellipsis]
        axes = len(self.shape)
        if len(dots) > 1 or len(given) - len(dots) > axes:
            raise ShapeError(f"a map of shape {self.shape} takes up to {axes} indices and one ellipsis, got {len(given)}")
        place = dots[0] if dots else len(given)
        filled = given[:place] + [slice(None)] * (axes - len(given) + len(dots)) + given[place + len(dots) :]
        return [self._index(item, axis) for axis, item in enumerate(filled)]

    def _index(self, item: Index, axis: int) -> int | slice | Tensor:
        length = self.shape[axis]
        if isinstance(item, list):
            item = torch.tensor(item, dtype=torch.int64 if not item else None, device=self.call.device)
        if isinstance(item, bool) or not isinstance(item, int | slice | Tensor) or (isinstance(item, Tensor) and item.dim() > 1):
            raise ArgumentError(f"a map is indexed by numbers, slices and lists, got {item!r}")
        if isinstance(item, slice):
            if item.step is not None and item.step < 1:
                raise ArgumentError(f"a map's slices go forward, got a step of {item.step}")
            return item
        if isinstance(item, Tensor) and (item.is_floating_point() or (item.dtype == torch.bool and tuple(item.shape) != (length,))):
            raise ArgumentError(f"axis {axis} of a map of shape {self.shape} takes whole numbers or {length} booleans, got {item!r}")
        numbers = [item] if isinstance(item, int) else [] if item.dtype == torch.bool else item.reshape(-1).tolist()
        for number in numbers:
            if not -length <= number < length:
                raise ArgumentError(f"index {number} is out of range for axis {axis} of a map of shape {self.shape}")
        return item


def _taken(weights: Tensor, axis: int, chosen: int | slice | Tensor) -> Tensor:
    """One axis indexed by itself."""
    return weights[(slice(None),) * axis + (chosen,)]
