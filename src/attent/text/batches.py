"""Padded batches of encoded examples, such as pairs.

If the data allow it, a batch has a multiple of 8 rows and of 16 keys: matrix products then sum in the same order
regardless of the rest of the batch, and a sentence's result does not depend on its neighbors.
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
# Batches in a pool: rows are sorted by length only within pools, so that batches differ from epoch to epoch.
POOL = 32


class TrainingBatch(Protocol):
    """Interface of batches that training requires; their contents are up to the task and its loss."""

    @property
    def tokens(self) -> int:
        """The number of predictions that the loss averages."""
        ...

    def to(self, device: torch.device | str) -> Self:
        """Move the batch to a device."""
        ...

    def zero_weight(self) -> Self:
        """Return a batch that counts no predictions, for a process that has no row of a batch."""
        ...


B = TypeVar("B", bound=TrainingBatch)


@dataclass(frozen=True)
class TensorBatch:
    """Base class of batches whose fields are tensors and plain numbers."""

    def to(self, device: torch.device | str) -> Self:
        """Move the batch to a device."""
        tensors = {
            name: value.to(device, non_blocking=True) for name, value in vars(self).items() if isinstance(value, Tensor)
        }
        return replace(self, **tensors)

    def zero_weight(self) -> Self:
        """Return the same rows with no predictions counted."""
        return replace(self, tokens=0)


@dataclass(frozen=True)
class Batch(TensorBatch):
    """Batch of pairs, right-padded with PAD; all tensors of tokens and lengths are int64.

    Args:
        source: source tokens, (B, Ts); of pictures, float32 vectors, (B, Ts, D).
        source_lengths: number of tokens in each source, (B,).
        target_in: decoder input, BOS and the target, (B, Tt).
        target_out: tokens to predict, the target and EOS, (B, Tt).
        target_lengths: number of tokens in each target, including EOS, (B,).
        tokens: sum of target_lengths.
    """

    source: Tensor
    source_lengths: Tensor
    target_in: Tensor
    target_out: Tensor
    target_lengths: Tensor
    tokens: int

    def trim_padding(self, longest: int | None) -> Batch:
        """Trim padding beyond the longest sequence that a model can read; no pair may be longer than that."""
        target_in, target_out = self.target_in[:, :longest], self.target_out[:, :longest]
        return replace(self, source=self.source[:, :longest], target_in=target_in, target_out=target_out)


@dataclass(frozen=True)
class BatchSize:
    """Batch size: in pairs, or in tokens on the longer side, padding included.

    Raises:
        ArgumentError: both or neither are given.
    """

    pairs: int | None = None
    tokens: int | None = None

    def __post_init__(self) -> None:
        if (self.pairs is None) == (self.tokens is None):
            raise ArgumentError(
                f"a batch size is pairs or tokens, not both; got pairs = {self.pairs} and tokens = {self.tokens}"
            )

    def rows(self, longest: int) -> int:
        """Return how many sentences of up to `longest` tokens fit in a batch, at least 1."""
        if self.pairs is not None:
            return self.pairs
        assert self.tokens is not None
        rows = self.tokens // longest
        return rows // ROW_MULTIPLE * ROW_MULTIPLE if rows >= ROW_MULTIPLE else max(rows, 1)


class Sequences:
    """Token sequences of different lengths, concatenated in one array.

    Args:
        sequences: token sequences of any length.
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
        """Pad sequences to (B, T), where T is the longest length rounded up to a multiple."""
        lengths = self.lengths[rows]
        columns = np.arange(round_up(max(int(lengths.max(initial=0)), 1), multiple))
        is_token = columns < lengths[:, None]  # (B, T)
        padded = np.full(is_token.shape, PAD, np.int64)
        padded[is_token] = self.concatenate(rows)
        return padded

    def concatenate(self, rows: np.ndarray) -> np.ndarray:
        """Return the tokens of these sequences, concatenated."""
        lengths = self.lengths[rows]
        before = np.cumsum(lengths) - lengths
        return self.tokens[np.repeat(self.starts[rows] - before, lengths) + np.arange(lengths.sum())]


