"""The weights as a lazy matrix, and their statistics."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Literal, get_args

import torch
from torch import Tensor

from attent.attention.base import LoweredSide
from attent.attention.call import Call, Prepared
from attent.attention.maps import statistics
from attent.attention.maps import tiles as tile_stream
from attent.attention.maps.contributions import HeadOutputs
from attent.attention.maps.lazy_matrix import LazyMatrix, Versions, copy_call
from attent.attention.maps.statistics import Span
from attent.errors import ArgumentError, check_known, refuse
from attent.ops.eligibility import without_autocast

Stage = Literal["raw", "capped", "biased", "masked"]
# the steps of the formula that are the scores of each stage; the first that a call has
_STEPS: dict[str, tuple[str, ...]] = {
    "raw": ("scores",),
    "capped": ("capped", "scores"),
    "biased": ("biased", "capped", "scores"),
    "masked": ("masked", "modified", "biased", "capped", "scores"),
}


class AttentionMap(LazyMatrix):
    """The weights α(qᵢ, kⱼ) of one call, as a lazy matrix (B, H, Tq, Tk).

    It holds the queries and keys of the call without copying them, in memory linear in the sequence, and computes the
    rows that are read. It raises StaleMapError if one of these tensors, or of the parts' tensors, has since been
    changed in place (see `keep`). The weights are those before dropout.

    The statistics are exact for every score, mask and normalizer, and computed by tiles of rows, in memory linear in
    the sequence. They carry no gradient; rows do.

    `call`, `query` and `key` are those of the call, with rotary positions applied.

    Example:
        >>> context, weights = attent.attend(query, key, value, return_map=True)
        >>> weights[..., 5, :10]  # the weights of query 5 on the first ten keys, (B, H, 10)
        >>> weights.entropy()  # of each query, (B, H, Tq), in nats
    """

    # the values that the weights multiply, and their projection; known for maps from `watch`
    outputs: HeadOutputs | None = None

    @classmethod
    def of(cls, prepared: Prepared) -> AttentionMap:
        """Return the map of a call."""
        return cls(prepared.call, prepared.query, prepared.key)

    def step(self, steps: dict[str, Tensor]) -> Tensor:
        """Return the weights."""
        return steps["weights"]

    @property
    def is_distribution(self) -> bool:
        """True if each row that is not fully masked sums to one."""
        return self.call.is_distribution

    @property
    def kind(self) -> str:
        """The name of the weighting, or, without one, of the normalizer, and whether it has a sink."""
        return type(self.call.weighting or self.call.normalizer).__name__ + (
            " with a sink" if self.call.sink is not None else ""
        )

    def detach(self) -> AttentionMap:
        """Return the map without its graph."""
        detached = AttentionMap(
            self.call, self.query.detach(), self.key.map(Tensor.detach), is_detached=True, versions=self._versions
        )
        detached.outputs = self.outputs
        return detached

    def keep(self) -> AttentionMap:
        """Return the map with copies of all its tensors, without its graph: later changes do not affect it.

        Raises:
            StaleMapError: a tensor of the call has already been changed in place.
        """
        self._versions.check()
        copied = AttentionMap(*copy_call(self.call, self.query, self.key), is_detached=True)
        if self.outputs is not None:
            value = self.outputs.value().clone()
            copied.outputs = replace(self.outputs, value=lambda: value)
        return copied

    def norms(self) -> AttentionMap:
        """Return the norms ‖αᵢⱼ f(xⱼ)‖ of what each key adds to a query's output, as a map instead of the weights.

        See `watch.norms`.

        Raises:
            ArgumentError: the values or the output projection are not known; `watch` knows those of most models.
        """
        if self.outputs is None:
            raise ArgumentError(
                "norms need the values of a call and its output projection, which attent.watch finds in a model"
            )
        return AttentionMap(self.outputs.norm_call(self.call), self.query, self.key, is_detached=True)

    def gradients(self, gradient: Tensor | Sequence[Tensor] | None) -> AttentionMap:
        """Return the weights times a number's gradients with respect to them, given its gradient by the contexts.

        See `watch.gradients`.
        """
        assert self.outputs is not None
        return AttentionMap(self.outputs.gradient_call(self.call, gradient), self.query, self.key, is_detached=True)

    def scores(self, stage: Stage = "raw") -> ScoreMap:
        """Return the scores of the weights, as a lazy matrix of the same shape.

        Args:
            stage: "raw", from the score; "capped", after the soft cap; "biased", with every bias added; "masked", with
                −∞ where a pair may not attend. If the call lacks a stage, the previous stage is returned.

        Raises:
            UnknownNameError: an unknown stage.
        """
        check_known("stage of the scores", stage, get_args(Stage))
        return ScoreMap(
            self.call, self.query, self.key, stage=stage, is_detached=self._is_detached, versions=self._versions
        )

    def argmax(self) -> Tensor:
        """Return the key with the largest weight for each query, (…, Tq); the first in a tie."""
        refuse((not self.call.keys, "a map without keys has no largest weight"))
        return self._statistic(statistics.argmax)

    def top(self, n: int) -> statistics.TopKeys:
        """Return the n keys with the largest weights for each query, and these weights, (…, Tq, n) each, largest first.

        Equal weights come in any order; if a query sees fewer keys, the rest have weight 0.

        Raises:
            ArgumentError: n is not from 1 to Tk.
        """
        if isinstance(n, bool) or not isinstance(n, int) or not 1 <= n <= self.call.keys:
            raise ArgumentError(f"n must be a whole number from 1 to Tk = {self.call.keys}, got {n!r}")
        with self.tiles() as tiles:
            keys, weights = statistics.top(self.call, tiles, n)
        return statistics.TopKeys(self.call.restore_axes(keys), self.call.restore_axes(weights))

    def entropy(self) -> Tensor:
        """Return −Σⱼ αᵢⱼ log αᵢⱼ of each query in nats, (…, Tq).

        0 if one key has all the weight, log n if n keys share it equally, and 0 for a query that may see no key.

        Raises:
            ArgumentError: the weights are not a distribution.
        """
        self.check_distribution("entropy")
        return self._statistic(statistics.entropy)

    def received(self) -> Tensor:
        """Return the weight that each key receives from all queries, Σᵢ αᵢⱼ, (…, Tk)."""
        return self._statistic(statistics.received_weight)

    def distance(self) -> Tensor:
        """Return the mean distance of each query, Σⱼ αᵢⱼ |p(i) − j| in tokens, (…, Tq).

        p(i) is the position of query i.

        Raises:
            ArgumentError: the weights are not a distribution.
        """
        self.check_distribution("mean distance")
        return self._statistic(statistics.mean_distance)

    def pooled(self, height: int, width: int, reduction: Literal["mean", "max"] = "mean") -> Tensor:
        """Return the map pooled to (…, height, width): the mean or the largest of the weights of each rectangle.

        Row a pools the queries from ⌊a·Tq/height⌋ up to, but not including, ⌊(a+1)·Tq/height⌋; columns pool keys
        likewise.

        Raises:
            ShapeError: height is not from 1 to Tq, or width not from 1 to Tk.
            UnknownNameError: an unknown reduction.
        """
        check_known("reduction", reduction, ("mean", "max"))
        queries = statistics.even_spans(self.call.queries, height, "height")
        keys = statistics.even_spans(self.call.keys, width, "width")
        return self._reduced(queries, keys, (reduction, reduction))

    def grouped(self, query_spans: Sequence[Span], key_spans: Sequence[Span]) -> Tensor:
        """Return the map between groups, (…, len(query_spans), len(key_spans)).

        Each number is summed over a group of keys and averaged over a group of queries. This turns pieces into words,
        or words into sentences. Rows stay distributions if every key is in a group.

        Args:
            query_spans: (begin, end) of each group of queries, in tokens, the end excluded.
            key_spans: (begin, end) of each group of keys.

        Raises:
            ArgumentError: a group is empty or out of range, or two overlap.
        """
        queries = statistics.checked_spans(query_spans, self.call.queries, "query_spans")
        keys = statistics.checked_spans(key_spans, self.call.keys, "key_spans")
        return self._reduced(queries, keys, ("mean", "sum"))

    @contextmanager
    def tiles(
        self, rows: range | None = None, heads: range | None = None, sequences: range | None = None
    ) -> Iterator[Iterator[tile_stream.Tile]]:
        """Iterate over tiles of the weights, without gradients.

        The buffer is reused: consume a tile before asking for the next.

        Example:
            >>> with weights.tiles(range(0, 20_000, 64), range(3, 4)) as tiles:  # every 64th row of head 3
            ...     largest = max(tile.weights.max() for tile in tiles)

        Args:
            rows: some of the queries, ascending; all unless given.
            heads: some of the heads, contiguous; all unless given.
            sequences: some of the batch, contiguous; all unless given.

        Raises:
            StaleMapError: a tensor of the call has since been changed in place.
        """
        with torch.no_grad(), without_autocast(self.call.device):
            self._versions.check()
            yield tile_stream.tiles(self, rows, heads, sequences)

    def __repr__(self) -> str:
        call = self.call
        return (
            f"AttentionMap(shape={self.shape}, score={type(call.score).__name__}, "
            f"normalizer={type(call.normalizer).__name__}{'' if call.sink is None else ', with a sink'})"
        )

    def _reduced(
        self, queries: list[Span], keys: list[Span], reductions: tuple[statistics.Reduction, statistics.Reduction]
    ) -> Tensor:
        return self._statistic(lambda call, tiles: statistics.reduce_spans(call, tiles, queries, keys, reductions))

    def _statistic(self, function: Callable[[Call, Iterator[tile_stream.Tile]], Tensor]) -> Tensor:
        with self.tiles() as tiles:
            return self.call.restore_axes(function(self.call, tiles))

    def check_distribution(self, statistic: str) -> None:
        """Check that the weights are a distribution, as the statistic requires.

        Raises:
            ArgumentError: they are not.
        """
        if not self.is_distribution:
            raise ArgumentError(f"the {statistic} requires a distribution, which {self.kind} weights are not")


@dataclass(frozen=True)
class LabelledMap:
    """Attention weights, and the pieces of text that their rows and columns stand for.

    Args:
        weights: (1, H, Tq, Tk).
        rows: Tq labels of the queries. In a decoder, row t is labeled with the token that step t produces (target piece
            t), not with the token that it reads (the piece before).
        columns: Tk labels of the keys; in a decoder's self-attention the tokens read, from BOS on.
        gradients: the weights times the gradients of the run's output with respect to them, if requested.
    """

    weights: AttentionMap
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    gradients: AttentionMap | None = None


class ScoreMap(LazyMatrix):
    """The scores of a map's weights, as a lazy matrix (B, H, Tq, Tk): see `AttentionMap.scores`.

    Keys that no query sees may be zeroed, in which case their scores are meaningless.
    """

    def __init__(
        self, call: Call, query: Tensor, key: LoweredSide, *, stage: Stage, is_detached: bool, versions: Versions
    ) -> None:
        super().__init__(call, query, key, is_detached=is_detached, versions=versions)
        self.stage = stage

    def step(self, steps: dict[str, Tensor]) -> Tensor:
        """Return the scores of this stage."""
        return next(steps[name] for name in _STEPS[self.stage] if name in steps)

    def __repr__(self) -> str:
        return f"ScoreMap(shape={self.shape}, stage={self.stage!r}, score={type(self.call.score).__name__})"
