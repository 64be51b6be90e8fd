"""Random cuts of words into pieces: a function of the words and the seed alone, the same in every process and on every machine.

SentencePiece can sample pieces too, but from a generator that starts elsewhere in every process, so that a resumed training would go on
with other pieces.
"""

from __future__ import annotations

import math
import re
from bisect import bisect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from heapq import heapify, heappop, heappush
from itertools import accumulate, repeat
from random import Random
from typing import NamedTuple, Protocol, Self

import sentencepiece

# SentencePiece writes a space as "▁", which only ever begins a piece: none reaches from one word into the next.
WORDS = re.compile("▁[^▁]*|[^▁]+")
# Words whose most probable pieces are cached.
CACHED_WORDS = 2**16
# Words of which every piece is cached, which takes some 5 KB each.
CACHED_LATTICES = 2**15
# Characters of the longest word in either cache.
MAX_CACHED = 32
# In nats: a character without a piece is by this less probable than the least probable piece, as in SentencePiece.
PENALTY = 10.0

NO_DROPS = (math.inf,)


@dataclass(frozen=True)
class PieceTable:
    """Pieces that words are cut into.

    Args:
        scores: of each piece: its logarithmic probability (unigram), or the higher, the earlier it was learnt (BPE).
        ids: of each piece.
        byte_ids: of the 256 bytes, in which a character without a piece is written.
    """

    scores: Mapping[str, float]
    ids: Mapping[str, int]
    byte_ids: Sequence[int]

    @classmethod
    def of(cls, processor: sentencepiece.SentencePieceProcessor) -> Self:
        """Read the pieces of a SentencePiece model that has a piece for each byte."""
        is_special = (processor.IsByte, processor.IsControl, processor.IsUnknown)
        ids = {
            processor.IdToPiece(number): number
            for number in range(processor.GetPieceSize())
            if not any(check(number) for check in is_special)
        }
        scores = {piece: processor.GetScore(number) for piece, number in ids.items()}
        return cls(scores, ids, [processor.PieceToId(f"<0x{byte:02X}>") for byte in range(256)])

    def ids_of(self, piece: str) -> tuple[int, ...]:
        """Return the id of a piece, or the ids of a character's bytes."""
        number = self.ids.get(piece)
        return tuple(self.byte_ids[byte] for byte in piece.encode()) if number is None else (number,)


class Sampler(Protocol):
    """Interface of samplers of pieces."""

    def sample(self, texts: Sequence[str], dropout: float, seed: int) -> list[list[int]]:
        """Return the ids of each text's pieces.

        Args:
            texts: as SentencePiece normalizes them, with "▁" for a space.
            dropout: from 0 to 1.
            seed: the same texts, dropout and seed give the same pieces.
        """
        ...


class Segmentation(NamedTuple):
    """Ids of a word's pieces, and the number of merges that were considered."""

    ids: tuple[int, ...]
    considered: int


class BpeDropout:
    """Byte-pair encoding that skips some merges (Provilkov et al. 2020, arXiv:1910.13267), as SentencePiece does.

    A word starts as characters. Two neighbors that make a piece are a merge to consider: that of the best score first, the leftmost
    of equals. A merge is skipped with the probability `dropout`; one that is done brings new merges with the neighbors of its piece.
    A skipped merge does not come back; in the paper's algorithm 1 it may, for all merges are drawn anew after each that is done.

    Args:
        table: the pieces.
    """

    def __init__(self, table: PieceTable) -> None:
        self._ids_of = table.ids_of
        self._ranks = {piece: -score for piece, score in table.scores.items()}
        self._cached_segment = lru_cache(CACHED_WORDS)(self.segment)

    def sample(self, texts: Sequence[str], dropout: float, seed: int) -> list[list[int]]:
        """See `Sampler`. At 0 the pieces are the most probable, at 1 characters."""
        gaps = _geometric_gaps(dropout, Random(seed))
        gap, samples = next(gaps), []
        for text in texts:
            ids: list[int] = []
            for word in WORDS.findall(text):
                if len(word) <= MAX_CACHED and gap >= (segmentation := self._cached_segment(word)).considered:
                    gap -= segmentation.considered
                else:
                    segmentation = self.segment(word, accumulate(gaps, lambda drop, between: drop + 1.0 + between, initial=gap))
                    # Merges are skipped independently, so that the next gap may begin at the next word.
                    gap = next(gaps)
                ids += segmentation.ids
            samples.append(ids)
        return samples

    def segment(self, word: str, drops: Iterable[float] = NO_DROPS) -> Segmentation:
        """Cut a word into pieces.

        Args:
            word: the word.
            drops: indices of the merges to skip, ascending: 0 is the first considered. The last one is never reached.
        """
        pieces, ranks, drops = list(word), self._ranks, iter(drops)
        end, considered, next_drop = len(pieces), 0, next(drops)
        # Linked list of pieces; a piece has the index of its first character.
        before, after = list(range(-1, end - 1)), list(range(1, end + 1))
        merges = [(rank, left, pair) for left in range(end - 1) if (rank := ranks.get(pair := word[left : left + 2])) is not None]
        heapify(merges)
        while merges:
            _, left, pair = heappop(merges)
            right = after[left]
            # Either piece may have been merged with its other neighbor.
            if not pieces[left] or right == end or len(pieces[left]) + len(pieces[right]) != len(pair):
                continue
            considered += 1
            if considered > next_drop:
                next_drop = next(drops)
                continue
            pieces[left], pieces[right] = pair, ""
            after[left] = right = after[right]
            if right < end:
                before[right] = left
                if (rank := ranks.get(merged := pair + pieces[right])) is not None:
                    heappush(merges, (rank, left, merged))
            if (left := before[left]) >= 0 and (rank := ranks.get(merged := pieces[left] + pair)) is not None:
                heappush(merges, (rank, left, merged))
        return Segmentation(tuple(number for piece in pieces if piece for number in self._ids_of(piece)), considered)


