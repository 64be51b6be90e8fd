"""Statistics of a map's weights, summed over its tiles; and means over the queries of a head."""

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from attent.attention.call import Call
from attent.attention.maps.tiles import Tile
from attent.errors import ArgumentError, ShapeError, brief, refuse

# Rows are reduced before keys if that makes them fewer by at least this factor.
MIN_RATIO = 1.5
# The numbers of `HeadStatistics`.
HEAD_STATISTICS = ("entropy", "distance", "first", "previous", "same")
# Those that need the position of each query among the keys.
POSITIONAL = [HEAD_STATISTICS.index(name) for name in ("distance", "previous", "same")]

Span = tuple[int, int]
Reduction = Literal["mean", "max", "sum"]


class TopKeys(NamedTuple):
    """The keys with the largest weights, largest first, and these weights, (…, Tq, n) each."""

    keys: Tensor
    weights: Tensor


def top(call: Call, tiles: Iterable[Tile], count: int) -> TopKeys:
    """Return the keys with the `count` largest weights of each query, and these weights, (B, H, Tq, count).

    The largest are first.
    """
    shape = (call.batch, call.heads, call.queries, count)
    keys = torch.zeros(shape, dtype=torch.int64, device=call.device)
    weights = torch.zeros(shape, dtype=call.accumulation_dtype, device=call.device)
    for tile in tiles:
        columns, begin = tile.weights, tile.columns.start or 0
        if columns.shape[-1] < count:
            # pad with the nearest of the hidden keys
            padded_begin = min(begin, call.keys - count)
            before = begin - padded_begin
            columns = torch.nn.functional.pad(columns, (before, count - before - columns.shape[-1]))
            begin = padded_begin
        best = columns.topk(count, -1)
        keys[tile.index], weights[tile.index] = best.indices + begin, best.values
    return TopKeys(keys, weights)


def argmax(call: Call, tiles: Iterable[Tile]) -> Tensor:
    """Return the key with the largest weight for each query, (B, H, Tq).

    This is the first key in a tie, and key 0 for a fully masked query.
    """
    result = torch.zeros(call.batch, call.heads, call.queries, dtype=torch.int64, device=call.device)
    for tile in tiles:
        keys = tile.weights.argmax(-1) + (tile.columns.start or 0)
        result[tile.index] = keys if tile.fully_masked is None else keys.masked_fill(tile.fully_masked[..., 0], 0)
    return result


def entropy(call: Call, tiles: Iterable[Tile]) -> Tensor:
    """Return −Σⱼ αᵢⱼ log αᵢⱼ of each query, (B, H, Tq), in nats; 0 for a fully masked one."""
    result = torch.zeros(call.batch, call.heads, call.queries, dtype=call.accumulation_dtype, device=call.device)
    for tile in tiles:
        result[tile.index] = _row_entropies(tile)
    return result


def _row_entropies(tile: Tile) -> Tensor:
    """Return the entropies of a tile's rows, (b, h, rows); its scores are overwritten."""
    if tile.scores is None:
        return torch.special.entr(tile.weights).sum(-1)
    # log α = s − log Σ exp s, whose sum follows from the largest weight: no logarithm of every weight
    log_sum = tile.scores.amax(-1) - tile.weights.amax(-1).log()
    entropies = (log_sum - tile.scores.mul_(tile.weights).sum(-1)).clamp(min=0.0)
    return entropies if tile.fully_masked is None else entropies.masked_fill(tile.fully_masked[..., 0], 0.0)


def received_weight(call: Call, tiles: Iterable[Tile]) -> Tensor:
    """Return Σᵢ αᵢⱼ, the weight that each key receives from all queries, (B, H, Tk)."""
    # sums over all tiles in float64, which Apple's GPUs lack
    dtype = call.accumulation_dtype if call.device.type == "mps" else torch.float64
    total = torch.zeros(call.batch, call.heads, call.keys, dtype=dtype, device=call.device)
    for tile in tiles:
        total[tile.batches, tile.heads, tile.columns] += tile.weights.sum(-2)
    return total.to(call.accumulation_dtype)


