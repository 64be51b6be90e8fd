"""From encoded examples, such as pairs, to padded batches.

A batch's rows come in multiples of 8 and its keys in multiples of 16 wherever the data allow it, for then matrix
products sum in the same order whatever stands beside a sentence, and its result does not depend on its neighbours.
"""

from __future__ import annotations

import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Generic, Protocol, Self, TypeVar, overload

import numpy as np
import torch
from torch import Tensor

from attent.data.text import Pair
from attent.data.tokenizer import BOS, EOS, PAD, Tokenizer
from attent.errors import ArgumentError, DataError

ROW_MULTIPLE = 8
KEY_MULTIPLE = 16
# Sentences are sorted by length within a pool of this many batches, so that batches differ from epoch to epoch.
POOL = 32


class TrainingBatch(Protocol):
    """What training needs of a batch, whatever task it is for; the loss of the task knows the rest."""

    @property
    def tokens(self) -> int:
        """How many answers the loss is the mean of."""
        ...

    def to(self, device: torch.device | str) -> Self:
        """The same batch on another device."""
        ...

    def zero_weight(self) -> Self:
        """A batch like this one of which no answer counts, for a process that has no row of a batch."""
        ...


B = TypeVar("B", bound=TrainingBatch)


@dataclass(frozen=True)
class Batch:
    """Pairs of one update, right-padded with PAD; all int64.

    Args:
        source: (B, Ts).
        source_lengths: tokens of each source, (B,).
        target_in: BOS and the target, (B, Tt).
        target_out: the target and EOS, what is to be told from each token of target_in, (B, Tt).
        target_lengths: tokens of each target, its EOS included, (B,).
        tokens: the sum of target_lengths.
    """

    source: Tensor
    source_lengths: Tensor
    target_in: Tensor
    target_out: Tensor
    target_lengths: Tensor
    tokens: int

    def to(self, device: torch.device | str) -> Batch:
        """The same batch on another device."""
        fields = (self.source, self.source_lengths, self.target_in, self.target_out, self.target_lengths)
        return Batch(*(field.to(device, non_blocking=True) for field in fields), tokens=self.tokens)

    def trim_padding(self, longest: int | None) -> Batch:
        """The same pairs without the padding beyond what a model can read; its real tokens are no more than that."""
        target_in, target_out = self.target_in[:, :longest], self.target_out[:, :longest]
        return replace(self, source=self.source[:, :longest], target_in=target_in, target_out=target_out)

    def zero_weight(self) -> Batch:
        """The same pairs, of which no token counts."""
        return replace(self, tokens=0)

    def shard(self, index: int, count: int) -> Batch:
        """Every so many-th pair; if there is none the first stands in, of which no token counts."""
        rows = slice(index, None, count) if index < len(self.source) else slice(1)
        source, target = (int(lengths[rows].max()) for lengths in (self.source_lengths, self.target_lengths))
        return Batch(
            source=self.source[rows, : max(source, 1)],
            source_lengths=self.source_lengths[rows],
            target_in=self.target_in[rows, :target],
            target_out=self.target_out[rows, :target],
            target_lengths=self.target_lengths[rows],
            tokens=int(self.target_lengths[rows].sum()) if index < len(self.source) else 0,
        )


@dataclass(frozen=True)
class BatchSize:
    """How large a batch is: so many pairs, or so many tokens counted with padding on its longer side.

    Raises:
        ArgumentError: both or neither is given.
    """

    pairs: int | None = None
    tokens: int | None = None

    def __post_init__(self) -> None:
        if (self.pairs is None) == (self.tokens is None):
            raise ArgumentError(f"a batch size is pairs or tokens, got pairs = {self.pairs} and tokens = {self.tokens}")

    def rows(self, longest: int) -> int:
        """How many sentences of up to `longest` tokens one batch holds, at least 1."""
        if self.pairs is not None:
            return self.pairs
        assert self.tokens is not None
        rows = self.tokens // longest
        return rows // ROW_MULTIPLE * ROW_MULTIPLE if rows >= ROW_MULTIPLE else max(rows, 1)


class Sequences:
    """Token sequences of many lengths, laid end to end in one array.

    Args:
        sequences: the sequences, each of any length.
    """

    def __init__(self, sequences: Sequence[Sequence[int]]) -> None:
        self.lengths = np.fromiter((len(sequence) for sequence in sequences), np.int64, len(sequences))
        self.starts = np.cumsum(self.lengths) - self.lengths
        self.tokens = np.fromiter((token for sequence in sequences for token in sequence), np.int64, int(self.lengths.sum()))

    def __len__(self) -> int:
        return len(self.lengths)

    def pad(self, rows: np.ndarray, multiple: int = 1) -> np.ndarray:
        """These sequences side by side, (B, T): T the longest, rounded up to a multiple."""
        lengths = self.lengths[rows]
        columns = np.arange(round_up(max(int(lengths.max(initial=0)), 1), multiple))
        inside = columns < lengths[:, None]  # (B, T)
        padded = np.full(inside.shape, PAD, np.int64)
        padded[inside] = self.concatenate(rows)
        return padded

    def concatenate(self, rows: np.ndarray) -> np.ndarray:
        """The tokens of these sequences, one behind the other."""
        lengths = self.lengths[rows]
        before = np.cumsum(lengths) - lengths
        return self.tokens[np.repeat(self.starts[rows] - before, lengths) + np.arange(lengths.sum())]


