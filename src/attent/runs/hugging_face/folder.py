"""Readers of the files in a folder written by transformers.

They read settings, vocabularies, and tensors, which are memory-mapped and read one by one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from attent.bounded import open_regular, read_json, read_text
from attent.errors import DataError, RunError, reraise
from attent.runs.config import CONFIG
from attent.runs.weights import opened, shapes_in
from attent.text.tokenizer import MAX_FILE

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
TOKENIZER_CONFIG = "tokenizer_config.json"
# Maximum bytes of a JSON vocabulary and of a SentencePiece model, ten times the largest known ones.
LARGEST_JSON, LARGEST_MODEL = MAX_FILE, 2**26
# The maximum width or vocabulary size, and maximums of other numbers by name: no tensor bounds a table of positions.
LARGEST_SIZE, LARGEST_SIZES = 2**20, {"max_position_embeddings": 2**14}
# Maximum bytes of the model card or the licence.
LARGEST_TEXT = 2**22
# Pickled files, and files in Marian's own format.
PICKLED = "pytorch_model*.bin", "*.pt", "*.pth", "*.ckpt"
MARIAN = "decoder.yml", "*.npz", "model.*.bin", "model.*.bin.gz"
# Parts of tensor names, and the decoders that they belong to.
SSRU_DECODER = "a recurrent decoder (SSRU), which attent reads from Marian's own files alone"
FOREIGN = {"ssru": SSRU_DECODER, "rnn": SSRU_DECODER, "aan": "average attention (AAN), which attent does not support"}


class SourceFolder:
    """A folder written by transformers. No code in it is run, and only files directly in it are read.

    Args:
        path: the path of the folder.

    Raises:
        RunError: its config.json is missing or damaged.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self.config = self.json(CONFIG)
        self.generation = self.json("generation_config.json", {})
        self.tokenizer_config = self.json(TOKENIZER_CONFIG, {})
        self.special_tokens = self.json("special_tokens_map.json", {})

    def error(self, reason: str) -> RunError:
        """Return the error to raise if the folder cannot be imported."""
        return RunError(f"{self.path} cannot be imported: {reason}")

    def json(self, name: str, default: dict[str, Any] | None = None) -> dict[str, Any]:
        """Read a JSON object from a file; if the file is missing, return the default, if there is one.

        Raises:
            RunError: the file is missing, damaged or too large.
        """
        if default is not None and not (self.path / name).exists():
            return default
        with reraise(self.error, f"{name} is missing or damaged", OSError, DataError):
            content = read_json(self.path / name, LARGEST_JSON)
        if not isinstance(content, dict):
            raise self.error(f"{name} is damaged: it must contain a JSON object")
        return content

    def vocabulary(self, name: str) -> dict[str, int]:
        """Read a JSON file that maps pieces to ids.

        Raises:
            RunError: the file is missing or damaged, or two pieces have the same id.
        """
        ids = self.json(name)
        if not ids or any(type(token) is not int or token < 0 for token in ids.values()) or "" in ids:
            raise self.error(f"{name} is damaged: it must map pieces to ids")
        if len(set(ids.values())) != len(ids):
            raise self.error(f"{name} is damaged: two pieces have the same id")
        return ids

    def model(self, name: str) -> bytes:
        """Read the bytes of a SentencePiece model.

        Raises:
            RunError: the file is missing or too large.
        """
        with reraise(self.error, f"{name} is missing", OSError, DataError), open_regular(self.path / name) as file:
            content = file.read(LARGEST_MODEL + 1)
        if len(content) > LARGEST_MODEL:
            raise self.error(f"{name} has more than {LARGEST_MODEL:,} bytes")
        return content

    def number(self, name: str, maximum: int | None = None) -> int:
        """Return an integer in config.json from 1 to `maximum`, or to the default maximum for its name.

        Raises:
            RunError: the number is missing, not a whole number, or out of range.
        """
        value, maximum = self.config.get(name), min(maximum or LARGEST_SIZE, LARGEST_SIZES.get(name, LARGEST_SIZE))
        if type(value) is not int or not 1 <= value <= maximum:
            raise self.error(f"{CONFIG} is damaged: {name} must be a whole number from 1 to {maximum:,}, got {value!r}")
        return value

    def vocabulary_size(self, name: str) -> int:
        """Return the size of a vocabulary, which must not exceed that of the longest tensor.

        Raises:
            RunError: as in `number`; or the weights are missing or damaged.
        """
        return self.number(name, max((shape[0] for shape in self.weights.shapes.values() if shape), default=1))

    def token(self, name: str, size: int) -> int:
        """Return an id from generation_config.json, which takes precedence in transformers, or from config.json.

        Raises:
            RunError: the id is missing or not below the size of the vocabulary.
        """
        value = self.generation.get(name, self.config.get(name))
        if type(value) is not int or not 0 <= value < size:
            raise self.error(f"{name} must be an id below {size:,}, got {value!r}")
        return value

    @property
    def licence(self) -> str | None:
        """The licence named in the model card, or the first line of the file LICENSE."""
        card, text = (self.text(name) for name in ("README.md", "LICENSE"))
        named = (
            re.match(r"---\n(?:.*\n)*?license:[ \t]*(\S[^\n]*)\n(?:.*\n)*?---", card)
            if card.startswith("---\n")
            else None
        )
        return named[1].strip("\"' ") if named else next(filter(None, map(str.strip, text.splitlines())), None)

    @cached_property
    def weights(self) -> SourceWeights:
        """The tensors in a single file, or in several files with an index.

        Raises:
            RunError: the weights are missing, pickled or damaged.
        """
        if (self.path / INDEX).is_file():
            names = self.json(INDEX).get("weight_map")
            files = (
                sorted(set(names.values()))
                if isinstance(names, dict) and all(isinstance(name, str) for name in names.values())
                else []
            )
            if not files or any(Path(name).name != name or not name.endswith(".safetensors") for name in files):
                raise self.error(f"{INDEX} is damaged: its weight_map must name safetensors files in the folder")
            return SourceWeights(self, [self.path / name for name in files])
        if (self.path / WEIGHTS).exists():
            return SourceWeights(self, [self.path / WEIGHTS])
        pickled = sorted(file.name for pattern in PICKLED for file in self.path.glob(pattern))
        raise self.error(
            f"its weights are pickled ({pickled[0]}), which can run code; if you trust it, load it and write "
            "safetensors with model.save_pretrained(FOLDER)"
            if pickled
            else f"{WEIGHTS} is missing"
        )

    def text(self, name: str) -> str:
        """Read a text of the folder; empty if it is missing or unreadable."""
        try:
            return read_text(self.path / name, LARGEST_TEXT)
        except (OSError, DataError):
            return ""