class Examples(ABC, Generic[B]):
    """Training examples, which are split into batches.

    Attributes:
        row_name: the word for an example in messages.
        answer_name: the word in messages for a prediction that the loss averages.
    """

    row_name = "example"
    answer_name = "token"

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def lengths(self) -> np.ndarray:
        """Return the length of each row, (N,); rows of similar length are batched together."""

    @property
    def token_sequences(self) -> Mapping[str, Sequences]:
        """Token sequences of the examples, by tokenizer name."""
        return {}

    @abstractmethod
    def token_count(self, rows: np.ndarray) -> int:
        """Return the `tokens` of a batch of these rows without building it."""

    @abstractmethod
    def batch(self, rows: np.ndarray) -> B:
        """Make a batch of these rows for evaluation; the result is always the same."""

    def augmented(self, rows: np.ndarray, seed: int, epoch: int) -> B:
        """Make a batch of these rows for training; each row depends only on itself, the seed and the epoch."""
        return self.batch(rows)

    def fingerprint(self) -> list[np.ndarray]:
        """Return integers that identify these examples.

        Processes and resumed runs use them to check that they train on the same data.
        """
        return [sequences.lengths for sequences in self.token_sequences.values()]

    def digest(self) -> list[int]:
        """Return the number of examples and a checksum of each part of their fingerprint."""
        return [len(self), *(zlib.crc32(numbers.astype(np.int32).tobytes()) for numbers in self.fingerprint())]

    def sorted_batches(self, size: BatchSize) -> Iterator[tuple[np.ndarray, B]]:
        """Iterate over batches of rows sorted by length for evaluation, each with the indices of its rows."""
        for rows in cut_batches(np.argsort(self.lengths(), kind="stable"), self.lengths(), size):
            yield rows, self.batch(rows)

    def epoch_plan(self, size: BatchSize, seed: int, epoch: int) -> EpochPlan:
        """Plan the rows of each batch of an epoch.

        The plan depends only on the arguments, so that a run can be resumed. Rows are shuffled, sorted by length within
        pools of 32 batches and split into batches, which are shuffled in turn.
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
            size: the batch size.
            seed: the seed of the order.
            position: the epoch and the index of its first batch to return.

        Raises:
            DataError: there are no rows.
        """
        return BatchStream(self, size, seed, position)


class Bitext(Examples[Batch]):
    """Encoded pairs.

    Args:
        pairs: the pairs.
        source: the tokenizer of the sources.
        target: the tokenizer of the targets.
        length_multiple: the multiple that lengths are padded to; 1 saves work where rounding does not matter.
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
        source = torch.from_numpy(self.source.pad(rows, self.length_multiple))
        return batch_of(source, self.source.lengths[rows], self.target, rows, self.length_multiple)

    def lengths(self) -> np.ndarray:
        """Return the number of tokens on the longer side of each pair, (N,)."""
        return np.maximum(self.source.lengths, self.target.lengths - 1)

    def token_count(self, rows: np.ndarray) -> int:
        """Return the number of target tokens of these pairs, including EOS."""
        return int((self.target.lengths[rows].astype(np.int64) - 1).sum())


def batch_of(
    source: Tensor, source_lengths: np.ndarray, target: Sequences, rows: np.ndarray, length_multiple: int
) -> Batch:
    """Make a batch of sources and their targets.

    Args:
        source: tokens (B, Ts), or vectors (B, Ts, D).
        source_lengths: number of tokens or vectors in each source, (B,).
        target: targets with BOS and EOS.
        rows: the indices of the batch's targets, (B,).
        length_multiple: the multiple that the targets' lengths are padded to.
    """
    target_lengths = target.lengths[rows].astype(np.int64) - 1
    # One more column than there are keys: inputs and outputs are the same tokens, shifted by one.
    padded = target.pad(rows)
    width = round_up(padded.shape[1] - 1, length_multiple) + 1
    tokens = torch.from_numpy(np.pad(padded, ((0, 0), (0, width - padded.shape[1])), constant_values=PAD))
    return Batch(
        source=source,
        source_lengths=torch.from_numpy(source_lengths.astype(np.int64)),
        target_in=tokens[:, :-1],
        target_out=tokens[:, 1:],
        target_lengths=torch.from_numpy(target_lengths),
        tokens=int(target_lengths.sum()),
    )


class EpochPlan:
    """The rows of each batch of an epoch, by batch number.

    Args:
        rows: all rows, batch by batch, (N,).
        ends: the end of each batch in `rows`.
        order: the order of the batches.
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
        data: the examples to batch.
        size: the batch size.
        seed: the seed of the order.
        position: the epoch and the index of its next batch; also an attribute.

    Raises:
        DataError: there are no rows.
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

    def __next__(self) -> B:
        return self._augmented(self.next_rows())

    def next_shard(self, index: int, count: int) -> tuple[B, int]:
        """Return a shard of the next batch, every `count`-th row from `index` on, and the tokens of the full batch.

        Other shards are not read. A shard without rows consists of the batch's first row, with no tokens counted.

        Args:
            index: the index of the shard, from 0.
            count: the number of shards.
        """
        rows = self.next_rows()
        tokens = self.data.token_count(rows)
        if index < len(rows):
            return self._augmented(rows[index::count]), tokens
        return self._augmented(rows[:1]).zero_weight(), tokens

    def next_rows(self) -> np.ndarray:
        """Return the rows of the next batch and advance the position."""
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
    """Split rows in a given order into batches as large as the batch size allows.

    Args:
        order: the row indices in order, (N,).
        lengths: the number of tokens in each row.
        size: the batch size.
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