class Examples(ABC, Generic[B]):
    """What a model learns from, a row each; batches are cut of them.

    Attributes:
        one: what messages call a row.
        answer: what they call that which a loss is the mean of.
    """

    row_name = "example"
    answer_name = "token"

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def lengths(self) -> np.ndarray:
        """How long each row is, (N,): rows of like lengths are put together."""

    @property
    def token_sequences(self) -> Mapping[str, Sequences]:
        """What of them is made of tokens, by the name of its tokenizer."""
        return {}

    @abstractmethod
    def token_count(self, rows: np.ndarray) -> int:
        """`tokens` of these rows' batch, known without making it."""

    @abstractmethod
    def batch(self, rows: np.ndarray) -> B:
        """These rows as one batch, the same every time: for measuring."""

    def augmented(self, rows: np.ndarray, seed: int, epoch: int) -> B:
        """These rows as one batch to learn from, each row a function of itself, the seed and the epoch alone."""
        return self.batch(rows)

    @abstractmethod
    def fingerprint(self) -> list[np.ndarray]:
        """Whole numbers that tell these examples from others, by which processes, and runs that go on, find that they learn the same."""

    def digest(self) -> list[int]:
        """The number of examples, and a checksum of each part of their fingerprint."""
        return [len(self), *(zlib.crc32(numbers.astype(np.int32).tobytes()) for numbers in self.fingerprint())]

    def sorted_batches(self, size: BatchSize) -> Iterator[tuple[np.ndarray, B]]:
        """Every row once, sorted by length, with the rows that each batch is made of: for measuring."""
        for rows in cut_batches(np.argsort(self.lengths(), kind="stable"), self.lengths(), size):
            yield rows, self.batch(rows)

    def epoch_plan(self, size: BatchSize, seed: int, epoch: int) -> EpochPlan:
        """The rows of every batch of an epoch: a function of the arguments alone, so that a run can be taken up again.

        Rows are shuffled, sorted by length within pools of 32 batches, cut, and the batches shuffled.
        """
        lengths = self.lengths()
        generator = np.random.default_rng((seed, epoch))
        order = generator.permutation(len(self)).astype(np.int32 if len(self) < 2**31 else np.int64)
        pool = POOL * size.rows(max(int(lengths.mean()), 1))
        for number, first in enumerate(range(0, len(order), pool)):
            part = order[first : first + pool]
            part[:] = part[np.argsort(lengths[part], kind="stable")]
            if number % 2:
                # Every other pool runs from long to short, so that no batch joins the longest of one to the shortest of the next.
                part[:] = part[::-1].copy()
        ends = np.cumsum(np.fromiter((len(rows) for rows in cut_batches(order, lengths, size)), np.int64))
        return EpochPlan(order, ends, generator.permutation(len(ends)))

    def stream(self, size: BatchSize, seed: int, position: tuple[int, int] = (0, 0)) -> BatchStream[B]:
        """One shuffled epoch after another.

        Args:
            size: how large a batch is.
            seed: of the order.
            position: the epoch, and the batch in it, that comes first.

        Raises:
            DataError: there is no row.
        """
        return BatchStream(self, size, seed, position)