class SourceWeights:
    """Tensors by name, read from memory-mapped files on access.

    Args:
        folder: the folder, for messages.
        files: the safetensors files.

    Attributes:
        shapes: the shape of every tensor, by name.

    Raises:
        RunError: a file is missing or damaged, or a tensor is in two of them.
    """

    def __init__(self, folder: SourceFolder, files: list[Path]) -> None:
        self._folder = folder
        self.shapes: dict[str, tuple[int, ...]] = {}
        self._files: dict[str, Path] = {}
        for file in files:
            for name, shape in shapes_in(file).items():
                if name in self._files:
                    raise folder.error(f"{name} is in two files")
                self.shapes[name], self._files[name] = shape, file
        self._opened: dict[Path, Any] = {}
        self._stack = ExitStack()

    def check(self, expected: Mapping[str, tuple[int, ...]], optional: Mapping[str, tuple[int, ...]]) -> None:
        """Check the tensors against a model with the sizes in the config, before memory is allocated.

        Args:
            expected: the expected shapes by name.
            optional: shapes of tensors that may be missing, by name.

        Raises:
            RunError: a tensor is missing, has another shape, or has no place in the model.
        """
        for name, shape in self.shapes.items():
            if name not in expected and name not in optional:
                foreign = next((kind for part, kind in FOREIGN.items() if part in name.lower()), None)
                reason = f"belongs to {foreign}" if foreign else "has no place in its model"
                raise self._folder.error(f"{name} {reason}")
            shape_expected = expected.get(name, optional.get(name))
            if shape != shape_expected:
                raise self._folder.error(f"{name} must be {shape_expected} by {CONFIG}, got {shape}")
        if missing := [name for name in expected if name not in self.shapes]:
            raise self._folder.error(f"{missing[0]} is missing from its weights")

    def __contains__(self, name: str) -> bool:
        return name in self.shapes

    def get(self, name: str, default: Tensor) -> Tensor:
        """Read a tensor, or return the default if there is none."""
        return self[name] if name in self.shapes else default

    def __getitem__(self, name: str) -> Tensor:
        """Read a tensor as float32.

        Raises:
            RunError: the tensor is damaged, or does not contain finite floating-point numbers.
        """
        file = self._files[name]
        if file not in self._opened:
            self._opened[file] = self._stack.enter_context(opened(file))
        tensor = self._opened[file].get_tensor(name)
        if not tensor.is_floating_point() or tensor.element_size() < torch.float16.itemsize:
            raise self._folder.error(f"{name} must contain floating-point numbers, got {tensor.dtype}")
        tensor = tensor.float()
        if not tensor.isfinite().all():
            raise self._folder.error(f"{name} contains values that are not finite")
        return tensor
