"""Run folders: created when training starts, marked as unfinished until complete, and checked for damage when read.

Their files:
    config.json              see attent.runs.config
    model.safetensors        the parameters of the model, tied ones once
    NAME.tokenizer.json      each tokenizer, such as source.tokenizer.json and target.tokenizer.json of a translator
    …                        additional files named in the config
    confidence.json          the confidence of a translator; see attent.tasks.translation.calibration
    log.jsonl                the records of training, one per line; locked by the process that trains
    checkpoints/             the checkpoints from which training resumes; see attent.training.checkpoint
"""

import json
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import torch

from attent import system
from attent.bounded import read_text
from attent.errors import ArgumentError, AttentError, DataError, RunError, reraise
from attent.models.build import build
from attent.runs.config import (
    CONFIG,
    RunConfig,
    check_code,
    code_in,
    read_config,
    tokenizer_file,
    write_config,
)
from attent.runs.durable import LOG, draft_of, held, lock_run, new_file, said_clearly, settle, sweep, sweep_drafts, sync
from attent.runs.weights import (
    check_files,
    check_sizes,
    digest,
    files_metadata,
    fill,
    is_all_saved,
    map_into,
    tensors_of,
    write_tensors,
)
from attent.text.tokenizer import MAX_FILE, Tokenizer
from attent.text.tokenizers import KINDS

MODEL = "model.safetensors"
# Maximum bytes of an additional file of a run.
LARGEST = 2**24
# Maximum bytes of weights whose digest is checked when a run is read, which takes less than a second.
MAX_HASHED = 2**28


@dataclass(frozen=True)
class Run:
    """A trained model with its config and tokenizers.

    Args:
        config: the run's config.
        model: a model for the run's task, in evaluation mode.
        tokenizers: the tokenizers by name.
        files: the text of additional files, by name.
    """

    config: RunConfig
    model: Any
    tokenizers: Mapping[str, Tokenizer]
    files: Mapping[str, str]

    @property
    def summary(self) -> str:
        """The model's class, its languages and the sizes of its vocabularies."""
        sizes = " and ".join(f"{tokenizer.size} {name}" for name, tokenizer in self.tokenizers.items())
        parts = (type(self.model).__name__, self.config.languages, sizes and f"{sizes} tokens")
        return ", ".join(filter(None, parts))

    @property
    def source_tokenizer(self) -> Tokenizer:
        """The tokenizer of a translator's sources."""
        return self.tokenizers["source"]

    @property
    def target_tokenizer(self) -> Tokenizer:
        """The tokenizer of a translator's targets."""
        return self.tokenizers["target"]


