"""Padded batches of encoded examples, such as pairs.

A batch has rows in multiples of 8 and keys in multiples of 16 wherever the data allow it: matrix products then sum in
the same order whatever else the batch holds, and a sentence's result does not depend on its neighbors.
"""

from __future__ import annotations

import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Generic, Protocol, Self, TypeVar

import numpy as np
import torch
from torch import Tensor

from attent.errors import ArgumentError, DataError
from attent.text.text import Pair
from attent.text.tokenizer import BOS, EOS, PAD, Tokenizer

ROW_MULTIPLE = 8
KEY_MULTIPLE = 16
# Batches in a pool: rows are sorted by length within pools only, so that batches differ from epoch to epoch.
POOL = 32


class TrainingBatch(Protocol):
    """Interface of batches to training; the rest is between a task and its loss."""

    @property
    def tokens(self) -> int:
        """The number of predictions that the loss averages."""
        ...

    def to(self, device: torch.device | str) -> Self:
        """Move the batch to a device."""
        ...

    def zero_weight(self) -> Self:
        """Return a batch without predictions to count, for a process that has no row of a batch."""
        ...


B = TypeVar("B", bound=TrainingBatch)


@dataclass(frozen=True)
class TensorBatch:
    """Base of batches whose fields are tensors and plain numbers."""

    def to(self, device: torch.device | str) -> Self:
        """Move the batch to a device."""
        tensors = {
            name: value.to(device, non_blocking=True) for name, value in vars(self).items() if isinstance(value, Tensor)
        }
        return replace(self, **tensors)

    def zero_weight(self) -> Self:
        """Return these rows with no prediction counted."""
        return replace(self, tokens=0)


@dataclass(frozen=True)
class Batch(TensorBatch):
    """Pairs, right-padded with PAD; all int64.

    Args:
        source: (B, Ts).
        source_lengths: tokens of each source, (B,).
        target_in: BOS and the target, (B, Tt).
        target_out: the target and EOS, to predict from each token of target_in, (B, Tt).
        target_lengths: tokens of each target with its EOS, (B,).
        tokens: the sum of target_lengths.
    """

    source: Tensor
    source_lengths: Tensor
    target_in: Tensor
    target_out: Tensor
    target_lengths: Tensor
    tokens: int

    def trim_padding(self, longest: int | None) -> Batch:
        """Cut padding beyond the longest sequence that a model can read; no pair is longer than that."""
        target_in, target_out = self.target_in[:, :longest], self.target_out[:, :longest]
        return replace(self, source=self.source[:, :longest], target_in=target_in, target_out=target_out)


@dataclass(frozen=True)
class BatchSize:
    """Size of batches: in pairs, or in tokens counted with padding on the longer side.

    Raises:
        ArgumentError: both or neither is given.
    """

    pairs: int | None = None
    tokens: int | None = None

    def __post_init__(self) -> None:
        if (self.pairs is None) == (self.tokens is None):
            raise ArgumentError(f"a batch size is pairs or tokens, got pairs = {self.pairs} and tokens = {self.tokens}")

    def rows(self, longest: int) -> int:
        """Return the number of sentences of up to `longest` tokens in a batch, at least 1."""
        if self.pairs is not None:
            return self.pairs
        assert self.tokens is not None
        rows = self.tokens // longest
        return rows // ROW_MULTIPLE * ROW_MULTIPLE if rows >= ROW_MULTIPLE else max(rows, 1)


class Sequences:
    """Token sequences of different lengths, end to end in one array.

    Args:
        sequences: the sequences, each of any length.
    """

    def __init__(self, sequences: Sequence[Sequence[int]]) -> None:
        self.lengths = np.fromiter((len(sequence) for sequence in sequences), np.int64, len(sequences))
        self.starts = np.cumsum(self.lengths) - self.lengths
        self.tokens = np.fromiter(
            (token for sequence in sequences for token in sequence), np.int64, int(self.lengths.sum())
        )

    def __len__(self) -> int:
        return len(self.lengths)

    def pad(self, rows: np.ndarray, multiple: int = 1) -> np.ndarray:
        """Pad sequences to (B, T): T is the longest, rounded up to a multiple."""
        lengths = self.lengths[rows]
        columns = np.arange(round_up(max(int(lengths.max(initial=0)), 1), multiple))
        is_token = columns < lengths[:, None]  # (B, T)
        padded = np.full(is_token.shape, PAD, np.int64)
        padded[is_token] = self.concatenate(rows)
        return padded

    def concatenate(self, rows: np.ndarray) -> np.ndarray:
        """Return the tokens of these sequences, end to end."""
        lengths = self.lengths[rows]
        before = np.cumsum(lengths) - lengths
        return self.tokens[np.repeat(self.starts[rows] - before, lengths) + np.arange(lengths.sum())]


