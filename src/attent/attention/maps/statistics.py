"""What is said of a map's weights in few numbers, each summed over tiles that are forgotten at once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

import torch
from torch import Tensor

from attent.attention.call import Call
from attent.attention.maps.tiles import Tile
from attent.errors import ArgumentError, ShapeError

# keys whose largest weight is found before they are looked at one by one
CHUNK = 64
# how many times fewer rows must become by joining them before their keys are looked at
FEWER = 1.5

Span = tuple[int, int]
Reduction = Literal["mean", "max", "sum"]


def top(call: Call, tiles: Iterable[Tile], count: int) -> tuple[Tensor, Tensor]:
    """The keys of the `count` largest weights of each query and these weights, (B, H, Tq, count), largest first."""
    shape = (call.batch, call.heads, call.queries, count)
    keys = torch.zeros(shape, dtype=torch.int64, device=call.device)
    weights = torch.zeros(shape, dtype=call.exact, device=call.device)
    for tile in tiles:
        here = tile.weights
        if here.shape[-1] < count:
            # keys outside the tile's columns are hidden; the nearest of them make up the number
            here, first = _widened(here, tile.columns, count, call.keys)
        else:
            first = tile.columns.start or 0
        where, found = _largest(here, count)
        keys[tile.place], weights[tile.place] = where + first, found
    return keys, weights


def argmax(call: Call, tiles: Iterable[Tile]) -> Tensor:
    """The key that each query looks at most, (B, H, Tq); the first of equals, and the first of all for one that sees nothing."""
    best = torch.zeros(call.batch, call.heads, call.queries, dtype=torch.int64, device=call.device)
    for tile in tiles:
        here = _first_largest(tile.weights) + (tile.columns.start or 0)
        best[tile.place] = here if tile.alive is None else here.masked_fill(~tile.alive[..., 0], 0)
    return best


def entropy(call: Call, tiles: Iterable[Tile]) -> Tensor:
    """−Σⱼ αᵢⱼ log αᵢⱼ of each query, (B, H, Tq), in nats; 0 for one that sees nothing."""
    found = torch.zeros(call.batch, call.heads, call.queries, dtype=call.exact, device=call.device)
    for tile in tiles:
        if tile.scores is None:
            found[tile.place] = torch.special.entr(tile.weights).sum(-1)
            continue
        # log α = s − log Σ exp s, and the largest weight knows the sum; no logarithm of every weight
        total = tile.scores.amax(-1) - tile.weights.amax(-1).log()
        here = (total - tile.scores.mul_(tile.weights).sum(-1)).clamp(min=0.0)
        found[tile.place] = here if tile.alive is None else here.masked_fill(~tile.alive[..., 0], 0.0)
    return found


def received(call: Call, tiles: Iterable[Tile]) -> Tensor:
    """Σᵢ αᵢⱼ, what each key gets of all queries, (B, H, Tk)."""
    total = torch.zeros(call.batch, call.heads, call.keys, dtype=_wide(call), device=call.device)
    for tile in tiles:
        total[tile.batches, tile.heads, tile.columns] += tile.weights.sum(-2)
    return total.to(call.exact)


def distance(call: Call, tiles: Iterable[Tile]) -> Tensor:
    """Σⱼ αᵢⱼ |p(i) − j| of each query, (B, H, Tq), in tokens; 0 for one that sees nothing."""
    found = torch.zeros(call.batch, call.heads, call.queries, dtype=call.exact, device=call.device)
    rows, parts = None, ()
    for tile in tiles:
        if rows != tile.rows or len(tile.pairs.positions) > 1:
            rows, parts = tile.rows, _distances(call, tile)
        total = found[tile.place]
        for columns, gap, further in parts:
            here = tile.weights[..., columns]
            if further is None:
                total += (here * gap).sum(-1)
            else:
                # one product has Σ α and Σ α times the distance from the tile's nearest row, and no term is negative
                sums = gap @ here.mT  # (b, h, 2, rows)
                total += sums[..., 0, :] * further + sums[..., 1, :]
        found[tile.place] = total
    return found


def _distances(call: Call, tile: Tile) -> tuple[tuple[slice, Tensor, Tensor | None], ...]:
    """A tile's columns before all of its rows, those beside some, and those behind all.

    Returns:
        Of each part the columns, counted from the tile's first; how far they are, for the middle from each row (b|1, 1, rows, n), else
        one and the distance from the nearest row (2, n); and how much further each row is, (b|1, 1, rows), None for the middle.
    """
    query, key = tile.pairs.between()
    query = query if query.shape[0] == 1 else query[tile.batches]  # (b|1, 1, rows, 1)
    nearest, furthest = query.amin(), query.amax()
    before, within = int((key < nearest).sum()), int((key <= furthest).sum())
    parts: list[tuple[slice, Tensor, Tensor | None]] = []
    for columns, row in ((slice(0, before), nearest), (slice(within, len(key)), furthest)):
        if columns.stop > columns.start:
            far = (key[columns] - row).abs()
            parts.append((columns, torch.stack((torch.ones_like(far), far)).to(call.exact), (query[..., 0] - row).abs().to(call.exact)))
    middle = slice(before, within)
    if within > before:
        parts.append((middle, (query - key[middle]).abs_().to(call.exact), None))
    return tuple(parts)


def gathered(call: Call, tiles: Iterable[Tile], queries: Sequence[Span], keys: Sequence[Span], how: tuple[Reduction, Reduction]) -> Tensor:
    """Runs of queries by runs of keys, (B, H, len(queries), len(keys)), each pair of runs one number.

    Args:
        call: whose weights they are.
        tiles: the weights.
        queries: (first, behind the last) of each run.
        keys: the same.
        how: what is made of the queries of a run, and of its keys: both "max", or each "mean" or "sum".
    """
    largest = how[0] == "max"
    where, which = _numbered(queries, call.queries, call.device), _numbered(keys, call.keys, call.device)
    # one run more, for what belongs to none
    shape = (call.batch, call.heads, len(queries) + 1, len(keys) + 1)
    found = torch.full(shape, -torch.inf if largest else 0.0, dtype=call.exact, device=call.device)
    for tile in tiles:
        rows, narrow = _rows_joined(where[tile.rows], tile.weights, largest=largest)
        joined = narrow.new_full((*narrow.shape[:-1], len(keys) + 1), -torch.inf if largest else 0.0)
        columns = which[tile.columns].expand(narrow.shape)
        joined.scatter_reduce_(-1, columns, narrow, "amax") if largest else joined.scatter_add_(-1, columns, narrow)
        part = found[tile.batches, tile.heads]
        part.scatter_reduce_(2, rows[:, None].expand(joined.shape), joined, "amax") if largest else part.index_add_(2, rows, joined)
    found = found[:, :, :-1, :-1]
    if largest:
        # runs of which every pair was hidden came in no tile
        return found.clamp_(min=0.0) if call.normalizer.distribution else found
    for axis, spans, reduction in ((-1, queries, how[0]), (0, keys, how[1])):
        if reduction == "mean":
            lengths = torch.tensor([last - first for first, last in spans], dtype=call.exact, device=call.device)
            found /= lengths[:, None] if axis == -1 else lengths
    return found


def checked_spans(spans: Sequence[Span], length: int, name: str) -> list[Span]:
    """Runs that are within the length, hold something each, and do not overlap.

    Raises:
        ArgumentError: they are not.
    """
    given = [tuple(span) for span in spans]
    for span in given:
        if len(span) != 2 or not all(isinstance(end, int) for end in span):
            raise ArgumentError(f"{name} must be pairs (first, behind the last) of whole numbers, got {span!r}")
        if not 0 <= span[0] < span[1] <= length:
            raise ArgumentError(f"{name} must hold something and lie from 0 to {length}, got {span}")
    for one, other in zip(sorted(given), sorted(given)[1:], strict=False):
        if other[0] < one[1]:
            raise ArgumentError(f"{name} must not overlap, got {one} and {other}")
    return [(first, last) for first, last in given]


def even_spans(length: int, count: int, name: str) -> list[Span]:
    """A length in `count` runs whose lengths differ by one at most.

    Raises:
        ShapeError: there are not so many.
    """
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= length:
        raise ShapeError(f"{name} must be a whole number from 1 to {length}, got {count!r}")
    return [(part * length // count, (part + 1) * length // count) for part in range(count)]


def _wide(call: Call) -> torch.dtype:
    # sums over all tiles; Apple's GPUs have no float64
    return call.exact if call.device.type == "mps" else torch.float64


def _numbered(spans: Sequence[Span], length: int, device: torch.device) -> Tensor:
    """Which run each place belongs to, (length,); their number where it belongs to none."""
    numbers = torch.full((length,), len(spans), dtype=torch.int64)
    for number, (first, last) in enumerate(spans):
        numbers[first:last] = number
    return numbers.to(device)


def _rows_joined(where: Tensor, weights: Tensor, *, largest: bool) -> tuple[Tensor, Tensor]:
    """Rows (b, h, rows, columns) summed, or the largest taken, over each run of them, where that makes them much fewer.

    Returns:
        The run of each row that is left, and these rows.
    """
    runs, inside, lengths = where.unique_consecutive(return_inverse=True, return_counts=True)
    if FEWER * len(runs) > len(where):
        return where, weights
    if largest:
        return runs, torch.stack([part.amax(2) for part in weights.split(lengths.tolist(), 2)], 2)
    joined = weights.new_zeros(*weights.shape[:2], len(runs), weights.shape[3])
    return runs, joined.index_add_(2, inside, weights)


def _widened(weights: Tensor, columns: slice, count: int, keys: int) -> tuple[Tensor, int]:
    """A tile's weights with hidden keys beside them, and where the first of its columns stands."""
    first = min(columns.start or 0, keys - count)
    before = (columns.start or 0) - first
    return torch.nn.functional.pad(weights, (before, count - before - weights.shape[-1])), first