class Bitext(Examples[Batch]):
    """Encoded pairs, from which batches are cut.

    Args:
        pairs: the pairs.
        source: what encodes their sources.
        target: what encodes their targets.
        length_multiple: lengths are padded to a multiple of this; 1 saves work where rounding does not matter.
    """

    row_name = "pair"

    def __init__(self, pairs: Sequence[Pair], source: Tokenizer, target: Tokenizer, *, length_multiple: int = KEY_MULTIPLE) -> None:
        self.source = Sequences([source.encode(pair.source) for pair in pairs])
        self.target = Sequences([[BOS, *target.encode(pair.target), EOS] for pair in pairs])
        self.length_multiple = length_multiple

    def __len__(self) -> int:
        return len(self.source)

    @property
    def token_sequences(self) -> Mapping[str, Sequences]:
        """Both sides."""
        return {"source": self.source, "target": self.target}

    def batch(self, rows: np.ndarray) -> Batch:
        """These pairs as one batch."""
        target_lengths = self.target.lengths[rows].astype(np.int64) - 1
        # One column more than the keys, for the tokens going in and those coming out are the same, one step apart.
        target = self.target.pad(rows)
        width = round_up(target.shape[1] - 1, self.length_multiple) + 1
        target = torch.from_numpy(np.pad(target, ((0, 0), (0, width - target.shape[1])), constant_values=PAD))
        return Batch(
            source=torch.from_numpy(self.source.pad(rows, self.length_multiple)),
            source_lengths=torch.from_numpy(self.source.lengths[rows].astype(np.int64)),
            target_in=target[:, :-1],
            target_out=target[:, 1:],
            target_lengths=torch.from_numpy(target_lengths),
            tokens=int(target_lengths.sum()),
        )

    def lengths(self) -> np.ndarray:
        """Tokens of the longer side of each pair."""
        return np.maximum(self.source.lengths, self.target.lengths - 1)

    def token_count(self, rows: np.ndarray) -> int:
        """The target tokens of these pairs, each with its EOS."""
        return int((self.target.lengths[rows].astype(np.int64) - 1).sum())

    def fingerprint(self) -> list[np.ndarray]:
        """The lengths of both sides."""
        return [sequences.lengths for sequences in (self.source, self.target)]


class EpochPlan(Sequence[np.ndarray]):
    """The rows of each batch of an epoch.

    Args:
        order: every row, batch after batch, (N,).
        ends: where each batch ends in it.
        turns: the order in which the batches come.
    """

    def __init__(self, order: np.ndarray, ends: np.ndarray, turns: np.ndarray) -> None:
        self._order, self._ends, self._turns = order, ends, turns

    def __len__(self) -> int:
        return len(self._turns)

    @overload
    def __getitem__(self, index: int) -> np.ndarray: ...
    @overload
    def __getitem__(self, index: slice) -> list[np.ndarray]: ...
    def __getitem__(self, index: int | slice) -> np.ndarray | list[np.ndarray]:
        if isinstance(index, slice):
            return [self[place] for place in range(*index.indices(len(self)))]
        turn = int(self._turns[index])
        return self._order[int(self._ends[turn - 1]) if turn else 0 : int(self._ends[turn])]


class BatchStream(Iterator[B]):
    """Batches without end, which know their place.

    Args:
        data: where the rows are.
        size: how large a batch is.
        seed: of the order.
        position: the epoch and the batch in it that comes next; an attribute too.

    Raises:
        DataError: there is no row.
    """

    def __init__(self, data: Examples[B], size: BatchSize, seed: int, place: tuple[int, int]) -> None:
        if not len(data):
            raise DataError(f"there is no {data.row_name} to make batches of")
        self.data, self.size, self.seed, self.position = data, size, seed, place
        self._rows = data.epoch_plan(size, seed, place[0])

    def __next__(self) -> B:
        rows = self.next_rows()
        return self._drawn(rows)

    def next_shard(self, index: int, count: int) -> tuple[B, int]:
        """A part of the next batch, as `Batch.part` takes it, and the tokens of the whole; the other parts are not read.

        Args:
            index: of the part, from 0.
            count: of the parts.
        """
        rows = self.next_rows()
        tokens = self.data.token_count(rows)
        if index < len(rows):
            return self._drawn(rows[index::count]), tokens
        return self._drawn(rows[:1]).zero_weight(), tokens

    def next_rows(self) -> np.ndarray:
        """The rows of the next batch; the place moves on."""
        epoch, batch = self.position
        if batch >= len(self._rows):
            epoch, batch = epoch + 1, 0
            self._rows = self.data.epoch_plan(self.size, self.seed, epoch)
        self.position = epoch, batch + 1
        return self._rows[batch]

    def _drawn(self, rows: np.ndarray) -> B:
        # of the epoch that `next_rows` was in
        return self.data.augmented(rows, self.seed, self.position[0])


def cut_batches(order: np.ndarray, lengths: np.ndarray, size: BatchSize) -> Iterator[np.ndarray]:
    """Consecutive rows of an order, cut where the next would make the batch larger than its size.

    Args:
        order: rows, (N,).
        lengths: tokens of each sentence, by row.
        size: how large a batch may become.
    """
    first = 0
    while first < len(order):
        last, longest = first, 1
        while last < len(order):
            longer = max(longest, int(lengths[order[last]]))
            if last - first >= size.rows(longer):
                break
            last, longest = last + 1, longer
        rows = last - first
        if last < len(order) and ROW_MULTIPLE < rows < size.rows(longest):
            last -= rows % ROW_MULTIPLE
        yield order[first:last]
        first = last


def round_up(number: int, multiple: int) -> int:
    """The least multiple that is not below the number."""
    return -(-number // multiple) * multiple