class RunWriter:
    """Writes a run folder, which appears at its path when training begins and is marked as unfinished until complete.

        with RunWriter(path) as run:
            run.begin(config, *tokenizers)
            run.log({"update": 100, "loss": 1.5})
            run.finish(config, model, *tokenizers)

    Leaving the block before `begin` leaves no files; `finish` calls `begin` if needed. From `begin` on, the run is
    locked against other processes until the block ends.

    Args:
        path: the path of the folder.
        replace: True if `begin` may replace a run folder at this path.

    Raises:
        RunError: the path exists, another process is training the run, or the folder cannot be written.
    """

    def __init__(self, path: Path | str, *, replace: bool = False) -> None:
        self.path, self._replace = Path(path), replace
        self._check_room()
        with said_clearly(self.path):
            sweep_drafts(self.path)
            self._draft: Path | None = draft_of(self.path)
            self._log = lock_run(self._draft)

    @classmethod
    def again(cls, path: Path | str) -> Self:
        """Open a run in order to resume it, locked against other processes until the block ends.

        Raises:
            RunError: the path is not a run folder, another process is training the run, or it cannot be written.
        """
        run = cls.__new__(cls)
        run.path, run._draft = Path(path), None
        read_config(path)
        run._log = lock_run(run.path)
        sweep_drafts(run.path)
        with said_clearly(run.path):
            sweep(run.path)
        return run

    def _check_room(self) -> None:
        if not self.path.exists():
            return
        if not (self._replace and (self.path / CONFIG).is_file()):
            raise RunError(f"{self.path} already exists" + (" and is not a run folder" if self._replace else ""))
        with held(self.path):
            pass

    def rewind(self, log: int) -> None:
        """Truncate log.jsonl to a number of bytes, dropping the records after the last checkpoint."""
        with said_clearly(self.path / LOG):
            self._log.truncate(min(log, (self.path / LOG).stat().st_size))

    def log(self, record: Mapping[str, Any]) -> None:
        """Append a record to log.jsonl."""
        with said_clearly(self.path / LOG):
            self._log.write(json.dumps(record) + "\n")

    def sync_log(self) -> int:
        """Sync log.jsonl, and return its size in bytes."""
        with said_clearly(self.path / LOG):
            self._log.flush()
            sync(Path(self._log.name))
            return Path(self._log.name).stat().st_size

    def begin(
        self,
        config: RunConfig,
        *tokenizers: Tokenizer,
        files: Mapping[str, str] | None = None,
        start: torch.nn.Module | None = None,
    ) -> None:
        """Move the folder to its path, marked as unfinished; for a resumed run, only write the config.

        Args:
            config: the run's config, without results.
            tokenizers: the tokenizers, in the order of the config.
            files: the text of additional files named in the config, by name.
            start: the model with the initial weights, unless training starts from random ones.

        Raises:
            RunError: the folder cannot be written, or another process has created it in the meantime.
        """
        config = without_digest(config).model_copy(update={"state": "unfinished"})
        if self._draft is None:
            write_config(config, self.path)
            return
        with said_clearly(self.path):
            write_config(config, self._draft)
            for name, tokenizer in zip(config.tokenizers, tokenizers, strict=True):
                tokenizer.save(self._draft / tokenizer_file(name))
            for name in config.files:
                (self._draft / name).write_text((files or {})[name], encoding="utf-8", newline="")
            if start is not None:
                write_tensors(tensors_of(start), self._draft / MODEL)
            self._check_room()
            # Windows cannot move a folder that contains an open file; elsewhere it stays locked until it has been moved
            if system.IS_WINDOWS:
                self._log.close()
            settle(self._draft, self.path)
            self._draft = None
            self._log.close()
        self._log = lock_run(self.path)

    def finish(self, config: RunConfig, model: torch.nn.Module, *tokenizers: Tokenizer) -> None:
        """Write the weights, sync everything, and mark the folder as finished.

        Raises:
            RunError: the folder cannot be written.
        """
        if self._draft is not None:
            self.begin(config, *tokenizers)
        self.sync_log()
        write_weights(config.model_copy(update={"state": "finished"}), model, self.path)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(OSError):
            self._log.close()
        if self._draft is not None:
            shutil.rmtree(self._draft, ignore_errors=True)


def read(path: Path | str, trust_code: bool = False) -> Run:
    """Read a run folder.

    Args:
        path: the folder.
        trust_code: True to import modules named by the run, such as the score "my.module:Class".

    Raises:
        RunError: the folder is missing, damaged or written by a newer version, or names modules without being trusted.
    """
    path = Path(path)
    config = read_config(path)
    check_code(path, config, trust_code=trust_code)
    if config.state == "unfinished" and not (path / MODEL).is_file():
        raise RunError(f"{path} is unfinished and has no weights yet; resume it with attent train --resume {path}")
    tokenizers = read_tokenizers(path, config)
    model = filled_model(path, config, tokenizers, mapped=True)
    return Run(config, model.eval(), dict(zip(config.tokenizers, tokenizers, strict=True)), read_files(path, config))


def without_digest(config: RunConfig) -> RunConfig:
    """Return the config of a run without the digest of its weights, which are about to change."""
    return config.model_copy(
        update={"digests": {name: value for name, value in config.digests.items() if name != MODEL}}
    )


def write_weights(config: RunConfig, model: torch.nn.Module, path: Path) -> None:
    """Write a model's weights into a run folder, and the config with the digest of the weights.

    The digests of tokenizers and additional files are stored in the metadata of the weights.

    Raises:
        RunError: they cannot be written.
    """
    with new_file(path / MODEL) as file:
        write_tensors(tensors_of(model), file, files_metadata(path, config.text_files))
    write_config(config.model_copy(update={"digests": config.digests | {MODEL: digest(path / MODEL)}}), path)


