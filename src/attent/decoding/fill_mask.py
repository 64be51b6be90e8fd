"""A trained model, ready to guess blanks and to show what they looked at."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import overload

import numpy as np
import torch
from torch import Tensor

from attent.attention.capture.watch import watch
from attent.attention.maps.attention_map import AttentionMap
from attent.data.batches import Sequences
from attent.data.masked_lm import MaskedText, tokenize_masked
from attent.data.tokenizer import SPECIALS, UNK, Tokenizer
from attent.decoding.labelled import LabelledMap
from attent.errors import ArgumentError, DataError
from attent.models.encoder import EncoderModel
from attent.runs.folder import read

BEST = 5


@dataclass(frozen=True)
class Guess:
    """A word that may stand in a blank, and its probability among all words that the model knows, 0 to 1."""

    word: str
    probability: float


@dataclass(frozen=True)
class AttendedPiece:
    """A piece of the line, and how much of a blank's attention it has, 0 to 1."""

    piece: str
    weight: float


@dataclass(frozen=True)
class MaskPrediction:
    """One blank.

    Args:
        place: which piece of the line it is, from 0.
        guesses: the best words, the likeliest first.
        looks: where it looked, a weight for each piece of the line in order, itself included; together they are 1.
    """

    position: int
    guesses: tuple[Guess, ...]
    attention: tuple[AttendedPiece, ...]

    def top_attended(self, number: int = BEST) -> list[AttendedPiece]:
        """The pieces that it looked at most, the first first."""
        return sorted(self.attention, key=lambda piece: -piece.weight)[:number]

    def most(self, number: int = BEST) -> list[AttendedPiece]:
        """Call `top_attended` by its older name."""
        return self.top_attended(number)