class Examples(ABC, Generic[B]):
    """Rows to learn from, which are cut into batches.

    Attributes:
        row_name: of a row in messages.
        answer_name: of a prediction that the loss averages, in messages.
    """

    row_name = "example"
    answer_name = "token"

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def lengths(self) -> np.ndarray:
        """Return the length of each row, (N,): batches have rows of similar lengths."""

    @property
    def token_sequences(self) -> Mapping[str, Sequences]:
        """Their token sequences, by the name of the tokenizer."""
        return {}

    @abstractmethod
    def token_count(self, rows: np.ndarray) -> int:
        """Return `tokens` of these rows' batch without making it."""

    @abstractmethod
    def batch(self, rows: np.ndarray) -> B:
        """Make a batch of these rows, the same every time: for evaluation."""

    def augmented(self, rows: np.ndarray, seed: int, epoch: int) -> B:
        """Make a batch of these rows for training; each row is a function of itself, the seed and the epoch alone."""
        return self.batch(rows)

    def fingerprint(self) -> list[np.ndarray]:
        """Return whole numbers that identify these examples.

        Processes, and resumed runs, check by them that they learn from the same.
        """
        return [sequences.lengths for sequences in self.token_sequences.values()]

    def digest(self) -> list[int]:
        """Return the number of examples, and a checksum of each part of their fingerprint."""
        return [len(self), *(zlib.crc32(numbers.astype(np.int32).tobytes()) for numbers in self.fingerprint())]

    def sorted_batches(self, size: BatchSize) -> Iterator[tuple[np.ndarray, B]]:
        """Iterate over batches of rows sorted by length, each with its rows: for evaluation."""
        for rows in cut_batches(np.argsort(self.lengths(), kind="stable"), self.lengths(), size):
            yield rows, self.batch(rows)

    def epoch_plan(self, size: BatchSize, seed: int, epoch: int) -> EpochPlan:
        """Plan the rows of each batch of an epoch: a function of the arguments alone, so that a run can be resumed.

        Rows are shuffled, sorted by length within pools of 32 batches, cut, and the batches shuffled.
        """
        lengths = self.lengths()
        generator = np.random.default_rng((seed, epoch))
        order = generator.permutation(len(self)).astype(np.int32 if len(self) < 2**31 else np.int64)
        pool = POOL * size.rows(max(int(lengths.mean()), 1))
        for number, begin in enumerate(range(0, len(order), pool)):
            part = order[begin : begin + pool]
            part[:] = part[np.argsort(lengths[part], kind="stable")]
            if number % 2:
                # Every other pool is reversed, so that no batch joins the longest rows of one pool to the shortest of
                # the next.
                part[:] = part[::-1].copy()
        ends = np.cumsum(np.fromiter((len(rows) for rows in cut_batches(order, lengths, size)), np.int64))
        return EpochPlan(order, ends, generator.permutation(len(ends)))

    def stream(self, size: BatchSize, seed: int, position: tuple[int, int] = (0, 0)) -> BatchStream[B]:
        """Stream the batches of shuffled epochs.

        Args:
            size: of a batch.
            seed: of the order.
            position: the epoch and the index of the batch in it to begin with.

        Raises:
            DataError: there is no row.
        """
        return BatchStream(self, size, seed, position)


