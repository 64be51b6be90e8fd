"""A trained masked language model: it predicts masked words, and shows its attention."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import overload

import numpy as np
import torch
from torch import Tensor

from attent.attention.capture.watch import watch
from attent.attention.maps.attention_map import AttentionMap, LabelledMap
from attent.errors import DataError, check_index
from attent.models.encoder import EncoderModel
from attent.runs.config import DType
from attent.tasks.fill_mask.examples import MaskedText, tokenize_masked
from attent.tasks.from_run import FromRun, load_tool
from attent.text.batches import Sequences
from attent.text.tokenizer import SPECIALS, UNK, Tokenizer
from attent.views.trace import ForwardPass

BEST = 5


@dataclass(frozen=True)
class Guess:
    """A candidate word for a mask, and its probability among all words of the vocabulary, 0 to 1."""

    word: str
    probability: float


@dataclass(frozen=True)
class AttendedPiece:
    """A piece of the line, and its share of a mask's attention, 0 to 1."""

    piece: str
    weight: float


@dataclass(frozen=True)
class MaskPrediction:
    """The prediction for one mask.

    Args:
        position: the index of the mask among the pieces of the line.
        guesses: the most probable words, the best first.
        attention: the weight of each piece of the line in order, the mask included; the weights sum to 1.
    """

    position: int
    guesses: tuple[Guess, ...]
    attention: tuple[AttendedPiece, ...]

    def top_attended(self, number: int = BEST) -> list[AttendedPiece]:
        """Return the pieces with the largest weights, the largest first."""
        return sorted(self.attention, key=lambda piece: -piece.weight)[:number]


