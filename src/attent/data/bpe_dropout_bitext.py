"""Training on pieces that differ from epoch to epoch (BPE-dropout, subword regularization)."""

from __future__ import annotations

from random import Random

import numpy as np

from attent.data.batches import Batch, BatchSize, BatchStream, Sequences
from attent.data.disk_pairs import StoredPairs
from attent.data.index import DiskBitext, EncodedBitext
from attent.data.subword_tokenizer import SubwordTokenizer
from attent.data.tokenizer import BOS, EOS


class ResampledBitext(EncodedBitext):
    """Pairs that are cut into pieces anew each time that they are trained on.

    Batches are planned by the lengths of the likeliest pieces, so that those of drawn ones are larger: of English and German captions
    by two fifths at a dropout of 0.1 and 4,000 pieces.

    Args:
        encoded: the pairs in their likeliest pieces.
        pairs: the pairs that were encoded.
        source: what cuts their sources.
        target: what cuts their targets.
        dropout: see `SubwordTokenizer.sample`.
        maximum_length: the most pieces of a side; one that would get more keeps its likeliest ones. No limit unless given.
    """

    def __init__(
        self,
        encoded: DiskBitext,
        pairs: StoredPairs,
        source: SubwordTokenizer,
        target: SubwordTokenizer,
        dropout: float,
        *,
        maximum_length: int | None = None,
    ) -> None:
        super().__init__(encoded.source, encoded.target, length_multiple=encoded.length_multiple)
        self._pairs, self._source, self._target, self._dropout = pairs.only(encoded.rows), source, target, dropout
        self._longest = maximum_length

    def stream(self, size: BatchSize, seed: int, position: tuple[int, int] = (0, 0)) -> BatchStream[Batch]:
        """One shuffled epoch after another, each in pieces of its own: a function of the arguments alone."""
        return _Resampling(self, size, seed, position)

    def resampled(self, rows: np.ndarray, seed: int) -> Batch:
        """These pairs as one batch, in pieces drawn by a seed."""
        pairs = list(self._pairs.only(rows))
        source = self._drawn(self._source, [pair.source for pair in pairs], 2 * seed)
        target = self._drawn(self._target, [pair.target for pair in pairs], 2 * seed + 1)
        drawn = EncodedBitext(
            Sequences(source), Sequences([[BOS, *tokens, EOS] for tokens in target]), length_multiple=self.length_multiple
        )
        return drawn.batch(np.arange(len(rows)))

    def _drawn(self, tokenizer: SubwordTokenizer, texts: list[str], seed: int) -> list[list[int]]:
        drawn, longest = tokenizer.sample(texts, self._dropout, seed), self._longest
        if longest is None:
            return drawn
        return [tokenizer.encode(text) if len(tokens) > longest else tokens for text, tokens in zip(texts, drawn, strict=True)]


class _Resampling(BatchStream[Batch]):
    def __init__(self, data: ResampledBitext, size: BatchSize, seed: int, position: tuple[int, int]) -> None:
        super().__init__(data, size, seed, position)
        self._resampled = data

    def __next__(self) -> Batch:
        rows = self.next_rows()
        seed = Random(f"{self.seed} {self.position}").getrandbits(62)
        return self._resampled.resampled(rows, seed)

    def next_shard(self, index: int, count: int) -> tuple[Batch, int]:
        # what one pair is cut into depends on those before it
        whole = next(self)
        return whole.shard(index, count), whole.tokens
