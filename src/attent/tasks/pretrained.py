"""Pretrained models of Hugging Face's transformers, from a folder or the local cache.

They show attention and fill blanks. Weights are read from safetensors only, and no code in a model's folder is run.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from attent import bounded
from attent.attention.capture.watch import watch
from attent.attention.maps.attention_map import LabelledMap
from attent.errors import ArgumentError, DataError, RunError, needs
from attent.layers.patches import patch_grid
from attent.requirements import check_version
from attent.runs.config import CONFIG, is_pretrained
from attent.tasks.classification.pictures import open_picture
from attent.tasks.fill_mask.examples import NO_BLANK, replace_blanks
from attent.tasks.fill_mask.fill_mask import BEST, AttendedPiece, Guess, MaskPrediction, mean_attention
from attent.views.build_scene import build_scene, kinds, patch_names
from attent.views.scene import Picture, Scene

Reads = Literal["text", "text and translation", "picture"]
NEED, EXTRA = "Hugging Face's models need transformers", "transformers"
# Suffix of the names of classes that predict masked words.
MASKED = "ForMaskedLM"
# Suffixes of the names of classes that predict the next token.
CAUSAL = ("ForCausalLM", "LMHeadModel")
# Suffix of the names of classes that are only the encoder of an encoder–decoder.
ENCODER = "EncoderModel"
PROCESSOR = "preprocessor_config.json"
# Files of a folder that may name custom code, under AUTO_MAP.
SETTINGS = (CONFIG, "tokenizer_config.json", PROCESSOR, "processor_config.json")
AUTO_MAP = "auto_map"
# Maximum bytes of each; a tokenizer's config lists its added tokens.
LARGEST = 2**24
# The name of a model on Hugging Face's hub, with or without its owner.
NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")
# Files to download: settings, vocabularies and safetensors at the top level.
FILES = ("*.json", "*.txt", "*.model", "*.spm", "model*.safetensors")
# Maximum tokens of an encoder–decoder's output.
LONGEST = 256


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
        if target is not None and self.reads != "text and translation":
            raise ArgumentError(
                f"{type(self.model).__name__} is not an encoder–decoder: it reads a {self.reads}, not a translation"
            )
        if not isinstance(text, str | Path):
            raise ArgumentError(f"{type(self.model).__name__} reads a {self.reads}, as a string, got {text!r}")
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
        positions = getattr(self.model.config, "max_position_embeddings", None) or 0
        # XLNet's -1 is no limit
        longest = min(self.tokenizer.model_max_length, positions if positions > 0 else len(tokens))
        if not tokens:
            raise DataError("a text without tokens has no attention to show")
        if len(tokens) > longest:
            raise DataError(f"the text has {len(tokens)} tokens, more than the {longest} that this model can read")
        return tokens

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
            raise ArgumentError(f"{name} does not read a {self.reads} by itself: {_first_line(error)}") from error
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


def find(model: Path | str, *, download: bool = False) -> Path | None:
    """Return the folder of a model, given directly or found in Hugging Face's local cache.

    Return None for anything else, such as a run.

    Args:
        model: a folder, or the name of a model on Hugging Face's hub, such as "google-bert/bert-base-uncased".
        download: whether a model's settings, vocabulary and safetensors may be downloaded into the cache.

    Raises:
        RunError: there is no such folder and no such model in the cache, or the model cannot be downloaded.
    """
    path, name = Path(model), Path(model).as_posix()
    if path.exists() or not NAME.fullmatch(name):
        return path if is_pretrained(path) else None
    with needs(f"{name} is not a run folder; {NEED}", EXTRA, RunError):
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError
    try:
        folder = snapshot_download(
            name, local_files_only=not download, allow_patterns=[*FILES], ignore_patterns=["*/*"]
        )
    except HFValidationError:
        return None
    except Exception as error:
        # the hub's client does not wrap transport errors
        if isinstance(error, LocalEntryNotFoundError) and not download:
            raise RunError(
                f"{name} is not a run folder, nor a model in Hugging Face's local cache; --download fetches a model"
            ) from error
        raise RunError(f"{name} is not a run folder, and cannot be fetched as a model: {_first_line(error)}") from error
    return Path(folder)


def load(folder: Path | str, device: torch.device | str = "cpu") -> PretrainedModel:
    """Load the model of a folder in float32, from safetensors only and without running code from the folder.

    Args:
        folder: a model folder as written by `save_pretrained`; `find` returns that of a model in Hugging Face's local
            cache.
        device: where to compute.

    Raises:
        RunError: transformers is not installed, or the model cannot be loaded, has no safetensors, has no vocabulary or
            names custom code.
    """
    folder = Path(folder)
    with needs(NEED, EXTRA, RunError):
        import transformers
    check_version("transformers", transformers.__version__)
    _check_files(folder)
    options: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
    with _quiet(transformers), _one_line(folder):
        config = transformers.AutoConfig.from_pretrained(folder, **options)
        reads, model_class, tokenizer_class = _classes(transformers, config, folder)
        model, report = model_class.from_pretrained(
            folder, config=config, dtype=torch.float32, use_safetensors=True, output_loading_info=True, **options
        )
        tokenizer = tokenizer_class.from_pretrained(folder, **options)
    # if the folder has no vocabulary, transformers makes an empty one, in which every word is unknown
    if reads != "picture" and len(tokenizer) <= len(tokenizer.all_special_tokens):
        raise RunError(
            f"{folder} has no tokenizer vocabulary: tokenizer.save_pretrained({folder.name!r}) writes it beside the "
            "model"
        )
    # poolers come after all attention
    if missing := sorted(key for key in report["missing_keys"] if "pooler" not in key):
        raise RunError(f"{folder} cannot be loaded: its weights lack {missing[0]} of {type(model).__name__}")
    return PretrainedModel(model.to(device), reads, tokenizer)


def _classes(transformers: Any, config: Any, folder: Path) -> tuple[Reads, Any, Any]:
    """Return the input kind of a model, and transformers' classes for it (with a head if needed) and its tokenizer."""
    if any(name.endswith(ENCODER) for name in config.architectures or ()):
        return "text", transformers.AutoModelForTextEncoding, transformers.AutoTokenizer
    if getattr(config, "is_encoder_decoder", False):
        return "text and translation", transformers.AutoModelForSeq2SeqLM, transformers.AutoTokenizer
    if (folder / PROCESSOR).exists() and hasattr(config, "patch_size"):
        return "picture", transformers.AutoModel, transformers.AutoImageProcessor
    if any(name.endswith(CAUSAL) for name in config.architectures or ()):
        return "text", transformers.AutoModelForCausalLM, transformers.AutoTokenizer
    is_masked = any(name.endswith(MASKED) for name in config.architectures or ())
    model_class = transformers.AutoModelForMaskedLM if is_masked else transformers.AutoModel
    return "text", model_class, transformers.AutoTokenizer


