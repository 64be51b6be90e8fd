"""A run folder: there from the start of training, whole or clearly unfinished, and read with every damage named.

What it holds:
    config.json              format, state, versions, kinds of tokenizer, settings of corpus, model and training, results
    model.safetensors        the parameters that translate; one that serves in two places is stored once
    source.tokenizer.json    target.tokenizer.json
    log.jsonl                one record a line, as training reported them; locked by the process that trains
    checkpoints/             from where training goes on, as attent.training.checkpoint writes them
"""

from __future__ import annotations

import json
import platform
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Literal, Self

import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from attent.data.tokenizer import Tokenizer
from attent.data.tokenizers import KINDS
from attent.errors import AttentError, DataError, RunError
from attent.models.encoder_decoder import EncoderDecoder
from attent.models.settings import ModelSettings, build
from attent.runs.durable import draft_of, new_file, said_clearly, settle, sweep, sync
from attent.runs.lock import claim
from attent.runs.weights import fill, tensors_of, write_tensors

FORMAT = 2
CONFIG, MODEL, LOG = "config.json", "model.safetensors", "log.jsonl"
SOURCE_TOKENIZER, TARGET_TOKENIZER = "source.tokenizer.json", "target.tokenizer.json"


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
        state: whether training has ended; in format 1 it always had.
        versions: of attent, torch and python, by name.
        tokenizers: the kind of the source's and of the target's tokenizer.
        model: the model's settings.
        corpus: the corpus' settings.
        training: the settings of training, and what it found out, such as the precision chosen.
        results: scores by name.
    """

    model_config = ConfigDict(extra="forbid")

    format: int = FORMAT
    state: Literal["unfinished", "finished"] = "finished"
    versions: dict[str, str] = Field(default_factory=versions)
    tokenizers: dict[str, str] = {"source": "char", "target": "char"}
    model: ModelSettings
    corpus: dict[str, Any] = {}
    training: dict[str, Any] = {}
    results: dict[str, Any] = {}


@dataclass(frozen=True)
class Run:
    """A run that has been read: its config, its model in evaluation mode, its tokenizers."""

    config: RunConfig
    model: EncoderDecoder[Any]
    source_tokenizer: Tokenizer
    target_tokenizer: Tokenizer


class RunWriter:
    """Writes a run folder, which appears at its place when training begins, marked as unfinished until it is complete.

        with RunWriter(path) as run:
            run.begin(config, source_tokenizer, target_tokenizer)
            run.log({"update": 100, "loss": 1.5})
            run.finish(config, model, source_tokenizer, target_tokenizer)

    Leaving the block before `begin` leaves nothing behind; `finish` begins where nobody has. From `begin` on the run is
    this process' own until the block is left.

    Args:
        path: where the folder shall be.
        replace: whether a run folder that is there already is given up for this one, when it begins.

    Raises:
        RunError: something is there already, another process trains it, or the folder cannot be written.
    """

    def __init__(self, path: Path | str, *, replace: bool = False) -> None:
        self.path, self._replace = Path(path), replace
        self._check_room()
        with said_clearly(self.path):
            self._draft: Path | None = draft_of(self.path)
            self._log = _log_in(self._draft)

    @classmethod
    def again(cls, path: Path | str) -> Self:
        """The writer of a run that goes on, which no other process can go on with until the block is left.

        Raises:
            RunError: it is no run folder, another process trains it, or it cannot be written.
        """
        run = cls.__new__(cls)
        run.path, run._draft = Path(path), None
        read_config(path)
        run._log = _claimed(run.path)
        with said_clearly(run.path):
            sweep(run.path)
        return run

    def _check_room(self) -> None:
        if not self.path.exists():
            return
        if not (self._replace and (self.path / CONFIG).is_file()):
            raise RunError(f"{self.path} is there already" + (" and is no run folder" if self._replace else ""))
        with held(self.path):
            pass

    def rewind(self, log: int) -> None:
        """Keep so many bytes of log.jsonl; what stands behind them was recorded after the last checkpoint."""
        with said_clearly(self.path / LOG):
            self._log.truncate(min(log, (self.path / LOG).stat().st_size))

    def log(self, record: Mapping[str, Any]) -> None:
        """Append one record to log.jsonl."""
        with said_clearly(self.path / LOG):
            self._log.write(json.dumps(record) + "\n")

    def logged(self) -> int:
        """How many bytes log.jsonl has, once they are durable."""
        with said_clearly(self.path / LOG):
            self._log.flush()
            sync(Path(self._log.name))
            return Path(self._log.name).stat().st_size

    def begin(
        self, config: RunConfig, source_tokenizer: Tokenizer, target_tokenizer: Tokenizer, start: torch.nn.Module | None = None
    ) -> None:
        """Put the folder at its place, marked as unfinished; in a run that goes on, only its config is new.

        Args:
            config: what is known so far.
            source_tokenizer: for the texts to translate.
            target_tokenizer: for the translations.
            start: the model whose weights training starts from, unless it starts from random ones.

        Raises:
            RunError: the folder cannot be written, or another process has begun one there in the meantime.
        """
        config = config.model_copy(update={"state": "unfinished"})
        if self._draft is None:
            write_config(config, self.path)
            return
        with said_clearly(self.path):
            self._log.close()
            write_config(config, self._draft)
            source_tokenizer.save(self._draft / SOURCE_TOKENIZER)
            target_tokenizer.save(self._draft / TARGET_TOKENIZER)
            if start is not None:
                write_tensors(tensors_of(start), self._draft / MODEL)
            self._check_room()
            settle(self._draft, self.path)
            self._draft = None
        self._log = _claimed(self.path)

    def finish(self, config: RunConfig, model: torch.nn.Module, source_tokenizer: Tokenizer, target_tokenizer: Tokenizer) -> None:
        """Write the weights, make everything durable, and mark the folder as finished.

        Raises:
            RunError: the folder cannot be written.
        """
        if self._draft is not None:
            self.begin(config, source_tokenizer, target_tokenizer)
        self.logged()
        with new_file(self.path / MODEL) as file:
            write_tensors(tensors_of(model), file)
        write_config(config.model_copy(update={"state": "finished"}), self.path)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        with suppress(OSError):
            self._log.close()
        if self._draft is not None:
            shutil.rmtree(self._draft, ignore_errors=True)


@contextmanager
def held(path: Path | str) -> Iterator[None]:
    """Keep every other process from training a run until the block ends.

    Raises:
        RunError: one trains it already, or the folder cannot be written.
    """
    with _claimed(Path(path)):
        yield


def _log_in(folder: Path) -> IO[str]:
    return (folder / LOG).open("a", encoding="utf-8", buffering=1)


def _claimed(path: Path) -> IO[str]:
    """A run's log, open at its end; whoever has it open has the run."""
    with said_clearly(path / LOG):
        log = _log_in(path)
    try:
        claim(log, path)
    except RunError:
        log.close()
        raise
    return log


