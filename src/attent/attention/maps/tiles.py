"""A map in tiles, each computed in place and forgotten: what statistics are taken of, in memory linear in the sequence."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from attent.attention.base import DotScore, Pairs, Score, Side, TanhScore
from attent.attention.call import Call
from attent.attention.maps import lazy_matrix
from attent.attention.maps.lazy_matrix import LazyMatrix
from attent.attention.normalizers.softmax import Softmax
from attent.ops.eligibility import is_known_true
from attent.ops.tanh_score import operator

# numbers that a tile of a form holds: scores and weights together nearly fit a CPU core's own cache
CPU_TILE = 2**19
GPU_TILE = 2**25
# rows at least, whatever that makes a tile, or reading the keys takes longer than the products
LEAST_ROWS = 16


@dataclass(frozen=True)
class Tile:
    """Some rows of a map, its numbers to be used before the next tile comes."""

    batches: slice
    heads: slice
    rows: slice
    columns: slice
    pairs: Pairs
    weights: Tensor  # (b, h, rows, columns)
    # under softmax, what the weights were made of; the lowest number there is where a pair is hidden
    scores: Tensor | None
    # whether each row sees anything, broadcasting to (b, h, rows, 1); None where all do
    alive: Tensor | None

    @property
    def place(self) -> tuple[slice, slice, slice]:
        """Where its rows stand in a result (B, H, Tq, …)."""
        return self.batches, self.heads, self.rows


def tiles(weights: LazyMatrix, rows: range | None = None, heads: range | None = None, sequences: range | None = None) -> Iterator[Tile]:
    """A map by tiles, in which each pair lies once, or not at all if it is hidden. For use without gradients.

    Args:
        weights: the map.
        rows: some of its rows, ascending; all unless given.
        heads: some of its heads, side by side; all unless given.
        sequences: some of the batch, side by side; all unless given.
    """
    call = weights.call
    asked = zip((rows, heads, sequences), (call.queries, call.heads, call.batch), strict=True)
    which = [range(length) if some is None else some for some, length in asked]
    if not call.keys or not all(which):
        return iter(())
    dot = isinstance(call.score, DotScore) and type(call.score).between is DotScore.between
    return (_in_place if dot or isinstance(call.score, TanhScore) else _by_formula)(weights, *which)


def rows_at_once(call: Call) -> int:
    """How many rows of all sequences and heads are well computed at a time."""
    return max(len(next(iter(lazy_matrix.tiles(call)), ())), LEAST_ROWS if call.score.form == "dot" else 1)


def _by_formula(weights: LazyMatrix, every: range, heads: range, sequences: range) -> Iterator[Tile]:
    call, step = weights.call, max(len(next(iter(lazy_matrix.tiles(weights.call)))), 1)
    some, which, whole = slice(sequences.start, sequences.stop), slice(heads.start, heads.stop), slice(None)
    for rows in _runs(every, step):
        pairs = call.pairs(torch.arange(rows.start, rows.stop, rows.step, device=call.device))
        allowed = call.allowed(pairs)
        alive = None if allowed is None else _part(allowed.any(-1, keepdim=True), some, which)
        yield Tile(some, which, rows, whole, pairs, weights.steps(pairs.rows)["weights"][some, which], None, alive)


def _in_place(weights: LazyMatrix, every: range, some: range, sequences: range) -> Iterator[Tile]:
    call, key = weights.call, weights.key_side()
    step, block = _sizes(call, len(every), len(some), len(sequences))
    reach = _reach(call)
    scratch = torch.empty(2, block * step * call.keys, dtype=call.exact, device=call.device)
    for rows in _runs(every, step):
        columns = _columns(call, reach, rows)
        ours = call.score.lower_query(weights.query[:, :, rows].to(call.exact), key.origin)
        band = _Band.of(call, rows, columns)
        for batches, heads in _blocks(some, sequences, block):
            sides = _part_of(ours, batches, heads), _part_of(key, batches, heads, columns)
            scores = _dots(call, *sides, scratch[0]) if isinstance(call.score, DotScore) else _tanhs(call.score, *sides, heads)
            here = band.at(batches, heads)
            here.finish(call, scores)
            if isinstance(call.normalizer, Softmax):
                found = torch.softmax(scores, -1, out=scratch[1, : scores.numel()].view(scores.shape))
                if here.dead is not None:
                    found.masked_fill_(here.dead, 0.0)
            else:
                found, scores = call.normalizer(scores, here.allowed), None
            if here.factors is not None:
                # no longer what a softmax made of the scores
                found, scores = found.mul_(here.factors), None
            yield Tile(batches, heads, rows, columns, band.pairs, found, scores, None if here.dead is None else ~here.dead)


def _runs(rows: range, step: int) -> Iterator[slice]:
    """The rows, so many at a time."""
    for first in range(0, len(rows), step):
        run = rows[first : first + step]
        yield slice(run.start, run.stop, run.step)


def _sizes(call: Call, rows: int, heads: int, sequences: int) -> tuple[int, int]:
    """How many of some rows a tile has, and how many of some heads of how many sequences."""
    size = CPU_TILE if call.device.type == "cpu" else GPU_TILE
    step = min(max(size // call.keys, LEAST_ROWS), rows)
    if call.mask is not None or call.bias is not None or call.position is not None or call.weighting is not None:
        # those of every sequence and head are made at once
        step = min(step, max(GPU_TILE // (call.batch * call.heads * call.keys), LEAST_ROWS))
    block = min(max(size // (step * call.keys), 1), sequences * heads)
    # whole sequences, or some heads of one
    return step, block // heads * heads if block >= heads else block


def _blocks(heads: range, sequences: range, block: int) -> list[tuple[slice, slice]]:
    def runs(every: range, step: int) -> list[slice]:
        return [slice(first, min(first + step, every.stop)) for first in range(every.start, every.stop, step)]

    if block >= len(heads):
        return [(batches, slice(heads.start, heads.stop)) for batches in runs(sequences, block // len(heads))]
    return [(batch, some) for batch in runs(sequences, 1) for some in runs(heads, block)]


def _reach(call: Call) -> tuple[list[int], list[int]] | None:
    """The first and the last key that each query sees at all, over sequences and heads, where the mask knows."""
    if call.mask is None or not isinstance(call.normalizer, Softmax):
        # a normalizer of somebody's own may look at how many keys there are
        return None
    reach = call.mask.reach(call.pairs())
    if reach is None:
        return None
    first, last = (bound.expand(*bound.shape[:2], call.queries, 1) for bound in reach)
    return first.amin((0, 1, 3)).tolist(), last.amax((0, 1, 3)).tolist()


def _columns(call: Call, reach: tuple[list[int], list[int]] | None, rows: slice) -> slice:
    if reach is None:
        return slice(0, call.keys)
    first = min(max(min(reach[0][rows]), 0), call.keys - 1)
    return slice(first, max(min(max(reach[1][rows]) + 1, call.keys), first + 1))


def _part(tensor: Tensor, batches: slice, heads: slice) -> Tensor:
    """Some sequences and heads of what has them, or broadcasts over them."""
    return tensor[batches if tensor.shape[0] > 1 else slice(None), heads if tensor.shape[1] > 1 else slice(None)]


def _part_of(side: Side, batches: slice, heads: slice, columns: slice = slice(None)) -> Side:
    features, bias = side.features[batches, heads, columns], None if side.bias is None else side.bias[batches, heads, columns]
    return Side(features, bias)


def _tanhs(score: Score, query: Side, key: Side, heads: slice) -> Tensor:
    """v·tanh(q' + k') as tanh_op.between has it, of some heads."""
    assert isinstance(score, TanhScore)
    v = score.direction(query.features).reshape(-1, query.features.shape[-1])
    return operator.tanh_scores(query.features, key.features, v if len(v) == 1 else v[heads])


def _dots(call: Call, query: Side, key: Side, scratch: Tensor) -> Tensor:
    """scale · q'·k' + biases, as DotScore.between has it, (b, h, rows, columns) in the scratch memory."""
    assert isinstance(call.score, DotScore)
    ours, theirs = query.features * call.score.scale(query.features.shape[-1]), key.features
    shape = (*ours.shape[:3], theirs.shape[2])
    scores = scratch[: shape[0] * shape[1] * shape[2] * shape[3]].view(-1, *shape[2:])
    torch.bmm(ours.flatten(0, 1), theirs.flatten(0, 1).transpose(1, 2), out=scores)
    scores = scores.view(shape)
    if key.bias is not None:
        scores += key.bias[..., None, :]
    # what shifts a whole row changes no weight where nothing is bent
    if query.bias is not None and (call.soft_cap is not None or not call.normalizer.shift_invariant):
        scores += query.bias[..., :, None]
    return scores


@dataclass(frozen=True)
class _Band:
    """What is added to some rows of scores, and what is hidden in them."""

    pairs: Pairs
    biases: tuple[Tensor, ...]
    # what the weights are multiplied by
    factors: Tensor | None
    allowed: Tensor | None
    # of the columns outside of which nothing is
    hidden: Tensor | None
    partly: slice
    dead: Tensor | None

    @classmethod
    def of(cls, call: Call, rows: slice, columns: slice) -> _Band:
        pairs = call.pairs(torch.arange(rows.start, rows.stop, rows.step, device=call.device))
        every, pairs = pairs, replace(pairs, columns=pairs.columns[columns])
        biases = () if call.position is None else (call.position.bias(pairs).to(call.exact),)
        factors = None if call.weighting is None else call.weighting.factors(pairs).to(call.exact)
        if call.bias is None and call.mask is not None and isinstance(call.normalizer, Softmax):
            spans = call.mask.span(every)
            if spans is not None and call.device.type == "cpu":
                return cls(pairs, biases, factors, None, *_hidden_beside(call, pairs, spans))
        allowed = None if call.mask is None else call.mask.allowed(pairs)
        if call.bias is not None:
            given = call.bias if call.bias.shape[2] == 1 else call.bias[:, :, rows]
            given = given if given.shape[3] == 1 else given[..., columns]
            seen = given != -torch.inf
            allowed = seen if allowed is None else allowed & seen
            biases = (call.bias_term(given), *biases)
        if allowed is None:
            return cls(pairs, biases, factors, None, None, slice(None), None)
        dead = ~allowed.any(-1, keepdim=True)
        has_none = is_known_true(lambda: ~dead.any(), call.device)
        return cls(pairs, biases, factors, allowed, ~allowed, slice(None), None if has_none else dead)

    def at(self, batches: slice, heads: slice) -> _Band:
        """The same for some sequences and heads."""
        parts = (self.factors, self.allowed, self.hidden, self.dead)
        factors, allowed, hidden, dead = (None if part is None else _part(part, batches, heads) for part in parts)
        return _Band(self.pairs, tuple(_part(bias, batches, heads) for bias in self.biases), factors, allowed, hidden, self.partly, dead)

    def finish(self, call: Call, scores: Tensor) -> None:
        """Cap, bias and mask the scores where they stand."""
        if call.soft_cap is not None:
            scores.div_(call.soft_cap).tanh_().mul_(call.soft_cap)
        for bias in self.biases:
            scores.add_(bias)
        if self.hidden is not None:
            scores[..., self.partly].masked_fill_(self.hidden, torch.finfo(scores.dtype).min)


def _hidden_beside(call: Call, pairs: Pairs, spans: tuple[Tensor, Tensor]) -> tuple[Tensor | None, slice, Tensor | None]:
    """What is hidden of columns that not all rows see, which columns these are, and which rows see none, of spans that begin and end.

    The columns are counted from the first of `pairs`.
    """
    first, last = (end.expand(*end.shape[:2], len(pairs.rows), 1) for end in spans)
    dead = last.clamp(max=call.keys - 1) < first.clamp(min=0)
    start, width = int(pairs.columns[0]), len(pairs.columns)
    # from `whole` on to `until` every row sees
    whole, until = max(int(first.amax()) - start, 0), min(int(last.amin()) + 1 - start, width)
    partly = slice(0, width)
    if whole < until:
        partly = slice(until, width) if not whole else slice(0, whole) if until == width else partly
    columns = pairs.columns[partly]
    hidden = (columns < first) | (columns > last) if len(columns) else None
    return hidden, partly, dead if bool(dead.any()) else None