def mean_distance(call: Call, tiles: Iterable[Tile]) -> Tensor:
    """Return Σⱼ αᵢⱼ |p(i) − j| of each query, (B, H, Tq), in tokens; 0 for a fully masked one."""
    result = torch.zeros(call.batch, call.heads, call.queries, dtype=call.accumulation_dtype, device=call.device)
    for tile in tiles:
        result[tile.index] += _row_distances(tile)
    return result


def _row_distances(tile: Tile) -> Tensor:
    """Return the mean distances of a tile's rows, (b, h, rows), in tokens."""
    query, key = tile.pairs.broadcast_positions()
    query = query if query.shape[0] == 1 else query[tile.batches]  # (b|1, 1, rows, 1)
    return (tile.weights * (query - key).abs().to(tile.weights.dtype)).sum(-1)


class TokenStatistics(NamedTuple):
    """Statistics of the weights with which each token was written, (B, H, tokens) each.

    Args:
        entropy: −Σⱼ αᵢⱼ log αᵢⱼ, in nats.
        distance: Σⱼ αᵢⱼ |p(i) − j|, in tokens.
        first: the weight on the first key, which many models use as a sink (Xiao et al. 2024, arXiv:2309.17453).
        prompt: the weight on the keys of the prompt.
        sink: the weight that a sink takes, 1 − Σⱼ αᵢⱼ; 0 without one.
    """

    entropy: Tensor
    distance: Tensor
    first: Tensor
    prompt: Tensor
    sink: Tensor


def token_statistics(call: Call, tiles: Iterable[Tile], prompt: int) -> TokenStatistics:
    """Return the statistics of the queries from the last of a prompt on, which write a token each.

    Args:
        call: the call of the weights.
        tiles: the weights of these queries.
        prompt: the number of keys of the prompt.
    """
    begin, shape = prompt - 1, (5, call.batch, call.heads, call.queries - prompt + 1)
    result = torch.zeros(shape, dtype=call.accumulation_dtype, device=call.device)
    for tile in tiles:
        weights, first = tile.weights, tile.columns.start or 0
        shares = [weights[..., : max(end - first, 0)].sum(-1) for end in (1, prompt)]
        rows = torch.stack([_row_entropies(tile), _row_distances(tile), *shares, 1.0 - weights.sum(-1)])
        result[:, tile.batches, tile.heads, tile.rows.start - begin : tile.rows.stop - begin] += rows
    entropies, distances, on_first, on_prompt, sink = result
    sink = torch.zeros_like(sink) if call.sink is None else sink.clamp(min=0.0)
    return TokenStatistics(entropies, distances, on_first, on_prompt, sink)


def reduce_spans(
    call: Call,
    tiles: Iterable[Tile],
    queries: Sequence[Span],
    keys: Sequence[Span],
    reductions: tuple[Reduction, Reduction],
) -> Tensor:
    """Reduce spans of queries by spans of keys to one number each, (B, H, len(queries), len(keys)).

    Args:
        call: the call of the weights.
        tiles: the weights.
        queries: (begin, end) of each span.
        keys: (begin, end) of each span.
        reductions: the reduction over queries, and over keys: both "max", or each "mean" or "sum".
    """
    query_index, key_index = (
        _span_of_each_position(queries, call.queries, call.device),
        _span_of_each_position(keys, call.keys, call.device),
    )
    pooler = SpanPooler(
        (call.batch, call.heads), query_index, key_index, is_max=reductions[0] == "max", dtype=call.accumulation_dtype
    )
    for tile in tiles:
        pooler.add(tile.weights, tile.rows, tile.columns, tile.batches, tile.heads)
    # one more span collects the positions that belong to none
    result = pooler.pooled[:, :, : len(queries), : len(keys)]
    if pooler.is_max:
        # no tile holds spans whose pairs are all hidden
        is_nonnegative = call.normalizer.is_distribution and (call.weighting is None or call.weighting.is_nonnegative)
        return result.clamp_(min=0.0) if is_nonnegative else result
    for axis, spans, reduction in ((-1, queries, reductions[0]), (0, keys, reductions[1])):
        if reduction == "mean":
            lengths = torch.tensor(
                [end - begin for begin, end in spans], dtype=call.accumulation_dtype, device=call.device
            )
            result /= lengths[:, None] if axis == -1 else lengths
    return result