class FillMask:
    """Guesses the blanks of a line.

    Args:
        model: reads one id more than the tokenizer has, which is MASK; put into evaluation mode.
        tokenizer: what cuts lines into pieces.
    """

    def __init__(self, model: EncoderModel, tokenizer: Tokenizer) -> None:
        self.model, self.tokenizer = model.eval(), tokenizer
        self.device = next(model.parameters()).device
        # a byte alone is no text
        self._words = [token for token in range(tokenizer.size - SPECIALS) if tokenizer.piece(token + SPECIALS)]

    @property
    def longest(self) -> int | None:
        """The most tokens that a line may have; None where there is no limit."""
        return self.model.longest

    @overload
    def fill(  # pyright: ignore[reportOverlappingOverload]
        self, text: str, best: int = ..., *, layer: int | None = ..., head: int | None = ...
    ) -> list[MaskPrediction]: ...
    @overload
    def fill(
        self, text: Sequence[str], best: int = ..., *, layer: int | None = ..., head: int | None = ...
    ) -> list[list[MaskPrediction]]: ...
    @torch.no_grad()
    def fill(
        self, text: str | Sequence[str], best: int = BEST, *, layer: int | None = None, head: int | None = None
    ) -> list[MaskPrediction] | list[list[MaskPrediction]]:
        """Guess the blanks of a text, each written as `[MASK]`; or those of each of several texts.

        All are guessed at once, and none knows of the others' guesses. A word that the model does not know is read in lower case, or
        with a space before it, where it knows that.

        Args:
            text: a line such as "the dog was [MASK] .", or a sequence of lines.
            best: how many words are guessed for each.
            layer: what a blank looked at in this layer, from 0; the mean over all of them unless given.
            head: the same of one head, from 0.

        Raises:
            ArgumentError: there is no such layer or head.
            DataError: there is no blank, a blank is part of a word, or the text is longer than the model can read.
        """
        if not isinstance(text, str):
            return [self.fill(line, best, layer=layer, head=head) for line in text]
        line = self._cut(text)
        with watch(self.model) as seen:
            logits = self.logits([line.tokens], [0] * len(line.mask_positions), line.mask_positions)
        chances = logits.double().softmax(-1)  # (N, V)
        weights = self._looks([*seen.values()], layer, head, line.mask_positions)  # (N, T)
        found: list[MaskPrediction] = []
        for place, row, looked in zip(line.mask_positions, chances, weights.tolist(), strict=True):
            top = row[self._words].topk(min(best, len(self._words)))
            guesses = (Guess(self._word(self._words[at]), chance) for chance, at in zip(*(part.tolist() for part in top), strict=True))
            looks = (AttendedPiece(piece.strip("▁ ") or piece, weight) for piece, weight in zip(line.pieces, looked, strict=True))
            found.append(MaskPrediction(place, tuple(guesses), tuple(looks)))
        return found

    @torch.no_grad()
    def map(self, text: str) -> dict[str, LabelledMap]:
        """Every attention map of a text with blanks, by the name of its module, in the order of computation.

        Raises:
            DataError: as `fill`.
        """
        line = self._cut(text)
        with watch(self.model) as seen:
            self.logits([line.tokens], [0], [0])
        pieces = (*line.pieces,)
        return {name: LabelledMap(weights, pieces, pieces) for name, weights in seen.items()}

    def logits(self, lines: Sequence[Sequence[int]], rows: Sequence[int], places: Sequence[int]) -> Tensor:
        """Logits of the words that may stand in some places, (N, V − SPECIALS): those of the ids from SPECIALS on.

        Args:
            lines: as ids, MASK being the tokenizer's size.
            rows: which line each place is of.
            places: the places.
        """
        sequences = Sequences(lines)
        tokens = torch.from_numpy(sequences.pad(np.arange(len(lines)))).to(self.device)
        features = self.model(tokens, torch.from_numpy(sequences.lengths).to(self.device))
        return self.model.output(features[list(rows), list(places)])[:, SPECIALS:]

    def unknown_words(self, text: str) -> list[str]:
        """The words of a text with blanks that the model does not know, each once, in order."""
        line = self._cut(text)
        return list(dict.fromkeys(piece.strip() for piece, token in zip(line.pieces, line.tokens, strict=True) if token == UNK))

    def _nearest(self, piece: str, token: int) -> int:
        """A token for a piece; one that is unknown is looked for with a space before it, and in lower case."""
        for other in (piece.strip(), piece.strip().lower()) if token == UNK else ():
            match self.tokenizer.encode(other):
                case [found] if found != UNK:
                    return found
        return token

    def _cut(self, text: str) -> MaskedText:
        line, longest = tokenize_masked(text, self.tokenizer), self.longest
        line = replace(line, tokens=[self._nearest(*one) for one in zip(line.pieces, line.tokens, strict=True)])
        if longest is not None and len(line.tokens) > longest:
            raise DataError(f"the text has {len(line.tokens)} tokens, more than the {longest} that this model can read")
        return line

    def _looks(self, maps: Sequence[AttentionMap], layer: int | None, head: int | None, places: Sequence[int]) -> Tensor:
        """What some places looked at, (N, T)."""
        heads = maps[0].shape[1]
        for name, number, most in (("layer", layer, len(maps)), ("head", head, heads)):
            if number is not None and not 0 <= number < most:
                raise ArgumentError(f"there are {most} {name}s, numbered from 0, got {name} {number}")
        some = maps if layer is None else [maps[layer]]
        rows = torch.stack([each[0, :, list(places)] for each in some])  # (L, H, N, T)
        return rows.mean((0, 1)) if head is None else rows[:, head].mean(0)

    def _word(self, token: int) -> str:
        return self.tokenizer.decode([token + SPECIALS])


def load(path: Path | str, device: torch.device | str = "cpu", *, trust_code: bool = False) -> FillMask:
    """The filler that a run folder holds.

    Raises:
        RunError: the folder is missing, damaged, or written by a newer version, or holds something else.
    """
    run = read(path, "fill-mask", trust_code)
    return FillMask(run.model.to(device), run.tokenizers["text"])


# The name of earlier versions.
Filler = FillMask
