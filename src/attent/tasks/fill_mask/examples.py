"""Lines with masked tokens, for masked language models.

MASK has the id after the tokenizer's last id, so that any tokenizer can be used unchanged: a model reads `size + 1` ids
and predicts `size`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from attent.errors import DataError
from attent.text.batches import KEY_MULTIPLE, Examples, Sequences, TensorBatch
from attent.text.tokenizer import SPECIALS, Tokenizer

MASK = "[MASK]"
# A mask as a reader writes a blank: three or more underscores that are no part of a word.
BLANK = re.compile(r"(?<!\w)_{3,}(?!\w)")
NO_BLANK = f"there is no {MASK} or _____ in {{!r}}: write one of them for each blank, as a separate word"
# Replaces a mask while a tokenizer splits the text around it: a private-use character of Unicode.
PLACEHOLDER = "\ue000"
# The share of masked positions that training replaces by MASK; half of the others are replaced by a random token, half
# are left unchanged.
MASK_SHARE = 0.8


@dataclass(frozen=True)
class MaskedBatch(TensorBatch):
    """Lines with masked tokens; all int64.

    Args:
        token_ids: the input, (B, T), right-padded with PAD.
        lengths: the number of tokens of each line, (B,).
        positions: the indices of the masked tokens in the flattened `token_ids`, (N,).
        labels: the original tokens at these positions, (N,).
    """

    token_ids: Tensor
    lengths: Tensor
    positions: Tensor
    labels: Tensor

    @property
    def tokens(self) -> int:
        """The number of masked tokens."""
        return len(self.labels)

    def zero_weight(self) -> MaskedBatch:
        """Return these lines with no masked token to predict."""
        return MaskedBatch(self.token_ids, self.lengths, self.positions[:0], self.labels[:0])


class MaskedLines(Examples[MaskedBatch]):
    """Encoded lines whose masks are drawn anew in each epoch.

    In a line of n tokens, max(1, round(share · n)) are masked. Of these, 80 % are replaced by MASK, 10 % by a random
    token, and 10 % are left unchanged, so that features are also useful without masks.

    Source: Devlin et al. (2018), §3.1, arXiv 1810.04805; anew each epoch: Liu et al. (2019), §4.1, arXiv 1907.11692.

    Args:
        lines: the lines, none of them empty.
        size: the number of the tokenizer's ids, and the id of MASK.
        share: the share of each line to mask, from 0 to 1.
        length_multiple: the multiple to pad lengths to; 1 saves work where rounding does not matter.
    """

    row_name = "line"

    def __init__(self, lines: Sequences, size: int, share: float, *, length_multiple: int = KEY_MULTIPLE) -> None:
        self.lines, self.size, self.share, self.length_multiple = lines, size, share, length_multiple

    def __len__(self) -> int:
        return len(self.lines)

    @property
    def token_sequences(self) -> Mapping[str, Sequences]:
        return {"text": self.lines}

    def lengths(self) -> np.ndarray:
        """Return the number of tokens of each line."""
        return self.lines.lengths

    def token_count(self, rows: np.ndarray) -> int:
        """Return the number of masked tokens of these lines."""
        return int(self._mask_counts(rows).sum())

    def batch(self, rows: np.ndarray) -> MaskedBatch:
        """Make a batch with the same positions masked every time, all of them replaced by MASK."""
        return self._masked(rows, 0, 0, only_masks=True)

    def augmented(self, rows: np.ndarray, seed: int, epoch: int) -> MaskedBatch:
        return self._masked(rows, seed, epoch, only_masks=False)

    def _mask_counts(self, rows: np.ndarray) -> np.ndarray:
        return np.maximum(np.rint(self.share * self.lines.lengths[rows]).astype(np.int64), 1)

    def _masked(self, rows: np.ndarray, seed: int, epoch: int, *, only_masks: bool) -> MaskedBatch:
        lengths, tokens = (
            self.lines.lengths[rows].astype(np.int64),
            self.lines.pad(rows, self.length_multiple),
        )  # (B,), (B, T)
        hashes = hash_positions(seed, epoch, rows, tokens.shape[1])
        # mask the positions with the smallest hashes of each line
        hashes[np.arange(tokens.shape[1]) >= lengths[:, None]] = np.iinfo(np.uint64).max
        ranks = np.argsort(np.argsort(hashes, axis=1, kind="stable"), axis=1, kind="stable")
        positions = np.flatnonzero(ranks < self._mask_counts(rows)[:, None])
        labels, inputs, second_hashes = (
            tokens.ravel()[positions],
            tokens.ravel().copy(),
            splitmix64(hashes.ravel()[positions]),
        )
        uniform = second_hashes.astype(np.float64) / 2.0**64
        random_tokens = SPECIALS + splitmix64(second_hashes) % np.uint64(max(self.size - SPECIALS, 1))
        unmasked = np.where(uniform < (1 + MASK_SHARE) / 2, random_tokens.astype(np.int64), labels)
        inputs[positions] = self.size if only_masks else np.where(uniform < MASK_SHARE, self.size, unmasked)
        return MaskedBatch(*map(torch.from_numpy, (inputs.reshape(tokens.shape), lengths, positions, labels)))


def hash_positions(seed: int, epoch: int, rows: np.ndarray, length: int) -> np.ndarray:
    """Hash each position of some rows, (B, T), uint64; hashes depend only on seed, epoch, row and position."""
    row_hashes = splitmix64(
        splitmix64(splitmix64(np.full(1, seed, np.uint64)) + np.uint64(epoch)) + rows.astype(np.uint64)
    )
    return splitmix64(row_hashes[:, None] + np.arange(length, dtype=np.uint64))


def splitmix64(numbers: np.ndarray) -> np.ndarray:
    """Hash numbers, (…) → (…), uint64; SplitMix64 (Steele et al. 2014, doi 10.1145/2660193.2660195)."""
    numbers = numbers + np.uint64(0x9E3779B97F4A7C15)
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return numbers ^ (numbers >> np.uint64(31))


@dataclass(frozen=True)
class MaskedText:
    """Pieces of a text with masks.

    Args:
        tokens: the ids; that of MASK is the tokenizer's size.
        pieces: the label of each id; "[MASK]" for a mask.
        mask_positions: the indices of the masks.
    """

    tokens: Sequence[int]
    pieces: Sequence[str]
    mask_positions: Sequence[int]


def replace_blanks(text: str, mask: str) -> str:
    """Return a text with `mask` for each blank, written as [MASK] or as three or more underscores."""
    return BLANK.sub(lambda _: mask, text.replace(MASK, mask))


def has_blank(text: str) -> bool:
    """Return whether a text has a blank."""
    return replace_blanks(text, PLACEHOLDER) != text


def tokenize_masked(text: str, tokenizer: Tokenizer, is_masked: bool = True) -> MaskedText:
    """Tokenize a text with masks; a mask is a separate piece, which includes the space before it if pieces do.

    Args:
        text: the text, such as "the dog was [MASK] ." or "the dog was _____ ."
        tokenizer: the tokenizer of the rest of the text.
        is_masked: whether the text must have a mask.

    Raises:
        DataError: the text has no mask and must have one, or a mask is part of a word.
    """
    if is_masked and not has_blank(text):
        raise DataError(NO_BLANK.format(text))
    marked = replace_blanks(text.replace(PLACEHOLDER, " "), PLACEHOLDER)
    labels, ids = tokenizer.pieces(marked), tokenizer.encode(marked)
    # subword tokenizers write unknown characters as bytes
    in_bytes = [f"<0x{byte:02X}>" for byte in PLACEHOLDER.encode()]
    tokens, pieces, mask_positions, index = list[int](), list[str](), list[int](), 0
    while index < len(labels):
        piece, count = labels[index], 1
        if labels[index : index + len(in_bytes)] == in_bytes:
            piece, count = PLACEHOLDER, len(in_bytes)
            if pieces and pieces[-1] == "▁":
                del tokens[-1], pieces[-1]
        is_mask = piece.removeprefix(" ") == PLACEHOLDER
        if is_mask:
            mask_positions.append(len(pieces))
        elif PLACEHOLDER in piece:
            raise DataError(
                f"{MASK} stands for a whole word: put spaces around it in {piece.replace(PLACEHOLDER, MASK)!r}"
            )
        tokens.append(tokenizer.size if is_mask else ids[index])
        pieces.append(MASK if is_mask else piece)
        index += count
    return MaskedText(tokens, pieces, mask_positions)
