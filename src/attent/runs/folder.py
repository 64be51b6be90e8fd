"""A run folder, written whole or not at all, and read with every damage named.

What it holds:
    config.json              format, versions, kinds of tokenizer, settings of corpus, model and training, results
    model.safetensors        the parameters; one that serves in two places is stored once
    source.tokenizer.json    target.tokenizer.json
    log.jsonl                one record a line, as training reported them
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from attent.data.tokenizer import CharTokenizer, Tokenizer
from attent.errors import DataError, RunError
from attent.models.transformer import Transformer
from attent.models.transformer_settings import TransformerSettings

FORMAT = 1
CONFIG, MODEL, LOG = "config.json", "model.safetensors", "log.jsonl"
SOURCE_TOKENIZER, TARGET_TOKENIZER = "source.tokenizer.json", "target.tokenizer.json"
TOKENIZERS: dict[str, type[Tokenizer]] = {"char": CharTokenizer}


def versions() -> dict[str, str]:
    """The versions that a run depends on."""
    try:
        attent = version("attent")
    except PackageNotFoundError:
        attent = "not installed"
    return {"attent": attent, "torch": torch.__version__, "python": platform.python_version()}


class RunConfig(BaseModel):
    """What config.json holds.

    Args:
        format: the version of the folder's layout.
        versions: of attent, torch and python, by name.
        tokenizers: the kind of the source's and of the target's tokenizer.
        model: the model's settings.
        corpus: the corpus' settings.
        training: the settings of training, and what it found out, such as the precision chosen.
        results: scores by name.
    """

    model_config = ConfigDict(extra="forbid")

    format: int = FORMAT
    versions: dict[str, str] = Field(default_factory=versions)
    tokenizers: dict[str, str] = {"source": "char", "target": "char"}
    model: TransformerSettings
    corpus: dict[str, Any] = {}
    training: dict[str, Any] = {}
    results: dict[str, Any] = {}


@dataclass(frozen=True)
class Run:
    """A run that has been read: its config, its model in evaluation mode, its tokenizers."""

    config: RunConfig
    model: Transformer
    source_tokenizer: Tokenizer
    target_tokenizer: Tokenizer


class RunWriter:
    """Writes a run folder beside its final place and moves it there when it is complete.

        with RunWriter(path) as run:
            run.log({"update": 100, "loss": 1.5})
            run.finish(config, model, source_tokenizer, target_tokenizer)

    Leaving the block without `finish` leaves nothing behind.

    Args:
        path: where the folder shall be.
        replace: whether a run folder that is there already is given up for this one.

    Raises:
        RunError: something is there already, or the folder cannot be written.
    """

    def __init__(self, path: Path | str, *, replace: bool = False) -> None:
        self.path = Path(path)
        if self.path.exists() and not (replace and (self.path / CONFIG).is_file()):
            raise RunError(f"{self.path} is there already" + (" and is no run folder" if replace else ""))
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._draft = Path(tempfile.mkdtemp(prefix=f".{self.path.name}.", dir=self.path.parent))
        except OSError as error:
            raise RunError(f"{self.path} cannot be written: {error.strerror}") from error
        self._log = (self._draft / LOG).open("w", encoding="utf-8")

    def log(self, record: Mapping[str, Any]) -> None:
        """Append one record to log.jsonl."""
        self._log.write(json.dumps(record) + "\n")

    def finish(self, config: RunConfig, model: torch.nn.Module, source_tokenizer: Tokenizer, target_tokenizer: Tokenizer) -> None:
        """Write everything, make it durable, and move the folder to its place.

        Raises:
            RunError: the folder cannot be written.
        """
        try:
            self._log.close()
            (self._draft / CONFIG).write_text(config.model_dump_json(indent=2) + "\n", encoding="utf-8")
            save_file({name: tensor.detach().cpu().contiguous() for name, tensor in _tensors(model).items()}, self._draft / MODEL)
            source_tokenizer.save(self._draft / SOURCE_TOKENIZER)
            target_tokenizer.save(self._draft / TARGET_TOKENIZER)
            for file in self._draft.iterdir():
                _sync(file)
            _sync(self._draft)
            # mkdtemp makes folders that only their owner may open.
            self._draft.chmod(0o755)
            _move(self._draft, self.path)
        except OSError as error:
            raise RunError(f"{self.path} cannot be written: {error.strerror or error}") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._log.close()
        shutil.rmtree(self._draft, ignore_errors=True)


def read(path: Path | str) -> Run:
    """Read a run folder.

    Raises:
        RunError: it is missing, damaged, or written by a newer version.
    """
    path = Path(path)
    config = read_config(path)
    source = _tokenizer(path / SOURCE_TOKENIZER, config.tokenizers, "source")
    target = _tokenizer(path / TARGET_TOKENIZER, config.tokenizers, "target")
    model = Transformer(config.model, source.size, target.size)
    _fill(model, path / MODEL)
    return Run(config, model.eval(), source, target)


def read_config(path: Path | str) -> RunConfig:
    """Read a run folder's config.json alone.

    Raises:
        RunError: it is missing, damaged, or written by a newer version.
    """
    file = Path(path) / CONFIG
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise RunError(f"{path} is no run folder: {file.name} cannot be read ({error.strerror})") from error
    except ValueError as error:
        raise RunError(f"{file} is damaged: {error}") from error
    if not isinstance(content, dict) or not isinstance(content.get("format"), int):
        raise RunError(f"{file} is damaged: it names no format")
    if content["format"] > FORMAT:
        newer = content.get("versions", {}).get("attent", "a newer version")
        raise RunError(f"{file} has format {content['format']}, written by attent {newer}; this attent reads up to {FORMAT}")
    try:
        return RunConfig.model_validate(content)
    except ValidationError as error:
        first = error.errors()[0]
        raise RunError(f"{file} is damaged: {'.'.join(map(str, first['loc']))}: {first['msg']}") from error


def _tokenizer(file: Path, kinds: Mapping[str, str], side: str) -> Tokenizer:
    kind = kinds.get(side, "")
    if kind not in TOKENIZERS:
        raise RunError(f"{file.parent / CONFIG} is damaged: the {side} tokenizer is of unknown kind {kind!r}")
    try:
        return TOKENIZERS[kind].load(file)
    except DataError as error:
        raise RunError(str(error)) from error


def _tensors(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Parameters and buffers; one that serves in two places under its first name only, for the model ties it again itself."""
    named: dict[int, tuple[str, torch.Tensor]] = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        named.setdefault(id(tensor), (name, tensor))
    return dict(named.values())