def _largest(weights: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The places of the `count` largest of each row and what they are: of chunks first, then within the best of them."""
    length = weights.shape[-1]
    chunks = length // CHUNK
    if chunks <= 2 * count:
        found = weights.topk(count, -1)
        return found.indices, found.values
    whole = weights[..., : chunks * CHUNK].unflatten(-1, (chunks, CHUNK))
    best = whole.amax(-1).topk(count, -1).indices  # the largest lie in the chunks whose largest are largest
    # whole chunks are copied, which takes less than their numbers one by one
    number = torch.arange(best[..., 0].numel(), device=weights.device).reshape(*best.shape[:-1], 1) * chunks + best
    picked = whole.reshape(-1, CHUNK).index_select(0, number.flatten()).view(*best.shape[:-1], count * CHUNK)
    rest = weights[..., chunks * CHUNK :]
    found = (torch.cat((picked, rest), -1) if rest.shape[-1] else picked).topk(count, -1)
    places, behind = found.indices, found.indices - count * CHUNK
    inside = best.gather(-1, (places // CHUNK).clamp(max=count - 1)) * CHUNK + places % CHUNK
    return torch.where(behind < 0, inside, behind + chunks * CHUNK), found.values


def _first_largest(weights: Tensor) -> Tensor:
    """The place of the largest of each row, the first of equals: of chunks first, then within the best."""
    length = weights.shape[-1]
    if length % CHUNK or length < 4 * CHUNK:
        return weights.argmax(-1)
    chunks = weights.unflatten(-1, (-1, CHUNK))
    best = chunks.amax(-1).argmax(-1, keepdim=True)  # (b, h, rows, 1)
    within = chunks.gather(-2, best[..., None].expand(*best.shape, CHUNK))[..., 0, :]
    return best[..., 0] * CHUNK + within.argmax(-1)