class SpanPooler:
    """The sum, or the largest, of the weights of each rectangle, from tiles in any order.

    A rectangle is a span of queries by a span of keys.

    Args:
        leading: (B, H).
        queries: the index of each query's span, (Tq,).
        keys: the index of each key's span, (Tk,).
        is_max: whether to take the largest weights instead of the sums.
        dtype: the dtype of the weights and of `pooled`, (B, H, spans of queries, spans of keys).
    """

    def __init__(
        self,
        leading: tuple[int, int],
        queries: Tensor,
        keys: Tensor,
        *,
        is_max: bool = False,
        dtype: torch.dtype = torch.float64,
    ) -> None:
        self.queries, self.keys, self.is_max = queries, keys, is_max
        shape = (*leading, int(queries.max()) + 1, int(keys.max()) + 1)
        self.pooled = torch.full(shape, -torch.inf if is_max else 0.0, dtype=dtype, device=queries.device)

    def add(
        self,
        weights: Tensor,
        rows: slice | Tensor,
        columns: slice = slice(None),
        batches: slice = slice(None),
        heads: slice = slice(None),
    ) -> None:
        """Add a tile, (b, h, rows, columns) of the map.

        By default, it covers all columns, sequences and heads of the map.
        """
        query_index, weights = _reduce_rows_by_span(self.queries[rows], weights, is_max=self.is_max)
        reduced_keys = weights.new_full(
            (*weights.shape[:-1], self.pooled.shape[-1]), -torch.inf if self.is_max else 0.0
        )
        key_index, part = self.keys[columns].expand(weights.shape), self.pooled[batches, heads]
        if self.is_max:
            reduced_keys.scatter_reduce_(-1, key_index, weights, "amax")
            part.scatter_reduce_(2, query_index[:, None].expand(reduced_keys.shape), reduced_keys, "amax")
        else:
            part.index_add_(2, query_index, reduced_keys.scatter_add_(-1, key_index, weights))

    def mean(self) -> Tensor:
        """Return the mean of each rectangle, computed from the sums."""
        return self.pooled / torch.outer(self.queries.bincount(), self.keys.bincount())


def checked_spans(spans: Sequence[Span], length: int, name: str) -> list[Span]:
    """Return spans that lie within the length, are not empty, and do not overlap.

    Raises:
        ArgumentError: a span is not of that kind.
    """
    form = f"{name} must be pairs (begin, end) of whole numbers, such as [(0, 2), (2, 5)], got"
    if not isinstance(spans, Sequence):
        raise ArgumentError(f"{form} {brief(spans)}")
    for span in (tuple(span) if isinstance(span, Sequence) else span for span in spans):
        if not isinstance(span, tuple) or len(span) != 2 or not all(isinstance(bound, int) for bound in span):
            raise ArgumentError(f"{form} {brief(span)}")
        if not 0 <= span[0] < span[1] <= length:
            raise ArgumentError(f"{name} must not be empty and lie from 0 to {length}, got {span}")
    for span, following in pairwise(sorted(map(tuple, spans))):
        refuse((following[0] < span[1], f"{name} must not overlap, got {span} and {following}"))
    return [(begin, end) for begin, end in spans]