def _check_digests(path: Path, config: RunConfig) -> None:
    expected = config.digests.get(MODEL)
    if expected is not None and (path / MODEL).stat().st_size <= MAX_HASHED and digest(path / MODEL) != expected:
        raise RunError(
            f"{path / MODEL} is damaged: its SHA-256 does not match digests in {path / CONFIG} (without that "
            "entry, it is not checked)"
        )
    check_files(path / MODEL, config.text_files)


def model_of(config: RunConfig, tokenizers: Sequence[Tokenizer]) -> Any:
    """Build a new model with a config's settings and sizes."""
    return build(config.model, *_sizes(config, tokenizers))


def filled_model(
    path: Path, config: RunConfig, tokenizers: Sequence[Tokenizer], weights: Path | None = None, mapped: bool = False
) -> Any:
    """Load the model of a run folder, checking its sizes against the weights before allocating memory.

    Args:
        path: the run folder.
        config: the run's config, whose code is trusted.
        tokenizers: the tokenizers, in the order of the config.
        weights: the weights of a checkpoint; by default those of the run folder.
        mapped: True to map the file into memory where possible, instead of copying it; on Windows, where a mapped file
            cannot be replaced or removed, it is copied.

    Raises:
        RunError: the weights are missing, damaged or those of another model, or the sizes in the config are impossible.
    """
    weights, model = weights or path / MODEL, None
    try:
        # a part from another module may need real tensors while it is built
        if not code_in(config):
            model = check_sizes(config.model, *_sizes(config, tokenizers), weights)
        if model is None or not mapped or system.IS_WINDOWS or not is_all_saved(model):
            model, mapped = model_of(config, tokenizers), False
    except RunError:
        raise
    except (AttentError, RuntimeError) as error:
        # RuntimeError: sizes that exceed the memory
        raise RunError(f"{path / CONFIG} is damaged: model: {' '.join(str(error).split())}") from error
    if weights == path / MODEL:
        _check_digests(path, config)
    map_into(model, weights) if mapped else fill(tensors_of(model), weights)
    return model


def _sizes(config: RunConfig, tokenizers: Sequence[Tokenizer]) -> tuple[int, int]:
    """Return the sizes of the model's input (tokens or features) and output (tokens or classes)."""
    if not tokenizers:
        assert config.sizes is not None
        return config.sizes
    if config.sizes is None:
        return tokenizers[0].size, tokenizers[-1].size
    # a masked language model has an additional token, the mask
    if getattr(config.model, "input", "tokens") == "tokens" and config.sizes[0] < tokenizers[0].size:
        raise ArgumentError(f"it reads {config.sizes[0]} tokens, but its tokenizer has {tokenizers[0].size}")
    return config.sizes


def read_tokenizers(path: Path | str, config: RunConfig) -> tuple[Tokenizer, ...]:
    """Read the tokenizers of a run folder, in the order of its config.

    Raises:
        RunError: a tokenizer is missing or damaged.
    """
    return tuple(_tokenizer(Path(path) / tokenizer_file(name), kind, name) for name, kind in config.tokenizers.items())


def read_files(path: Path | str, config: RunConfig) -> dict[str, str]:
    """Read the additional files of a run folder, by name.

    Raises:
        RunError: a file is missing or is not text.
    """
    return {name: _text(Path(path) / name, LARGEST) for name in config.files}


def tokenizers_as_text(path: Path | str) -> dict[str, str]:
    """Read a run folder's tokenizer files as text, by name, for processes without access to the folder."""
    files = map(tokenizer_file, read_config(path).tokenizers)
    return {name: _text(Path(path) / name, MAX_FILE) for name in files}


def tokenizers_of_text(files: Mapping[str, str], config: RunConfig) -> tuple[Tokenizer, ...]:
    """Load tokenizers from the result of `tokenizers_as_text`."""
    with tempfile.TemporaryDirectory() as folder:
        for name, text in files.items():
            (Path(folder) / name).write_text(text, encoding="utf-8", newline="")
        return read_tokenizers(folder, config)


def _text(file: Path, limit: int) -> str:
    with reraise(RunError, f"{file} is missing or damaged", OSError, DataError):
        return read_text(file, limit)


def _tokenizer(file: Path, kind: str, name: str) -> Tokenizer:
    if kind not in KINDS:
        raise RunError(f"{file.parent / CONFIG} is damaged: the {name} tokenizer has the unknown kind {kind!r}")
    try:
        return KINDS[kind].load(file)
    except DataError as error:
        raise RunError(str(error)) from error
