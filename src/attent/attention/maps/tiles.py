"""A map as a stream of tiles, each computed in place and dropped, so statistics take linear memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from attent.attention import mask_info
from attent.attention.base import DotScore, LoweredSide, Pairs, Score, TanhScore
from attent.attention.call import Call
from attent.attention.maps import lazy_matrix
from attent.attention.maps.lazy_matrix import LazyMatrix
from attent.attention.normalizers.softmax import Softmax
from attent.ops.eligibility import is_known_true
from attent.ops.tanh_score import operator

# Numbers of a tile of a dot or tanh form: scores and weights nearly fit a CPU core's own cache.
CPU_TILE = 2**19
GPU_TILE = 2**25
# The fewest rows of a tile, regardless of its size: with fewer, reading the keys takes longer than the products.
MIN_ROWS = 16


@dataclass(frozen=True)
class Tile:
    """Some rows of a map. The buffer is reused: consume a tile before asking for the next."""

    batches: slice
    heads: slice
    rows: slice
    columns: slice
    pairs: Pairs
    weights: Tensor  # (b, h, rows, columns)
    # under softmax, the scores of the weights; hidden pairs have the lowest number of the type
    scores: Tensor | None
    # True for rows that see no key, broadcasting to (b, h, rows, 1); None if there are none
    fully_masked: Tensor | None

    @property
    def index(self) -> tuple[slice, slice, slice]:
        """The index of its rows in a result (B, H, Tq, …)."""
        return self.batches, self.heads, self.rows


def tiles(
    weights: LazyMatrix, rows: range | None = None, heads: range | None = None, sequences: range | None = None
) -> Iterator[Tile]:
    """Yield a map by tiles: each pair lies in one tile, or in none if it is hidden. For use without gradients.

    Args:
        weights: the map.
        rows: some of its rows, ascending; all unless given.
        heads: some of its heads, contiguous; all unless given.
        sequences: some of the batch, contiguous; all unless given.
    """
    call = weights.call
    rows = range(call.queries) if rows is None else rows
    heads = range(call.heads) if heads is None else heads
    sequences = range(call.batch) if sequences is None else sequences
    if not call.keys or not (rows and heads and sequences):
        return iter(())
    if call.score_mod is not None:
        return _tiles_by_formula(weights, rows, heads, sequences)
    is_dot = isinstance(call.score, DotScore) and type(call.score).score_lowered is DotScore.score_lowered
    return (_tiles_in_place if is_dot or isinstance(call.score, TanhScore) else _tiles_by_formula)(
        weights, rows, heads, sequences
    )


def rows_at_once(call: Call) -> int:
    """Return the number of rows, over all sequences and heads, that are efficient to compute together."""
    return max(len(next(iter(lazy_matrix.row_runs(call)), ())), MIN_ROWS if call.score.form == "dot" else 1)


def _tiles_by_formula(weights: LazyMatrix, rows: range, heads: range, sequences: range) -> Iterator[Tile]:
    call = weights.call
    batch_slice, head_slice = slice(sequences.start, sequences.stop), slice(heads.start, heads.stop)
    for run in _slices(rows, max(len(lazy_matrix.row_runs(call)[0]), 1)):
        pairs = call.pairs(torch.arange(run.start, run.stop, run.step, device=call.device))
        allowed = call.allowed(pairs)
        fully_masked = None if allowed is None else _part(~allowed.any(-1, keepdim=True), batch_slice, head_slice)
        tile = weights.steps(pairs.query_index)["weights"][batch_slice, head_slice]
        yield Tile(batch_slice, head_slice, run, slice(None), pairs, tile, None, fully_masked)


def _tiles_in_place(weights: LazyMatrix, rows: range, heads: range, sequences: range) -> Iterator[Tile]:
    call, key = weights.call, weights.shared_key_side()
    step, block = _rows_and_heads_per_tile(call, len(rows), len(heads), len(sequences))
    ranges = _key_ranges_of_rows(call)
    scratch = torch.empty(2, block * step * call.keys, dtype=call.accumulation_dtype, device=call.device)
    for run in _slices(rows, step):
        columns = _visible_columns(call, ranges, run)
        query = call.score.lower_query(weights.query[:, :, run].to(call.accumulation_dtype), key.center)
        terms = _RowTerms.of(call, run, columns)
        for batch_slice, head_slice in _blocks(heads, sequences, block):
            shared = call.heads // key.features.shape[1]
            sides = _part_of(query, batch_slice, head_slice), _part_of(key, batch_slice, head_slice, columns, shared)
            scores = (
                _dot_scores(call, *sides, scratch[0])
                if isinstance(call.score, DotScore)
                else _tanh_scores(call.score, *sides, head_slice)
            )
            own = terms.part(batch_slice, head_slice)
            own.apply_in_place(call, scores)
            if isinstance(call.normalizer, Softmax):
                tile = torch.softmax(scores, -1, out=scratch[1, : scores.numel()].view(scores.shape))
                if own.fully_masked is not None:
                    tile.masked_fill_(own.fully_masked, 0.0)
                if call.sink is not None:
                    tile, scores = tile.mul_(call.share_of_keys(scores, head_slice)), None
            else:
                tile, scores = call.normalizer(scores, own.allowed), None
            if own.factors is not None:
                # with these the weights are not a softmax of the scores
                tile, scores = tile.mul_(own.factors), None
            yield Tile(batch_slice, head_slice, run, columns, terms.pairs, tile, scores, own.fully_masked)


def _slices(rows: range, step: int) -> Iterator[slice]:
    """Yield the rows in runs of `step`."""
    for begin in range(0, len(rows), step):
        run = rows[begin : begin + step]
        yield slice(run.start, run.stop, run.step)


def _rows_and_heads_per_tile(call: Call, rows: int, heads: int, sequences: int) -> tuple[int, int]:
    """Return the number of rows of a tile, and the number of its heads over all its sequences."""
    size = CPU_TILE if call.device.type == "cpu" else GPU_TILE
    step = min(max(size // call.keys, MIN_ROWS), rows)
    if call.mask is not None or call.bias is not None or call.position is not None or call.weighting is not None:
        # the terms of all sequences and heads are computed together
        step = min(step, max(GPU_TILE // (call.batch * call.heads * call.keys), MIN_ROWS))
    block = min(max(size // (step * call.keys), 1), sequences * heads)
    # whole sequences, or some heads of one
    return step, block // heads * heads if block >= heads else block


def _blocks(heads: range, sequences: range, block: int) -> list[tuple[slice, slice]]:
    if block >= len(heads):
        return [(run, slice(heads.start, heads.stop)) for run in _slices(sequences, block // len(heads))]
    return [(sequence, run) for sequence in _slices(sequences, 1) for run in _slices(heads, block)]


def _key_ranges_of_rows(call: Call) -> tuple[list[int], list[int]] | None:
    """Return each query's first key and the end of its range, over sequences and heads.

    None if the mask has no key ranges.
    """
    if (
        call.mask is None
        or not isinstance(call.normalizer, Softmax)
        or (call.weighting is not None and not call.weighting.is_nonnegative)
    ):
        # a custom normalizer may depend on the number of keys, and the 0 of a hidden pair exceeds a negative number
        return None
    bounds = mask_info.key_bounds(call)
    return None if bounds is None else (bounds[0].amin((0, 1)).tolist(), bounds[1].amax((0, 1)).tolist())


def _visible_columns(call: Call, key_ranges: tuple[list[int], list[int]] | None, rows: slice) -> slice:
    if key_ranges is None:
        return slice(0, call.keys)
    begin = min(*key_ranges[0][rows], call.keys - 1)
    return slice(begin, max(*key_ranges[1][rows], begin + 1))


def _part(tensor: Tensor, batches: slice, heads: slice) -> Tensor:
    """Return some sequences and heads of a tensor that may broadcast over them."""
    return tensor[batches if tensor.shape[0] > 1 else slice(None), heads if tensor.shape[1] > 1 else slice(None)]


def _part_of(
    side: LoweredSide, batches: slice, heads: slice, columns: slice = slice(None), shared: int = 1
) -> LoweredSide:
    """Return a part of a side whose heads are each shared by so many; some of these get a copy of their own."""
    if shared > 1:
        if heads.start % shared or heads.stop % shared:
            groups = torch.arange(heads.start, heads.stop, device=side.features.device) // shared
            return LoweredSide(side.features[batches, :, columns][:, groups])
        heads = slice(heads.start // shared, heads.stop // shared)
    return LoweredSide(
        side.features[batches, heads, columns], None if side.bias is None else side.bias[batches, heads, columns]
    )


def _tanh_scores(score: Score, query: LoweredSide, key: LoweredSide, heads: slice) -> Tensor:
    """Return v·tanh(q' + k') for some heads."""
    assert isinstance(score, TanhScore)
    v = score.output_weights(query.features).reshape(-1, query.features.shape[-1])
    return operator.tanh_scores(query.features, key.features, v if len(v) == 1 else v[heads])


def _dot_scores(call: Call, query: LoweredSide, key: LoweredSide, scratch: Tensor) -> Tensor:
    """Return scale · q'·k' + biases, (b, h, rows, columns), computed in the scratch memory."""
    assert isinstance(call.score, DotScore)
    scaled = query.features * call.score.scale(query.features.shape[-1])
    shape = (*scaled.shape[:3], key.features.shape[2])
    # rows of heads that share keys are those of one product
    groups, scores = shape[0] * key.features.shape[1], scratch[: shape[0] * shape[1] * shape[2] * shape[3]]
    products = scores.view(groups, -1, shape[3])
    torch.bmm(scaled.reshape(groups, -1, scaled.shape[3]), key.features.flatten(0, 1).transpose(1, 2), out=products)
    scores = scores.view(shape)
    if key.bias is not None:
        scores += key.bias[..., None, :]
    # a shift of a whole row changes no weight, unless a soft cap bends the scores
    if query.bias is not None and (call.soft_cap is not None or not call.normalizer.shift_invariant):
        scores += query.bias[..., :, None]
    return scores


@dataclass(frozen=True)
class _RowTerms:
    """The terms added to some rows of scores, the pairs hidden in them, and the factors on their weights."""

    pairs: Pairs
    biases: tuple[Tensor, ...]
    factors: Tensor | None
    allowed: Tensor | None
    hidden: Tensor | None
    fully_masked: Tensor | None

    @classmethod
    def of(cls, call: Call, rows: slice, columns: slice) -> _RowTerms:
        all_pairs = call.pairs(torch.arange(rows.start, rows.stop, rows.step, device=call.device))
        pairs = replace(all_pairs, key_index=all_pairs.key_index[columns])
        biases = () if call.position is None else (call.position.bias(pairs).to(call.accumulation_dtype),)
        factors = None if call.weighting is None else call.weighting.factors(pairs).to(call.accumulation_dtype)
        allowed = None if call.mask is None else call.mask.allowed(pairs)
        if call.bias is not None:
            bias = call.bias if call.bias.shape[2] == 1 else call.bias[:, :, rows]
            bias = bias if bias.shape[3] == 1 else bias[..., columns]
            is_finite = bias != -torch.inf
            allowed = is_finite if allowed is None else allowed & is_finite
            biases = (call.bias_term(bias), *biases)
        if allowed is None:
            return cls(pairs, biases, factors, None, None, None)
        fully_masked = ~allowed.any(-1, keepdim=True)
        has_none = is_known_true(lambda: ~fully_masked.any(), call.device)
        return cls(pairs, biases, factors, allowed, ~allowed, None if has_none else fully_masked)

    def part(self, batches: slice, heads: slice) -> _RowTerms:
        """Return the terms of some sequences and heads."""
        tensors = (self.factors, self.allowed, self.hidden, self.fully_masked)
        factors, allowed, hidden, fully_masked = (
            None if tensor is None else _part(tensor, batches, heads) for tensor in tensors
        )
        biases = tuple(_part(bias, batches, heads) for bias in self.biases)
        return _RowTerms(self.pairs, biases, factors, allowed, hidden, fully_masked)

    def apply_in_place(self, call: Call, scores: Tensor) -> None:
        """Cap, bias and mask the scores in place."""
        if call.soft_cap is not None:
            scores.div_(call.soft_cap).tanh_().mul_(call.soft_cap)
        for bias in self.biases:
            scores.add_(bias)
        if self.hidden is not None:
            scores.masked_fill_(self.hidden, torch.finfo(scores.dtype).min)