class Bitext(Examples[Batch]):
    """Encoded pairs.

    Args:
        pairs: the pairs.
        source: tokenizer of the sources.
        target: tokenizer of the targets.
        length_multiple: pad lengths to a multiple of this; 1 saves work where rounding does not matter.
    """

    row_name = "pair"

    def __init__(
        self, pairs: Sequence[Pair], source: Tokenizer, target: Tokenizer, *, length_multiple: int = KEY_MULTIPLE
    ) -> None:
        self.source = Sequences([source.encode(pair.source) for pair in pairs])
        self.target = Sequences([[BOS, *target.encode(pair.target), EOS] for pair in pairs])
        self.length_multiple = length_multiple

    def __len__(self) -> int:
        return len(self.source)

    @property
    def token_sequences(self) -> Mapping[str, Sequences]:
        """The token sequences of both sides."""
        return {"source": self.source, "target": self.target}

    def batch(self, rows: np.ndarray) -> Batch:
        """Make a batch of these pairs."""
        target_lengths = self.target.lengths[rows].astype(np.int64) - 1
        # One column more than the keys: inputs and outputs are the same tokens, shifted by one.
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
        """Return the tokens of the longer side of each pair."""
        return np.maximum(self.source.lengths, self.target.lengths - 1)

    def token_count(self, rows: np.ndarray) -> int:
        """Return the number of target tokens of these pairs, with their EOS."""
        return int((self.target.lengths[rows].astype(np.int64) - 1).sum())


class EpochPlan:
    """The rows of each batch of an epoch, by the number of the batch.

    Args:
        rows: all rows, batch by batch, (N,).
        ends: of the batches in `rows`.
        order: of the batches.
    """

    def __init__(self, rows: np.ndarray, ends: np.ndarray, order: np.ndarray) -> None:
        self._rows, self._ends, self.order = rows, ends, order

    def __len__(self) -> int:
        return len(self.order)

    def __getitem__(self, index: int) -> np.ndarray:
        batch = int(self.order[index])
        return self._rows[int(self._ends[batch - 1]) if batch else 0 : int(self._ends[batch])]


class BatchStream(Iterator[B]):
    """Endless stream of batches that knows its position.

    Args:
        data: to cut batches of.
        size: of a batch.
        seed: of the order.
        position: the epoch and the index of the next batch in it; an attribute too.

    Raises:
        DataError: there is no row.
    """

    def __init__(self, data: Examples[B], size: BatchSize, seed: int, position: tuple[int, int]) -> None:
        if not len(data):
            raise DataError(f"there is no {data.row_name} to make batches of")
        self.data, self.size, self.seed, self.position = data, size, seed, position
        self._plan = data.epoch_plan(size, seed, position[0])

    @property
    def epoch_batches(self) -> int:
        """The number of batches in this epoch."""
        return len(self._plan)

    @property
    def epochs(self) -> float:
        """Passes through the data so far."""
        return self.position[0] + self.position[1] / len(self._plan)

    def __next__(self) -> B:
        return self._augmented(self.next_rows())

    def next_shard(self, index: int, count: int) -> tuple[B, int]:
        """Return a shard of the next batch, every `count`-th row from `index` on, and the tokens of the full batch.

        Other shards are not read. A shard without a row has the first one, with no token counted.

        Args:
            index: of the shard, from 0.
            count: of the shards.
        """
        rows = self.next_rows()
        tokens = self.data.token_count(rows)
        if index < len(rows):
            return self._augmented(rows[index::count]), tokens
        return self._augmented(rows[:1]).zero_weight(), tokens

    def next_rows(self) -> np.ndarray:
        """Return the rows of the next batch, and advance the position."""
        epoch, batch = self.position
        if batch >= len(self._plan):
            epoch, batch = epoch + 1, 0
            self._plan = self.data.epoch_plan(self.size, self.seed, epoch)
        self.position = epoch, batch + 1
        return self._plan[batch]

    def _augmented(self, rows: np.ndarray) -> B:
        # in the epoch of the last `next_rows`
        return self.data.augmented(rows, self.seed, self.position[0])


def cut_batches(order: np.ndarray, lengths: np.ndarray, size: BatchSize) -> Iterator[np.ndarray]:
    """Cut an order of rows into batches as large as the size allows.

    Args:
        order: of rows, (N,).
        lengths: tokens of each row.
        size: of a batch.
    """
    begin = 0
    while begin < len(order):
        end, longest = begin, 1
        while end < len(order):
            longer = max(longest, int(lengths[order[end]]))
            if end - begin >= size.rows(longer):
                break
            end, longest = end + 1, longer
        rows = end - begin
        if end < len(order) and ROW_MULTIPLE < rows < size.rows(longest):
            end -= rows % ROW_MULTIPLE
        yield order[begin:end]
        begin = end


def round_up(number: int, multiple: int) -> int:
    """Round a number up to a multiple."""
    return -(-number // multiple) * multiple
