"""Words in pieces drawn at random: a function of the words and the seed alone, the same in every process and on every machine.

SentencePiece can draw pieces too, but from a generator of its own that starts elsewhere in every process, so that a
training taken up again would go on with other pieces.
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
# How many words are kept in their likeliest pieces, and how many with every piece that they hold, which takes some
# 5 KB each; and the longest of them, in characters.
KEPT, LATTICES, LONGEST = 2**16, 2**15, 32
# By how much, in nats, a character without a piece is less likely than the unlikeliest piece; as SentencePiece has it.
PENALTY = 10.0

NONE_LEFT_OUT = (math.inf,)


@dataclass(frozen=True)
class Vocabulary:
    """The pieces that words are cut into.

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
        """Those of a SentencePiece model that has a piece for each byte."""
        special = (processor.IsByte, processor.IsControl, processor.IsUnknown)
        ids = {
            processor.IdToPiece(number): number for number in range(processor.GetPieceSize()) if not any(is_it(number) for is_it in special)
        }
        scores = {piece: processor.GetScore(number) for piece, number in ids.items()}
        return cls(scores, ids, [processor.PieceToId(f"<0x{byte:02X}>") for byte in range(256)])

    def written(self, piece: str) -> tuple[int, ...]:
        """The id of a piece, or the ids of a character's bytes."""
        known = self.ids.get(piece)
        return tuple(self.byte_ids[byte] for byte in piece.encode()) if known is None else (known,)


class Sampler(Protocol):
    """Draws pieces."""

    def sample(self, texts: Sequence[str], dropout: float, seed: int) -> list[list[int]]:
        """The ids of each text's pieces.

        Args:
            texts: as SentencePiece normalizes them, with "▁" for a space.
            dropout: from 0 to 1.
            seed: the same texts, dropout and seed give the same pieces.
        """
        ...


class Cut(NamedTuple):
    """A word in pieces, by their ids, and the number of merges considered on the way."""

    ids: tuple[int, ...]
    considered: int