def _fill(model: torch.nn.Module, file: Path) -> None:
    expected = _tensors(model)
    try:
        with safe_open(file, framework="pt") as tensors:
            names = set(tensors.keys())
            if names != expected.keys():
                missing, extra = sorted(expected.keys() - names), sorted(names - expected.keys())
                wrong = f"{missing[0]} is missing" if missing else f"{extra[0]} has no place in the model"
                raise RunError(f"{file} is damaged: {wrong}")
            with torch.no_grad():
                for name, place in expected.items():
                    tensor = tensors.get_tensor(name)
                    if tensor.shape != place.shape:
                        raise RunError(f"{file} is damaged: {name} must be {tuple(place.shape)}, got {tuple(tensor.shape)}")
                    place.copy_(tensor)
    except (OSError, SafetensorError) as error:
        raise RunError(f"{file} is missing or damaged: {error}") from error


def _sync(path: Path) -> None:
    # Only POSIX lets a folder be opened, and needs it to be synced.
    if path.is_dir() and os.name != "posix":
        return
    descriptor = os.open(path, os.O_RDONLY if os.name == "posix" else os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _move(draft: Path, path: Path) -> None:
    if path.exists():
        old = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
        path.rename(old / path.name)
        draft.rename(path)
        shutil.rmtree(old)
    else:
        draft.rename(path)
    _sync(path.parent)