def even_spans(length: int, count: int, name: str) -> list[Span]:
    """Split a length into `count` spans whose lengths differ by at most one.

    Raises:
        ShapeError: the length has fewer positions.
    """
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= length:
        raise ShapeError(f"{name} must be a whole number from 1 to {length}, got {count!r}")
    return [(part * length // count, (part + 1) * length // count) for part in range(count)]


def _span_of_each_position(spans: Sequence[Span], length: int, device: torch.device) -> Tensor:
    """Return the index of each position's span, (length,); the number of spans where it has none."""
    index = torch.full((length,), len(spans), dtype=torch.int64)
    for number, (begin, end) in enumerate(spans):
        index[begin:end] = number
    return index.to(device)


def _reduce_rows_by_span(row_spans: Tensor, weights: Tensor, *, is_max: bool) -> tuple[Tensor, Tensor]:
    """Sum rows (b, h, rows, columns), or take their largest, over each span, if that makes them much fewer.

    Returns:
        The span of each remaining row, and these rows.
    """
    distinct, inverse, lengths = row_spans.unique_consecutive(return_inverse=True, return_counts=True)
    if MIN_RATIO * len(distinct) > len(row_spans):
        return row_spans, weights
    if is_max:
        return distinct, torch.stack([part.amax(2) for part in weights.split(lengths.tolist(), 2)], 2)
    sums = weights.new_zeros(*weights.shape[:2], len(distinct), weights.shape[3])
    return distinct, sums.index_add_(2, inverse, weights)


class HeadStatistics:
    """Means over queries, accumulated as the rows of a map arrive; a query that sees no key is left out.

    - entropy: −Σⱼ αᵢⱼ log αᵢⱼ, in nats;
    - distance: Σⱼ αᵢⱼ |p(i) − j|, in tokens, where p(i) is the position of query i among the keys;
    - first, previous, same: the weight on key 0, on key p(i) − 1 and on key p(i).

    Args:
        heads: H.
        is_distribution: whether rows sum to one; otherwise no statistic is defined.
        is_self_attention: whether the queries are among the keys; otherwise distance, previous and same are not
            defined.
    """

    def __init__(self, heads: int, *, is_distribution: bool, is_self_attention: bool) -> None:
        self.is_distribution, self.is_self_attention = is_distribution, is_self_attention
        self._sums, self._queries = torch.zeros(heads, len(HEAD_STATISTICS), dtype=torch.float64), torch.zeros(heads)

    def add(self, weights: Tensor, query_positions: Tensor) -> None:
        """Add some rows.

        Args:
            weights: (H, rows, Tk).
            query_positions: the key position of each row, (rows,).
        """
        if not self.is_distribution:
            return
        keys = weights.shape[-1]
        gaps = (query_positions[:, None] - torch.arange(keys)).abs().float()  # (rows, Tk)
        sums = [
            torch.special.entr(weights).sum((1, 2)),
            torch.einsum("hij,ij->h", weights, gaps),
            weights[..., 0].sum(-1),
        ]
        for offset in (1, 0):
            index = query_positions - offset
            is_inside = (index >= 0) & (index < keys)
            picked = weights[:, is_inside].gather(2, index[is_inside].expand(len(weights), -1)[..., None])
            sums.append(picked.sum((1, 2)))
        self._sums += torch.stack(sums, 1).double()
        self._queries += (weights.sum(-1) > 0).sum(-1)

    def means(self) -> Tensor:
        """Return the means, (H, 5) in the order of HEAD_STATISTICS; NaN where one is not defined."""
        means = self._sums / self._queries.clamp(min=1)[:, None]
        if not self.is_distribution:
            return torch.full_like(means, torch.nan)
        if not self.is_self_attention:
            means[:, POSITIONAL] = torch.nan
        return means

    def named(self) -> list[dict[str, float | None]]:
        """Return the means of each head by name; None, for JSON, where one is not defined."""
        heads = self.means().tolist()
        return [
            {name: None if math.isnan(mean) else mean for name, mean in zip(HEAD_STATISTICS, means, strict=True)}
            for means in heads
        ]
