"""Lines with blanks to be guessed: which places of each, and what is read there instead.

MASK is an id of its own behind those of the tokenizer, so that any tokenizer serves as it is: a model reads `size + 1` ids
and tells `size` of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from attent.data.batches import KEY_MULTIPLE, Examples, Sequences
from attent.data.tokenizer import SPECIALS, Tokenizer
from attent.errors import DataError

MASK = "[MASK]"
# Stands for a blank while a tokenizer cuts the text around it: a character of Unicode's private use.
STAND_IN = "\ue000"
# Of the blanks of training, those that are masked; of the others one half is another token, the other what it was.
MASKED = 0.8


@dataclass(frozen=True)
class MaskedBatch:
    """Lines with blanks; all int64.

    Args:
        token_ids: what is read, (B, T), right-padded with PAD.
        lengths: tokens of each line, (B,).
        positions: where the blanks are, counted through all rows of `lines`, (N,).
        labels: what stood there, (N,).
    """

    token_ids: Tensor
    lengths: Tensor
    positions: Tensor
    labels: Tensor

    @property
    def tokens(self) -> int:
        """How many blanks there are."""
        return len(self.labels)

    def to(self, device: torch.device | str) -> MaskedBatch:
        """The same batch on another device."""
        return MaskedBatch(*(field.to(device, non_blocking=True) for field in (self.token_ids, self.lengths, self.positions, self.labels)))

    def zero_weight(self) -> MaskedBatch:
        """The same lines without a blank."""
        return MaskedBatch(self.token_ids, self.lengths, self.positions[:0], self.labels[:0])


class MaskedLines(Examples[MaskedBatch]):
    """Encoded lines in which blanks are made anew each time that they are learnt from.

    Of a line of n tokens max(1, round(share · n)) are to be guessed. Of these 80 % are read as MASK, 10 % as any token, and 10 %
    as what they are, so that features are worth something where nothing is masked.

    Source: Devlin et al. (2018), §3.1, arXiv 1810.04805; anew each epoch: Liu et al. (2019), §4.1, arXiv 1907.11692.

    Args:
        lines: the lines, none of them empty.
        size: the tokenizer's ids; MASK is the one behind them.
        share: of each line, 0 to 1.
        length_multiple: lengths are padded to a multiple of this; 1 saves work where rounding does not matter.
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
        """Tokens of each line."""
        return self.lines.lengths

    def token_count(self, rows: np.ndarray) -> int:
        """The blanks of these lines."""
        return int(self._blanks(rows).sum())

    def batch(self, rows: np.ndarray) -> MaskedBatch:
        """These lines with the same blanks every time, all of which are masked."""
        return self._blanked(rows, 0, 0, all_masked=True)

    def augmented(self, rows: np.ndarray, seed: int, epoch: int) -> MaskedBatch:
        return self._blanked(rows, seed, epoch, all_masked=False)

    def fingerprint(self) -> list[np.ndarray]:
        """The lengths of the lines."""
        return [self.lines.lengths]

    def _blanks(self, rows: np.ndarray) -> np.ndarray:
        return np.maximum(np.rint(self.share * self.lines.lengths[rows]).astype(np.int64), 1)

    def _blanked(self, rows: np.ndarray, seed: int, epoch: int, *, all_masked: bool) -> MaskedBatch:
        lengths, tokens = self.lines.lengths[rows].astype(np.int64), self.lines.pad(rows, self.length_multiple)  # (B,), (B, T)
        drawn = hashed(seed, epoch, rows, tokens.shape[1])
        # the least numbers of each line are its blanks
        drawn[np.arange(tokens.shape[1]) >= lengths[:, None]] = np.iinfo(np.uint64).max
        ranks = np.argsort(np.argsort(drawn, axis=1, kind="stable"), axis=1, kind="stable")
        places = np.flatnonzero(ranks < self._blanks(rows)[:, None])
        told, read, dice = tokens.ravel()[places], tokens.ravel().copy(), mixed(drawn.ravel()[places])
        lots = dice.astype(np.float64) / 2.0**64
        others = SPECIALS + mixed(dice) % np.uint64(max(self.size - SPECIALS, 1))
        as_they_are = np.where(lots < (1 + MASKED) / 2, others.astype(np.int64), told)
        read[places] = self.size if all_masked else np.where(lots < MASKED, self.size, as_they_are)
        return MaskedBatch(
            token_ids=torch.from_numpy(read.reshape(tokens.shape)),
            lengths=torch.from_numpy(lengths),
            positions=torch.from_numpy(places),
            labels=torch.from_numpy(told),
        )


def hashed(seed: int, epoch: int, rows: np.ndarray, length: int) -> np.ndarray:
    """A number for each place of some rows, (B, T), which nothing but seed, epoch, row and place decides; uint64."""
    of_row = mixed(mixed(mixed(np.full(1, seed, np.uint64)) + np.uint64(epoch)) + rows.astype(np.uint64))
    return mixed(of_row[:, None] + np.arange(length, dtype=np.uint64))


def mixed(numbers: np.ndarray) -> np.ndarray:
    """Other numbers, as if drawn at random, (…) → (…), uint64; SplitMix64 (Steele et al. 2014, doi 10.1145/2660193.2660195)."""
    numbers = numbers + np.uint64(0x9E3779B97F4A7C15)
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return numbers ^ (numbers >> np.uint64(31))


@dataclass(frozen=True)
class MaskedText:
    """A text with blanks, cut into pieces.

    Args:
        tokens: its ids, MASK being the tokenizer's size.
        pieces: what each stands for; MASK itself for a blank.
        mask_positions: where the blanks are among them.
    """

    tokens: Sequence[int]
    pieces: Sequence[str]
    mask_positions: Sequence[int]


def tokenize_masked(text: str, tokenizer: Tokenizer) -> MaskedText:
    """Cut a text with blanks into pieces; a blank is one of them, with the space before it where pieces have theirs.

    Args:
        text: such as "the dog was [MASK] ."
        tokenizer: what cuts it.

    Raises:
        DataError: the text has no blank, or a blank is part of a word.
    """
    if MASK not in text:
        raise DataError(f"there is no {MASK}, as a blank is written, in {text!r}")
    whole = text.replace(STAND_IN, " ").replace(MASK, STAND_IN)
    cut, ids = tokenizer.pieces(whole), tokenizer.encode(whole)
    # pieces of words write what they do not know in bytes
    in_bytes = [f"<0x{byte:02X}>" for byte in STAND_IN.encode()]
    tokens, pieces, blanks, place = list[int](), list[str](), list[int](), 0
    while place < len(cut):
        piece, taken = cut[place], 1
        if cut[place : place + len(in_bytes)] == in_bytes:
            piece, taken = STAND_IN, len(in_bytes)
            if pieces and pieces[-1] == "▁":
                del tokens[-1], pieces[-1]
        if piece.removeprefix(" ") == STAND_IN:
            blanks.append(len(pieces))
        elif STAND_IN in piece:
            raise DataError(f"{MASK} stands for a whole word: put spaces around it in {piece.replace(STAND_IN, MASK)!r}")
        tokens.append(tokenizer.size if piece.removeprefix(" ") == STAND_IN else ids[place])
        pieces.append(MASK if piece.removeprefix(" ") == STAND_IN else piece)
        place += taken
    return MaskedText(tokens, pieces, blanks)
