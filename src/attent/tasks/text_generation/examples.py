"""Examples for language models: lines one by one, or running text in windows of a fixed number of tokens."""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from attent.tasks.fill_mask.examples import hash_positions
from attent.text.batches import Examples, Sequences, TensorBatch
from attent.text.tokenizer import BOS, EOS, PAD


@dataclass(frozen=True)
class LanguageModelBatch(TensorBatch):
    """Texts, right-padded with PAD; all int64.

    Args:
        inputs: BOS and all tokens except the last, (B, T).
        labels: the token that follows each input, (B, T).
        tokens: the number of labels, without padding.
    """

    inputs: Tensor
    labels: Tensor
    tokens: int


class LanguageModelExamples(Examples[LanguageModelBatch]):
    """Rows of text to predict token by token."""

    # encoded lines, none of them empty, without BOS and EOS
    lines: Sequences

    @property
    def token_sequences(self) -> Mapping[str, Sequences]:
        return {"text": self.lines}

    @abstractmethod
    def _tokens(self, rows: np.ndarray, shift: int) -> np.ndarray:
        """Return the tokens of rows, (B, T), right-padded; `shift` moves the windows of running text."""

    def token_count(self, rows: np.ndarray) -> int:
        return int(self.lengths()[rows].sum())

    def batch(self, rows: np.ndarray) -> LanguageModelBatch:
        return self._build_batch(rows, 0)

    def _build_batch(self, rows: np.ndarray, shift: int) -> LanguageModelBatch:
        labels = torch.from_numpy(self._tokens(rows, shift))
        inputs = torch.cat([torch.full_like(labels[:, :1], BOS), labels[:, :-1]], 1)
        return LanguageModelBatch(inputs, labels, self.token_count(rows))


class TextLines(LanguageModelExamples):
    """Lines, each of which begins with BOS and ends with EOS.

    Args:
        lines: the encoded lines.
    """

    row_name = "line"

    def __init__(self, lines: Sequences) -> None:
        self.lines = lines

    def __len__(self) -> int:
        return len(self.lines)

    def lengths(self) -> np.ndarray:
        """Return the number of tokens of each line, EOS included."""
        return self.lines.lengths + 1

    def _tokens(self, rows: np.ndarray, shift: int) -> np.ndarray:
        labels = np.pad(self.lines.pad(rows), ((0, 0), (0, 1)), constant_values=PAD)
        labels[np.arange(len(rows)), self.lines.lengths[rows]] = EOS
        return labels


class RunningText(LanguageModelExamples):
    """Windows of a text whose lines end with EOS; each window begins with BOS.

    In training, the windows begin at a different offset in each epoch, and the end of the text continues with its
    beginning.

    Args:
        lines: the encoded lines, in order.
        window: the number of tokens in a window.
    """

    row_name = "window"

    def __init__(self, lines: Sequences, window: int) -> None:
        self.lines = lines
        # where each line begins in the text, and where the text ends
        self._begins = np.concatenate([[0], np.cumsum(lines.lengths.astype(np.int64) + 1)])
        self.window = min(window, int(self._begins[-1]))

    def __len__(self) -> int:
        return int(self._begins[-1]) // self.window if self.window else 0

    def lengths(self) -> np.ndarray:
        """Return the number of tokens of each window."""
        return np.full(len(self), self.window)

    def augmented(self, rows: np.ndarray, seed: int, epoch: int) -> LanguageModelBatch:
        shift = int(hash_positions(seed, epoch, np.zeros(1, np.int64), 1)[0, 0] % np.uint64(self.window))
        return self._build_batch(rows, shift)

    def _tokens(self, rows: np.ndarray, shift: int) -> np.ndarray:
        return np.stack([self._read(row * self.window + shift) for row in rows.astype(np.int64)])

    def _read(self, begin: int) -> np.ndarray:
        """Return the window that begins at a token of the text."""
        size, parts, missing = int(self._begins[-1]), list[np.ndarray](), self.window
        while missing:
            begin %= size
            end = min(begin + missing, size)
            first, last = np.searchsorted(self._begins, (begin, end - 1), side="right") - 1
            numbers = np.arange(first, last + 1)
            # the lines that the window touches, each with its EOS
            tokens = np.insert(self.lines.concatenate(numbers), np.cumsum(self.lines.lengths[numbers]), EOS)
            parts.append(tokens[begin - self._begins[first] :][: end - begin])
            missing, begin = missing - (end - begin), end
        return np.concatenate(parts).astype(np.int64)