def write_config(config: RunConfig, path: Path) -> None:
    """Write a run folder's config.json.

    Raises:
        RunError: it cannot be written.
    """
    with new_file(path / CONFIG) as file:
        file.write_text(config.model_copy(update={"format": FORMAT}).model_dump_json(indent=2) + "\n", encoding="utf-8")


def read(path: Path | str) -> Run:
    """Read a run folder.

    Raises:
        RunError: it is missing, damaged, or written by a newer version.
    """
    path = Path(path)
    config = read_config(path)
    if config.state == "unfinished" and not (path / MODEL).is_file():
        raise RunError(f"{path} is unfinished and has no weights yet; attent train --resume {path} goes on with it")
    source, target = read_tokenizers(path, config)
    try:
        model = build(config.model, source.size, target.size)
    except (AttentError, RuntimeError) as error:
        # RuntimeError: sizes that no memory holds
        raise RunError(f"{path / CONFIG} is damaged: model: {' '.join(str(error).split())}") from error
    fill(tensors_of(model), path / MODEL)
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
    if not isinstance(content, dict) or type(content.get("format")) is not int or content["format"] < 1:
        raise RunError(f"{file} is damaged: it names no format")
    if content["format"] > FORMAT:
        named = content.get("versions")
        newer = named.get("attent", "of a newer version") if isinstance(named, dict) else "of a newer version"
        raise RunError(f"{file} has format {content['format']}, written by attent {newer}; this attent reads up to {FORMAT}")
    try:
        return RunConfig.model_validate(content)
    except ValidationError as error:
        first = error.errors()[0]
        raise RunError(f"{file} is damaged: {'.'.join(map(str, first['loc']))}: {first['msg'].removeprefix('Value error, ')}") from error


def read_tokenizers(path: Path | str, config: RunConfig) -> tuple[Tokenizer, Tokenizer]:
    """The source's and the target's tokenizer of a run folder.

    Raises:
        RunError: one is missing or damaged.
    """
    source = _tokenizer(Path(path) / SOURCE_TOKENIZER, config.tokenizers, "source")
    return source, _tokenizer(Path(path) / TARGET_TOKENIZER, config.tokenizers, "target")


def tokenizers_as_text(path: Path | str) -> dict[str, str]:
    """What the files of a run folder's tokenizers hold, by name: to be sent to where the folder cannot be seen."""
    return {name: (Path(path) / name).read_text(encoding="utf-8") for name in (SOURCE_TOKENIZER, TARGET_TOKENIZER)}


def tokenizers_of_text(files: Mapping[str, str], config: RunConfig) -> tuple[Tokenizer, Tokenizer]:
    """The source's and the target's tokenizer of what `tokenizers_as_text` returned."""
    with tempfile.TemporaryDirectory() as folder:
        for name, text in files.items():
            (Path(folder) / name).write_text(text, encoding="utf-8")
        return read_tokenizers(folder, config)


def _tokenizer(file: Path, kinds: Mapping[str, str], side: str) -> Tokenizer:
    kind = kinds.get(side, "")
    if kind not in KINDS:
        raise RunError(f"{file.parent / CONFIG} is damaged: the {side} tokenizer is of unknown kind {kind!r}")
    try:
        return KINDS[kind].load(file)
    except DataError as error:
        raise RunError(str(error)) from error