class Arcs(NamedTuple):
    """Pieces that may end after a character of a word: cumulative probabilities, the index where each begins, and its ids."""

    cumulative: list[float]
    starts: list[int]
    ids: list[tuple[int, ...]]


class SubwordRegularization:
    """Sampler from p(pieces | word)^α over all segmentations of a word (Kudo 2018, arXiv:1804.10959, section 3.2).

    The sample is exact: forward filtering sums up the probability of each prefix, backward sampling draws the pieces from the end.
    α is the `dropout`.

    Args:
        table: the pieces.
    """

    def __init__(self, table: PieceTable) -> None:
        self._scores = table.scores
        self._max_length = max(map(len, table.scores), default=1)
        self._unknown_score = min(table.scores.values(), default=0.0) - PENALTY
        self._ids_of = cache(table.ids_of)
        self._cached_lattice = lru_cache(CACHED_LATTICES)(self._lattice)

    def sample(self, texts: Sequence[str], dropout: float, seed: int) -> list[list[int]]:
        """See `Sampler`. At 0 all segmentations of a word are equally probable, at 1 as the model has it."""
        uniform = Random(seed).random
        samples: list[list[int]] = []
        for text in texts:
            ids: list[int] = []
            for word in WORDS.findall(text):
                lattice = (self._cached_lattice if len(word) <= MAX_CACHED else self._lattice)(word, dropout)
                end, backwards = len(word), []
                while end:
                    arcs = lattice[end - 1]
                    choice = bisect(arcs.cumulative, uniform()) if len(arcs.starts) > 1 else 0
                    backwards.append(arcs.ids[choice])
                    end = arcs.starts[choice]
                for piece in reversed(backwards):
                    ids += piece
            samples.append(ids)
        return samples

    def _lattice(self, word: str, alpha: float) -> list[Arcs]:
        """Return the pieces that end after each character, with their probabilities given that a piece ends there."""
        forward, lattice = [0.0], []
        for end in range(1, len(word) + 1):
            character = word[end - 1]
            arcs = [
                (start, piece)
                for start in range(max(0, end - self._max_length), end)
                if (piece := word[start:end]) in self._scores or piece == character
            ]
            sums = [forward[start] + alpha * self._scores.get(piece, self._unknown_score) for start, piece in arcs]
            maximum = max(sums)
            weights = list(accumulate(math.exp(value - maximum) for value in sums))
            forward.append(maximum + math.log(weights[-1]))
            cumulative = [weight / weights[-1] for weight in weights]
            lattice.append(Arcs(cumulative, [start for start, _ in arcs], [self._ids_of(piece) for _, piece in arcs]))
        return lattice


def _geometric_gaps(dropout: float, random: Random) -> Iterator[float]:
    """Yield the numbers of merges done before each that is skipped, if each is skipped independently with this probability."""
    if dropout in {0.0, 1.0}:
        yield from repeat(0.0 if dropout else math.inf)
    rate = math.log1p(-dropout)
    while True:
        yield math.log(1.0 - random.random()) // rate