class FillMask(FromRun):
    """Predicts the masked words of a line.

    Args:
        model: the model, which reads one more id than the tokenizer has, MASK; it is set to evaluation mode.
        tokenizer: splits lines into pieces.
    """

    def __init__(self, model: EncoderModel, tokenizer: Tokenizer) -> None:
        self.model, self.tokenizer, self.longest = model.eval(), tokenizer, model.longest
        self.device = next(model.parameters()).device
        # a single byte of a character has no text, and is not a candidate
        self._words = [token for token in range(tokenizer.size - SPECIALS) if tokenizer.piece(token + SPECIALS)]

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
        """Predict the masked words of a text, each written as `[MASK]` or `_____`; or those of several texts.

        All masks of a text are predicted at the same time, independently of each other. A word that the vocabulary
        lacks is read in lower case, or with a space before it, if the vocabulary has that form.

        Args:
            text: a line such as "the dog was [MASK] .", or a sequence of lines.
            best: the number of guesses for each mask.
            layer: the layer whose attention is returned, from 0; the mean over layers by default.
            head: the head whose attention is returned, from 0; the mean over heads by default.

        Raises:
            ArgumentError: the model has no such layer or head.
            DataError: the text has no mask, a mask inside a word, or more tokens than the model can read.
        """
        if not isinstance(text, str):
            return [self.fill(line, best, layer=layer, head=head) for line in text]
        line = self._tokenize(text)
        with watch(self.model) as maps:
            logits = self.logits([line.tokens], [0] * len(line.mask_positions), line.mask_positions)
        probs = logits.double().softmax(-1)[:, self._words]  # (N, words)
        weights = mean_attention([*maps.values()], layer, head, line.mask_positions)  # (N, T)
        pieces = [piece.strip("▁ ") or piece for piece in line.pieces]
        predictions: list[MaskPrediction] = []
        for position, row, row_weights in zip(line.mask_positions, probs, weights.tolist(), strict=True):
            values, indices = (part.tolist() for part in row.topk(min(best, len(self._words))))
            words = (self.tokenizer.decode([self._words[index] + SPECIALS]) for index in indices)
            predictions.append(
                MaskPrediction(
                    position, tuple(map(Guess, words, values)), tuple(map(AttendedPiece, pieces, row_weights))
                )
            )
        return predictions

    @torch.no_grad()
    def map(self, text: str, *, gradients: bool = False) -> dict[str, LabelledMap]:
        """Return every attention map of a text, by the name of its module, in the order of computation.

        Args:
            text: the text, with or without masks.
            gradients: whether to include the weights times the gradients of the best guesses' log-probability with
                respect to them; without a mask, there are none.

        Raises:
            DataError: the text has no token, a mask inside a word, or more tokens than the model can read.
        """
        line = self._tokenize(text, is_masked=False)
        if not line.tokens:
            raise DataError("a text without tokens has no attention to show")
        with torch.set_grad_enabled(gradients), watch(self.model, gradients=gradients) as maps:
            logits = self.logits([line.tokens], [0] * len(line.mask_positions), line.mask_positions)
            derived = (
                maps.last_gradients(logits[:, self._words].log_softmax(-1).amax(-1).sum())
                if gradients and line.mask_positions
                else {}
            )
        pieces = (*line.pieces,)
        return {name: LabelledMap(weights, pieces, pieces, derived.get(name)) for name, weights in maps.items()}

    def forward_pass(self, text: str) -> ForwardPass:
        """Return the forward pass over a text; its outputs are at the masks, or at every token if there is no mask.

        Raises:
            DataError: as for `map`.
        """
        masks, tokenizer = self._tokenize(text, is_masked=False).mask_positions, self.tokenizer
        return ForwardPass(
            text,
            self.model,
            lambda: self.map(text),
            "encoder",
            lambda token: tokenizer.decode([token]),
            "words",
            SPECIALS,
            masks or None,
        )

    @torch.no_grad()
    def features(self, text: str, word: str | None = None) -> Tensor:
        """Return the features of a text, (layers + 1, T, E), or of a word in it, (layers + 1, E).

        The features are those before the first layer and after each layer. The first are embeddings, in which a word
        has the same features in every context (except for positions that are added to them); words are predicted from
        the last.

        Args:
            text: a line, with or without masks.
            word: a piece of the text; its first occurrence is used.

        Raises:
            DataError: the word is not a piece of the text, or the text has no piece, or more than the model can read.
        """
        line = self._tokenize(text, is_masked=False)
        pieces = [piece.strip("▁ ") for piece in line.pieces]
        if not pieces or (word is not None and word not in pieces):
            raise DataError(f"{word!r} is not one of the pieces of {text!r}: {', '.join(pieces)}")
        tokens = torch.tensor([line.tokens], device=self.device)
        by_layer = torch.cat(self.model.by_layer(tokens, torch.tensor([len(pieces)], device=self.device)))
        return by_layer if word is None else by_layer[:, pieces.index(word)]

    def logits(self, lines: Sequence[Sequence[int]], rows: Sequence[int], positions: Sequence[int]) -> Tensor:
        """Return the logits of the words, which are the ids from SPECIALS on, at N positions, (N, V − SPECIALS).

        Args:
            lines: the ids of each line, with the tokenizer's size as MASK.
            rows: the index of each position's line.
            positions: the index of each position in its line.
        """
        sequences = Sequences(lines)
        tokens = torch.from_numpy(sequences.pad(np.arange(len(lines)))).to(self.device)
        features = self.model(tokens, torch.from_numpy(sequences.lengths).to(self.device))
        return self.model.output(features[list(rows), list(positions)])[:, SPECIALS:]

    def unknown_words(self, text: str) -> list[str]:
        """Return the words of a text that the vocabulary lacks, without repetition, in order."""
        line = self._tokenize(text, is_masked=False)
        return list(
            dict.fromkeys(piece.strip() for piece, token in zip(line.pieces, line.tokens, strict=True) if token == UNK)
        )

    def _resolve_unknown(self, piece: str, token: int) -> int:
        """Return the token of a piece; if unknown, that of the piece without spaces, or else in lower case."""
        for form in (piece.strip(), piece.strip().lower()) if token == UNK else ():
            match self.tokenizer.encode(form):
                case [single] if single != UNK:
                    return single
        return token

    def _tokenize(self, text: str, is_masked: bool = True) -> MaskedText:
        line, longest = tokenize_masked(text, self.tokenizer, is_masked), self.longest
        line = replace(line, tokens=list(map(self._resolve_unknown, line.pieces, line.tokens)))
        if longest is not None and len(line.tokens) > longest:
            raise DataError(f"the text has {len(line.tokens)} tokens, more than the {longest} that this model can read")
        return line


def mean_attention(
    maps: Sequence[AttentionMap], layer: int | None, head: int | None, positions: Sequence[int]
) -> Tensor:
    """Return the attention of N positions of one text, (N, T), averaged over layers and heads unless one is given.

    Args:
        maps: the attention map of each layer, (1, H, T, T).
        layer: the layer, from 0; the mean over layers by default.
        head: the head, from 0; the mean over heads by default.
        positions: the positions of the queries.

    Raises:
        ArgumentError: there is no such layer or head.
    """
    for name, number, count in (("layer", layer, len(maps)), ("head", head, maps[0].shape[1])):
        if number is not None:
            check_index(name, number, count)
    layers = maps if layer is None else [maps[layer]]
    rows = torch.stack([weights[0, :, list(positions)] for weights in layers])  # (L, H, N, T)
    return rows.mean((0, 1)) if head is None else rows[:, head].mean(0)


def load(
    path: Path | str, device: torch.device | str = "cpu", *, trust_code: bool = False, dtype: DType | None = None
) -> FillMask:
    """Load the masked language model of a run folder.

    Raises:
        ArgumentError: the model cannot be computed here with weights of this type.
        RunError: the folder is missing, damaged or written by a newer version, or it is a run of another task.
    """
    return load_tool(
        path,
        "fill-mask",
        lambda run: FillMask(run.model, run.tokenizers["text"]),
        device,
        trust_code=trust_code,
        dtype=dtype,
    )