class BpeDropout:
    """Byte-pair encoding that leaves out some merges (Provilkov et al. 2020, arXiv:1910.13267), as SentencePiece does.

    A word starts as characters. Two neighbours that make a piece are a merge to be considered: that of the best score
    first, the leftmost of equals. One considered is left out with the probability `dropout`, else done, and the piece
    that it makes brings new merges with its neighbours. A merge left out does not come back; in the paper's algorithm 1
    it may, for all merges are drawn anew after each that is done.

    Args:
        vocabulary: the pieces.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._written = vocabulary.written
        self._ranks = {piece: -score for piece, score in vocabulary.scores.items()}
        self._likeliest = lru_cache(KEPT)(self.cut)

    def sample(self, texts: Sequence[str], dropout: float, seed: int) -> list[list[int]]:
        """See `Sampler`. At 0 the pieces are the likeliest, at 1 characters."""
        gaps = _gaps(dropout, Random(seed))
        gap, drawn = next(gaps), []
        for text in texts:
            ids: list[int] = []
            for word in WORDS.findall(text):
                if len(word) <= LONGEST and gap >= (cut := self._likeliest(word)).considered:
                    gap -= cut.considered
                else:
                    cut = self.cut(word, accumulate(gaps, lambda place, between: place + 1.0 + between, initial=gap))
                    # Merges are left out independently, so that the next gap may as well begin here.
                    gap = next(gaps)
                ids += cut.ids
            drawn.append(ids)
        return drawn

    def cut(self, word: str, left_out: Iterable[float] = NONE_LEFT_OUT) -> Cut:
        """A word in pieces.

        Args:
            word: the word.
            left_out: which merges are left out, ascending: 0 is the first considered. They end with one never reached.
        """
        pieces, ranks, places = list(word), self._ranks, iter(left_out)
        end, considered, skipped = len(pieces), 0, next(places)
        # The place of each piece's neighbours; a piece is at the place of its first character.
        before, after = list(range(-1, end - 1)), list(range(1, end + 1))
        merges = [(rank, left, pair) for left in range(end - 1) if (rank := ranks.get(pair := word[left : left + 2])) is not None]
        heapify(merges)
        while merges:
            _, left, pair = heappop(merges)
            right = after[left]
            # One of the two may have been merged with its other neighbour.
            if not pieces[left] or right == end or len(pieces[left]) + len(pieces[right]) != len(pair):
                continue
            considered += 1
            if considered > skipped:
                skipped = next(places)
                continue
            pieces[left], pieces[right] = pair, ""
            after[left] = right = after[right]
            if right < end:
                before[right] = left
                if (rank := ranks.get(grown := pair + pieces[right])) is not None:
                    heappush(merges, (rank, left, grown))
            if (left := before[left]) >= 0 and (rank := ranks.get(grown := pieces[left] + pair)) is not None:
                heappush(merges, (rank, left, grown))
        return Cut(tuple(number for piece in pieces if piece for number in self._written(piece)), considered)


class Arcs(NamedTuple):
    """The pieces that may end at one place in a word: the probability of each or one before it, where it starts, its ids."""

    cumulative: list[float]
    starts: list[int]
    ids: list[tuple[int, ...]]


class SubwordRegularization:
    """Draws from p(pieces | word)^α over every way to cut a word (Kudo 2018, arXiv:1804.10959, section 3.2).

    The draw is exact, among all of them: what leads to each place in the word is summed up forwards, and pieces are
    drawn backwards (forward filtering, backward sampling). α is the `dropout`.

    Args:
        vocabulary: the pieces.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._longest = max(map(len, vocabulary.scores), default=1)
        self._unknown = min(vocabulary.scores.values(), default=0.0) - PENALTY
        self._written = cache(vocabulary.written)
        self._kept = lru_cache(LATTICES)(self._lattice)

    def sample(self, texts: Sequence[str], dropout: float, seed: int) -> list[list[int]]:
        """See `Sampler`. At 0 every way to cut a word is as likely, at 1 as the model has it."""
        uniform = Random(seed).random
        drawn: list[list[int]] = []
        for text in texts:
            ids: list[int] = []
            for word in WORDS.findall(text):
                lattice = (self._kept if len(word) <= LONGEST else self._lattice)(word, dropout)
                place, backwards = len(word), []
                while place:
                    arcs = lattice[place - 1]
                    choice = bisect(arcs.cumulative, uniform()) if len(arcs.starts) > 1 else 0
                    backwards.append(arcs.ids[choice])
                    place = arcs.starts[choice]
                for piece in reversed(backwards):
                    ids += piece
            drawn.append(ids)
        return drawn

    def _lattice(self, word: str, alpha: float) -> list[Arcs]:
        """The pieces that end after each character, with the probability of each given that one ends there."""
        scores, forward, lattice = self._vocabulary.scores, [0.0], []
        for end in range(1, len(word) + 1):
            single = word[end - 1]
            found = [
                (start, piece)
                for start in range(max(0, end - self._longest), end)
                if (piece := word[start:end]) in scores or piece == single
            ]
            sums = [forward[start] + alpha * scores.get(piece, self._unknown) for start, piece in found]
            most = max(sums)
            weights = list(accumulate(math.exp(each - most) for each in sums))
            forward.append(most + math.log(weights[-1]))
            cumulative = [weight / weights[-1] for weight in weights]
            lattice.append(Arcs(cumulative, [start for start, _ in found], [self._written(piece) for _, piece in found]))
        return lattice


def _gaps(dropout: float, random: Random) -> Iterator[float]:
    """How many merges are done before the next left out, if each is left out with this probability by itself (geometric)."""
    if dropout in {0.0, 1.0}:
        yield from repeat(0.0 if dropout else math.inf)
    rate = math.log1p(-dropout)
    while True:
        yield math.log(1.0 - random.random()) // rate
