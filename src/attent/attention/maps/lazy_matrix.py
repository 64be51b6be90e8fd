"""A matrix of queries and keys that is computed only where it is looked at."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from types import EllipsisType

import torch
from torch import Tensor

from attent.attention import reference
from attent.attention.backends import row_tiles as by_rows
from attent.attention.backends.tanh import between
from attent.attention.base import Score, Side, TanhScore
from attent.attention.call import Call, lower_key
from attent.attention.maps.versions import Versions
from attent.errors import ArgumentError, ShapeError
from attent.ops.autograd import without_autocast
from attent.ops.eligibility import is_known_true

Index = int | slice | Tensor | list[int] | EllipsisType


class LazyMatrix:
    """One step of a call's formula as a lazy matrix (B, H, Tq, Tk): rows that are not asked for cost nothing.

    It keeps the queries and keys it was made of, no copies, and raises StaleMapError where they were changed in place since.

    Args:
        call: what was computed.
        query: (B, H, Tq, Dq).
        key: features (B, G, Tk, Dk), or the key side that a cache keeps.
        detached: whether what it computes is cut off from the graph.
        versions: the state of the tensors that holds; that of now if not given.
    """

    def __init__(self, call: Call, query: Tensor, key: Side, *, detached: bool = False, versions: Versions | None = None) -> None:
        self.call, self.query, self.key, self._detached = call, query, key, detached
        self._versions = Versions(call, query, key) if versions is None else versions
        self._lowered: Side | None = None

    def step(self, found: dict[str, Tensor]) -> Tensor:
        """The step of the formula that this matrix is, of those up to the weights."""
        raise NotImplementedError

    @property
    def shape(self) -> tuple[int, ...]:
        """(B, H, Tq, Tk), or as many of the axes as the caller's tensors had."""
        call = self.call
        front = {4: (call.batch, call.heads), 3: (call.batch,), 2: ()}[call.axes]
        return (*front, call.queries, call.keys)

    def rows(self, rows: Tensor) -> Tensor:
        """The rows of some queries, (B, H, len(rows), Tk).

        Raises:
            StaleMapError: a tensor that this was made of was changed in place since.
        """
        return self._of([rows])[0]

    def dense(self) -> Tensor:
        """All of it, in its shape: memory Tq · Tk.

        Raises:
            StaleMapError: a tensor that this was made of was changed in place since.
        """
        runs = [torch.arange(tile.start, tile.stop, device=self.call.device) for tile in tiles(self.call)]
        return self.call.restored(torch.cat(self._of(runs or [self._all()[:0]]), 2))

    def __getitem__(self, index: Index | tuple[Index, ...]) -> Tensor:
        """Exactly the numbers asked for; rows that are not asked for cost nothing.

        Each axis takes a number, a slice or a list; lists along several axes choose their product.
        """
        *front, rows, columns = self._full(index)
        which = self._all()[rows]
        single = which.dim() == 0
        found = self.call.restored(self.rows(which.reshape(-1)))  # (…, rows, Tk)
        for axis, chosen in reversed(list(enumerate((*front, slice(None) if not single else 0, columns)))):
            found = found[(slice(None),) * axis + (chosen,)]
        return found

    def __iter__(self) -> Iterator[Tensor]:
        return (self[place] for place in range(self.shape[0]))

    def steps(self, rows: Tensor) -> dict[str, Tensor]:
        """Every step of the formula up to the weights for some rows, (B, H, len(rows), Tk) each."""
        call, key = self.call, self.key_side()
        pairs = call.pairs(rows)
        query = call.score.lower_query(self.query[:, :, rows].to(call.exact), key.origin)
        quick = partial(between, call.score) if isinstance(call.score, TanhScore) else None
        return reference.weights_of(call, pairs, query, key, call.allowed(pairs), lowered=True, between=quick)

    def key_side(self) -> Side:
        """The keys lowered, every head spread, in exact type, those that no query sees emptied; kept where no graph hangs on it."""
        self._versions.check()
        constant = not torch.is_grad_enabled() or not any(
            part.requires_grad for part in (*self.key, *self.call.score.parameters()) if part is not None
        )
        if self._lowered is not None and constant:
            return self._lowered
        lowered = _lowered(self.call, self.key)
        if constant:
            self._lowered = lowered
        return lowered

    def _of(self, runs: Iterable[Tensor]) -> list[Tensor]:
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self._detached), without_autocast(self.call.device):
            return [self.step(self.steps(rows)) for rows in runs]

    def _all(self) -> Tensor:
        return torch.arange(self.call.queries, device=self.call.device)

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


def tiles(call: Call) -> list[range]:
    """The rows of all heads, in runs that stay within a tile's size."""
    # forms have kernels that hold no more than the scores
    return by_rows.tiles(call, None if call.score.form is None else 1)


def _lowered(call: Call, key: Side) -> Side:
    """The keys as kernels/rows.py lowers them, but which of them anybody sees is asked only where that matters."""
    side = reference.exact_keys(call, key)
    hiding = call.mask is not None or call.bias is not None
    # a sum is finite only if every number is, and then what is hidden cannot leak
    finite = not hiding or is_known_true(lambda: torch.isfinite(key.features.detach().sum(dtype=call.exact)), call.device)
    # but a kernel of tanh forms computes in another way, to other bits, where any key is large
    emptied = not finite or (hiding and isinstance(call.score, TanhScore))
    centred = not call.lowered and type(call.score).origin is not Score.origin
    seen = by_rows.visible(call) if emptied or centred else None
    if seen is not None and emptied:
        bias = None if side.bias is None else side.bias.masked_fill(~seen, 0.0)
        side = Side(side.features.masked_fill(~seen[..., None], 0.0), bias, side.origin)
    if call.lowered:
        return side
    return lower_key(call.score, side.features, call.heads, call.score.origin(side.features, seen))
