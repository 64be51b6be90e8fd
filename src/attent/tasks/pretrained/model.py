"""A model of Hugging Face's transformers that reads a text or a picture: its attention, and its guesses for blanks."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from attent.attention.capture.watch import watch
from attent.attention.maps.attention_map import LabelledMap
from attent.errors import ArgumentError, DataError, refuse
from attent.layers.patches import patch_grid
from attent.tasks.classification.pictures import open_picture
from attent.tasks.fill_mask.examples import NO_BLANK, replace_blanks
from attent.tasks.fill_mask.fill_mask import BEST, AttendedPiece, Guess, MaskPrediction, mean_attention
from attent.views.build_scene import build_scene, kinds, patch_names
from attent.views.scene import Picture, Scene

Reads = Literal["text", "text and translation", "picture"]
# Suffix of the names of classes that predict masked words.
MASKED = "ForMaskedLM"
# Maximum tokens of an encoder–decoder's output, and a number that no limit reaches.
LONGEST, NO_LIMIT = 256, 2**40


class PretrainedModel:
    """A model of transformers, which reads a text or a picture.

    Args:
        model: put into evaluation mode.
        reads: its input: a text; a text and its translation (or other output of an encoder–decoder); or a picture.
        tokenizer: the model's tokenizer, or its image processor.
    """

    def __init__(self, model: Any, reads: Reads, tokenizer: Any) -> None:
        self.model, self.reads, self.tokenizer = model.eval(), reads, tokenizer
        self.device = next(model.parameters()).device

    def __repr__(self) -> str:
        return f"PretrainedModel({type(self.model).__name__}, reads a {self.reads})"

    @property
    def special_labels(self) -> tuple[str, ...]:
        """The labels of tokens that stand for no part of a text, such as [CLS] and [SEP]."""
        ids: Sequence[int] = getattr(self.tokenizer, "all_special_ids", ())
        of_texts = {getattr(self.tokenizer, f"{name}_token_id", None) for name in ("mask", "unk")}
        return (*self._labels([token for token in ids if token not in of_texts]),)

    def map(self, text: str, target: str | None = None) -> dict[str, LabelledMap]:
        """Return every attention map, by the path of its module, in the order of computation.

        A model with custom attention code returns its weights itself, as tensors (1, H, T, T) named `layers.0` and so
        on.

        Args:
            text: the text to read, or a picture's path.
            target: the output of an encoder–decoder; its own greedy output unless given.

        Raises:
            ArgumentError: nothing can be watched, or the model accepts no target.
            DataError: the text is empty or too long, or the picture cannot be read.
        """
        return self._read(text, target)[0]

    def scene(self, text: str, target: str | None = None) -> Scene:
        """Return the scene of a text, or of a picture with its patches; arguments and errors as for `map`."""
        maps, picture = self._read(text, target)
        return build_scene(maps, title=text, picture=picture)

    @torch.no_grad()
    def fill(
        self, text: str, best: int = BEST, *, layer: int | None = None, head: int | None = None
    ) -> list[MaskPrediction]:
        """Predict the masked words of a text; arguments as for `FillMask.fill`.

        Raises:
            ArgumentError: the model does not predict masked words, or has no such layer or head.
            DataError: the text has no mask, or more tokens than the model can read.
        """
        if not type(self.model).__name__.endswith(MASKED):
            raise ArgumentError(
                f"{type(self.model).__name__} does not predict masked words; use a model whose class ends in {MASKED}"
            )
        tokens = self._encode(text)
        positions = [position for position, token in enumerate(tokens) if token == self.tokenizer.mask_token_id]
        if not positions:
            raise DataError(NO_BLANK.format(text))
        outputs, maps = self._watch(input_ids=self._batch(tokens))
        pieces = [label.strip() or label for label in self._labels(tokens)]
        # a model may have more ids than the vocabulary, up to a round number
        probs = outputs.logits[0, positions].double().softmax(-1)[:, : len(self.tokenizer)]  # (N, words)
        weights = mean_attention([*maps.values()], layer, head, positions)  # (N, T)
        predictions: list[MaskPrediction] = []
        for position, row, row_weights in zip(positions, probs, weights.tolist(), strict=True):
            values, indices = (part.tolist() for part in row.topk(min(best, len(row))))
            guesses = tuple(map(Guess, [label.strip() for label in self._labels(indices)], values))
            predictions.append(MaskPrediction(position, guesses, tuple(map(AttendedPiece, pieces, row_weights))))
        return predictions

    def unknown_words(self, text: str) -> list[str]:
        """Return the distinct words of a text that the vocabulary lacks, in order."""
        unknown = self.tokenizer.unk_token_id
        mask = self.tokenizer.mask_token
        words = dict.fromkeys(word for word in replace_blanks(text, mask).split() if mask not in word)
        return [word for word in words if unknown in self.tokenizer(word, add_special_tokens=False).input_ids]

    @torch.no_grad()
    def _read(self, text: str, target: str | None) -> tuple[dict[str, LabelledMap], Picture | None]:
        name = type(self.model).__name__
        refuse(
            (
                target is not None and self.reads != "text and translation",
                f"{name} is not an encoder–decoder: it reads a {self.reads}, not a translation",
            ),
            (not isinstance(text, str | Path), f"{name} reads a {self.reads}, as a string, got {text!r}"),
        )
        if self.reads == "picture":
            return self._read_picture(Path(text))
        tokens = self._encode(text)
        source = (*self._labels(tokens),)
        if self.reads == "text":
            return {
                name: LabelledMap(weights, source, source)
                for name, weights in self._watch(input_ids=self._batch(tokens))[1].items()
            }, None
        start, *written = self._targets(tokens, target)
        given = [start, *written[:-1]]
        maps = self._watch(input_ids=self._batch(tokens), decoder_input_ids=self._batch(given), use_cache=False)[1]
        rows, columns = (*self._labels(written),), (*self._labels(given),)
        axes = {"encoder": (source, source), "cross": (rows, source), "decoder": (rows, columns)}
        return {
            name: LabelledMap(weights, *axes[kind])
            for (name, weights), kind in zip(maps.items(), kinds([*maps]), strict=True)
        }, None

    def _read_picture(self, file: Path) -> tuple[dict[str, LabelledMap], Picture]:
        pixels = self.tokenizer(
            images=open_picture(file).convert("RGB"), return_tensors="pt"
        ).pixel_values  # (1, C, H, W)
        maps = self._watch(pixel_values=pixels.to(self.device))[1]
        grid = patch_grid(pixels.shape[2], pixels.shape[3], self.model.config.patch_size)
        before = {weights.shape[-1] - grid[0] * grid[1] for weights in maps.values()}
        if len(before) != 1 or min(before) < 0 or any(weights.shape[0] != 1 for weights in maps.values()):
            raise ArgumentError(
                f"{type(self.model).__name__} does not look at all patches of a picture at once, as a Vision "
                "Transformer does"
            )
        picture = Picture(self._visible(pixels[0]).permute(1, 2, 0).numpy(), grid, before=before.pop())
        labels = (*patch_names(picture),)
        return {name: LabelledMap(weights, labels, labels) for name, weights in maps.items()}, picture

    def _visible(self, pixels: Tensor) -> Tensor:
        """Return the pixels that a model reads, (C, H, W), with the normalization undone."""
        if self.tokenizer.do_normalize:
            mean, deviation = (
                torch.tensor(values)[:, None, None] for values in (self.tokenizer.image_mean, self.tokenizer.image_std)
            )
            pixels = pixels * deviation + mean
        return pixels.clamp(0, 1)

    def _encode(self, text: str) -> list[int]:
        mask = getattr(self.tokenizer, "mask_token", None)
        tokens = self.tokenizer(text if mask is None else replace_blanks(text, mask)).input_ids
        longest = self._longest()
        refuse(
            (not tokens, "a text without tokens has no attention to show"),
            (
                longest is not None and len(tokens) > longest,
                f"the text has {len(tokens)} tokens, more than the {longest} that this model can read",
            ),
            kind=DataError,
        )
        return tokens

    def _longest(self) -> int | None:
        """Return the maximum number of tokens of a text; None for no limit."""
        positions = getattr(self.model.config, "max_position_embeddings", None) or 0
        limit = min(self.tokenizer.model_max_length, positions if positions > 0 else NO_LIMIT)
        # XLNet's positions are -1, and a tokenizer without a limit has a very large one
        return limit if limit < NO_LIMIT else None

    def _targets(self, tokens: list[int], target: str | None) -> list[int]:
        """Return the decoder's start token followed by its output tokens."""
        if target is None:
            written = self.model.generate(
                input_ids=self._batch(tokens),
                attention_mask=torch.ones_like(self._batch(tokens)),
                do_sample=False,
                num_beams=1,
                max_new_tokens=min(LONGEST, getattr(self.model.config, "max_position_embeddings", LONGEST) - 1),
            )
            return written[0].tolist()
        settings = self.model.generation_config
        start = settings.bos_token_id if settings.decoder_start_token_id is None else settings.decoder_start_token_id
        return [start, *self.tokenizer(text_target=target).input_ids]

    def _labels(self, tokens: Sequence[int]) -> Iterator[str]:
        # in some vocabularies, a piece that is only a space has no text
        return (
            self.tokenizer.decode([token]) or self.tokenizer.convert_ids_to_tokens(token) or f"<{token}>"
            for token in tokens
        )

    def _batch(self, tokens: list[int]) -> Tensor:
        return torch.tensor([tokens], device=self.device)

    def _watch(self, **inputs: Any) -> tuple[Any, dict[str, Any]]:
        """Run the model and return its outputs and attention maps, which are tensors if it cannot be watched."""
        name = type(self.model).__name__
        try:
            with watch(self.model) as maps:
                outputs = self.model(**inputs)
        except (AttributeError, TypeError, ValueError, IndexError, RuntimeError) as error:
            if all(hasattr(self.model.config, part) for part in ("text_config", "vision_config")):
                raise ArgumentError(
                    f"{name} reads a text and a picture together; attent shows models that read one of the two"
                ) from error
            raise ArgumentError(f"{name} does not read a {self.reads} by itself: {first_line(error)}") from error
        returned = {**maps} or self._returned(inputs)
        if not returned:
            raise ArgumentError(
                "there is no attention to show: " + "; ".join(line.strip() for line in str(maps).splitlines())
            )
        return outputs, returned

    def _returned(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """Return the weights (1, H, T, T) of each layer from a model whose own attention code returns them."""
        # windowed weights do not have a column for every token
        if self.reads == "text and translation" or hasattr(self.model.config, "attention_window"):
            return {}
        self.model.set_attn_implementation("eager")
        layers = getattr(self.model(**inputs, output_attentions=True), "attentions", None) or ()
        return {f"layers.{number}": weights for number, weights in enumerate(layers)}


def first_line(error: Exception) -> str:
    """Return the first line of an error's message, or its class if it has none."""
    return str(error).strip().partition("\n")[0] or type(error).__name__