def _check_files(folder: Path) -> None:
    """Check that a folder has safetensors and names no code.

    Raises:
        RunError: the check fails, or a settings file cannot be read.
    """
    if not (folder / CONFIG).is_file():
        lacks = f"has no {CONFIG}" if folder.is_dir() else "is no folder"
        raise RunError(f"{folder} {lacks}, and a model must be a folder written by save_pretrained")
    for file in (folder / name for name in SETTINGS):
        if not file.exists():
            continue
        try:
            settings = bounded.read_json(file, LARGEST)
        except (OSError, DataError) as error:
            raise RunError(f"{file} cannot be read: {getattr(error, 'strerror', None) or error}") from error
        if isinstance(settings, dict) and AUTO_MAP in settings:
            raise RunError(f"{file} names custom code ({AUTO_MAP}), and attent does not run code from model folders")
    if not any(folder.glob("*.safetensors")):
        pickled = next(
            (file.name for pattern in ("*.bin", "*.pt", "*.h5") for file in sorted(folder.glob(pattern))), "no weights"
        )
        raise RunError(f"{folder} has {pickled}, but attent reads only safetensors: save_pretrained writes them")


@contextmanager
def _quiet(transformers: Any) -> Iterator[None]:
    """Silence transformers' loading reports; the relevant ones are checked in `load`."""
    logging = transformers.utils.logging
    verbosity, had_bar = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        restore: Callable[[], None] = logging.enable_progress_bar if had_bar else logging.disable_progress_bar
        restore()


@contextmanager
def _one_line(folder: Path) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        # transformers does not wrap errors in the model's files and code
        raise RunError(f"{folder} cannot be loaded: {_first_line(error)}") from error


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__
