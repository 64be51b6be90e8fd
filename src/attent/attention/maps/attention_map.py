"""The weights as a matrix that is computed only where it is looked at, and what is said of it in few numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Literal, get_args

import torch
from torch import Tensor

from attent.attention.base import Side
from attent.attention.call import Call, Prepared
from attent.attention.maps import statistics
from attent.attention.maps import tiles as tile_stream
from attent.attention.maps import versions as map_versions
from attent.attention.maps.lazy_matrix import LazyMatrix
from attent.attention.maps.statistics import Span
from attent.errors import ArgumentError, UnknownNameError
from attent.ops.autograd import without_autocast

Stage = Literal["raw", "capped", "biased", "masked"]
# the steps of formula.steps that are the scores of each stage, the last there is
_STEPS: dict[str, tuple[str, ...]] = {
    "raw": ("scores",),
    "capped": ("capped", "scores"),
    "biased": ("biased", "capped", "scores"),
    "masked": ("masked", "biased", "capped", "scores"),
}


class AttentionMap(LazyMatrix):
    """The weights α(qᵢ, kⱼ) of one call, as a lazy matrix (B, H, Tq, Tk).

    It keeps the queries and keys it was made of, no copies, memory linear in the sequence, and computes the rows that are asked
    for; where one of these tensors, or of the parts', was changed in place since, it raises StaleMapError (see `keep`). The
    weights are those before dropout.

    The statistics are exact, of every score, mask and normalizer, computed by tiles of rows in memory linear in the sequence.
    They carry no gradient; rows do.

    `call`, `query` and `key` are those of the call, rotary positions already turned.

    Example:
        >>> context, weights = attent.attend(query, key, value, return_map=True)
        >>> weights[..., 5, :10]  # how query 5 looks at the first ten keys, (B, H, 10)
        >>> weights.entropy()  # how widely each query looks, (B, H, Tq), in nats
    """

    @classmethod
    def of(cls, prepared: Prepared) -> AttentionMap:
        """The map of a call."""
        return cls(prepared.call, prepared.query, prepared.key)

    def step(self, found: dict[str, Tensor]) -> Tensor:
        """The weights."""
        return found["weights"]

    @property
    def distribution(self) -> bool:
        """Whether each row that sees anything sums to one."""
        return self.call.distribution

    @property
    def kind(self) -> str:
        """What made the weights last: the normalizer's name, or the weighting's."""
        return type(self.call.weighting or self.call.normalizer).__name__

    def detach(self) -> AttentionMap:
        """The same map, cut off from the graph."""
        parts = (None if part is None else part.detach() for part in self.key)
        return AttentionMap(self.call, self.query.detach(), Side(*parts), detached=True, versions=self._versions)  # pyright: ignore[reportArgumentType]

    def keep(self) -> AttentionMap:
        """The same map with copies of all it was made of, cut off from the graph: whatever is changed later, it stays.

        Raises:
            StaleMapError: a tensor that this was made of was changed in place already.
        """
        self._versions.check()
        return AttentionMap(*map_versions.copied(self.call, self.query, self.key), detached=True)

    def scores(self, stage: Stage = "raw") -> ScoreMap:
        """What the weights were made of, as a lazy matrix of the same shape.

        Args:
            stage: "raw" as the score says; "capped" after the soft cap; "biased" with every bias added; "masked" with −∞ where a
                pair may not attend. A stage that the call does not have is the one before.

        Raises:
            UnknownNameError: no such stage.
        """
        if stage not in _STEPS:
            raise UnknownNameError("stage of the scores", stage, get_args(Stage))
        return ScoreMap(self.call, self.query, self.key, stage=stage, detached=self._detached, versions=self._versions)

    def argmax(self) -> Tensor:
        """The key that each query looks at most, (…, Tq); the first of equals."""
        if not self.call.keys:
            raise ArgumentError("a map without keys has no largest weight")
        return self._statistic(statistics.argmax)

    def top(self, n: int) -> tuple[Tensor, Tensor]:
        """The n keys that each query looks at most, and how much: (…, Tq, n) keys and weights, the largest first.

        Equal weights come in any order; where a query sees fewer keys, the rest have weight 0.

        Raises:
            ArgumentError: n is not from 1 to Tk.
        """
        if isinstance(n, bool) or not isinstance(n, int) or not 1 <= n <= self.call.keys:
            raise ArgumentError(f"n must be a whole number from 1 to Tk = {self.call.keys}, got {n!r}")
        with self.tiles() as tiles:
            keys, weights = statistics.top(self.call, tiles, n)
        return self.call.restored(keys), self.call.restored(weights)

    def entropy(self) -> Tensor:
        """How widely each query looks, −Σⱼ αᵢⱼ log αᵢⱼ in nats, (…, Tq): 0 at one key alone, log n at n keys alike.

        0 for a query that may see nothing.

        Raises:
            ArgumentError: the weights are no distribution.
        """
        self._distributes("entropy")
        return self._statistic(statistics.entropy)

    def received(self) -> Tensor:
        """What each key gets of all queries, Σᵢ αᵢⱼ, (…, Tk)."""
        return self._statistic(statistics.received)

    def distance(self) -> Tensor:
        """How far away each query looks on average, Σⱼ αᵢⱼ |p(i) − j| in tokens, (…, Tq), p(i) being where query i stands.

        Raises:
            ArgumentError: the weights are no distribution.
        """
        self._distributes("mean distance")
        return self._statistic(statistics.distance)

    def pooled(self, height: int, width: int, how: Literal["mean", "max"] = "mean") -> Tensor:
        """The map made small, (…, height, width): the mean or the largest of the weights of each rectangle.

        Row a of it stands for the queries from ⌊a·Tq/height⌋ to before ⌊(a+1)·Tq/height⌋, a column for as even a run of keys.

        Raises:
            ShapeError: height is not from 1 to Tq, or width not from 1 to Tk.
            UnknownNameError: how is something else.
        """
        if how not in ("mean", "max"):
            raise UnknownNameError("way of pooling", how, ("mean", "max"))
        queries = statistics.even_spans(self.call.queries, height, "height")
        keys = statistics.even_spans(self.call.keys, width, "width")
        return self._gathered(queries, keys, (how, how))

    def grouped(self, query_spans: Sequence[Span], key_spans: Sequence[Span]) -> Tensor:
        """The map from group to group, (…, len(query_spans), len(key_spans)): summed over a group's keys, the mean of its queries.

        Of pieces it makes words, of words sentences, and each row that is a distribution stays one if every key is in a group.

        Args:
            query_spans: (first, behind the last) query of each group, in tokens.
            key_spans: the same of keys.

        Raises:
            ArgumentError: a group is empty or out of range, or two overlap.
        """
        queries = statistics.checked_spans(query_spans, self.call.queries, "query_spans")
        keys = statistics.checked_spans(key_spans, self.call.keys, "key_spans")
        return self._gathered(queries, keys, ("mean", "sum"))

    @contextmanager
    def tiles(
        self, rows: range | None = None, heads: range | None = None, sequences: range | None = None
    ) -> Iterator[Iterator[tile_stream.Tile]]:
        """The weights by tiles, each to be used before the next one comes, since it is computed where the last one stood.

        For use without gradients.

        Example:
            >>> with weights.tiles(range(0, 20_000, 64), range(3, 4)) as tiles:  # every 64th row of head 3
            ...     largest = max(tile.weights.max() for tile in tiles)

        Args:
            rows: some of the queries, ascending; all unless given.
            heads: some of the heads, side by side; all unless given.
            sequences: some of the batch, side by side; all unless given.

        Raises:
            StaleMapError: a tensor that this was made of was changed in place since.
        """
        with torch.no_grad(), without_autocast(self.call.device):
            self._versions.check()
            yield tile_stream.tiles(self, rows, heads, sequences)

    def __repr__(self) -> str:
        call = self.call
        return f"AttentionMap(shape={self.shape}, score={type(call.score).__name__}, normalizer={type(call.normalizer).__name__})"

    def _gathered(self, queries: list[Span], keys: list[Span], how: tuple[statistics.Reduction, statistics.Reduction]) -> Tensor:
        with self.tiles() as tiles:
            return self.call.restored(statistics.gathered(self.call, tiles, queries, keys, how))

    def _statistic(self, of: Callable[[Call, Iterator[tile_stream.Tile]], Tensor]) -> Tensor:
        with self.tiles() as tiles:
            return self.call.restored(of(self.call, tiles))

    def _distributes(self, what: str) -> None:
        if not self.distribution:
            raise ArgumentError(f"the {what} is that of a distribution, which {self.kind} weights are not")


class ScoreMap(LazyMatrix):
    """The scores that a map's weights were made of, as a lazy matrix (B, H, Tq, Tk): see `AttentionMap.scores`.

    Keys that no query sees may be emptied, so that what they would score is not said.
    """

    def __init__(self, call: Call, query: Tensor, key: Side, *, stage: Stage, detached: bool, versions: map_versions.Versions) -> None:
        super().__init__(call, query, key, detached=detached, versions=versions)
        self.stage = stage

    def step(self, found: dict[str, Tensor]) -> Tensor:
        """The scores of this stage."""
        return next(found[name] for name in _STEPS[self.stage] if name in found)

    def __repr__(self) -> str:
        return f"ScoreMap(shape={self.shape}, stage={self.stage!r}, score={type(self.call.score).__name__})"
