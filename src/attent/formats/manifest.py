"""The manifest of an export: its run and weights, the versions that created it, and a comparison with our engine."""

from __future__ import annotations

import hashlib
import json
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

from pydantic import AliasChoices, BaseModel, Field, ValidationError

from attent.bounded import open_regular, read_json
from attent.errors import ArgumentError, DataError, RunError, needs
from attent.runs.config import CONFIG, LARGEST, read_config, versions
from attent.runs.durable import write_text
from attent.runs.folder import MODEL, tokenizer_file
from attent.runs.weights import digest

FORMAT = 1
MANIFEST = "export.json"
# The folder of exports within a run folder; it contains a folder for each engine.
EXPORTS = "export"

StateSide = Literal["written", "source", "neither"]


class StateTensor(BaseModel, extra="forbid", frozen=True):
    """A tensor of a decoder's state.

    Args:
        name: its name in the graphs.
        side: "written" and "source" tensors have one row for each row of the batch, which a search selects; "neither"
            tensors have no such rows.
        is_constant: True if a step does not change it (`kept` in JSON).
    """

    name: str
    side: StateSide
    is_constant: bool = Field(validation_alias=AliasChoices("kept", "is_constant"), serialization_alias="kept")


class Manifest(BaseModel, extra="forbid"):
    """The contents of export.json.

    Args:
        format: the version of the folder's layout.
        engine: the name of the engine.
        versions: the versions of attent, torch, python and the engine's packages, by name.
        run: the hashes of the run's files and settings, by name.
        quantization: the type of the stored weights, in the engine's spelling (`quantisation` in JSON); None for the
            run's own precision.
        longest: the maximum number of tokens in a sequence; None if there is no limit.
        state: the tensors of the decoder's state, if the engine has graphs.
        comparison: the number of lines that differ from those of our own engine, by search.
    """

    format: int = FORMAT
    engine: str
    versions: dict[str, str] = Field(default_factory=versions)
    run: dict[str, str]
    quantization: str | None = Field(
        default=None, validation_alias=AliasChoices("quantisation", "quantization"), serialization_alias="quantisation"
    )
    longest: int | None = None
    state: list[StateTensor] = []
    comparison: dict[str, Any] = {}


def identity(run: Path) -> dict[str, str]:
    """Return hashes of everything in a run folder that an export depends on, by name.

    Raises:
        RunError: the run is damaged, or has no weights.
    """
    config = read_config(run)
    # as written, without settings added by later versions of the library
    model = read_json(run / CONFIG, LARGEST)["model"]
    settings = json.dumps(model, sort_keys=True)
    hashes = {"model": hashlib.sha256(settings.encode()).hexdigest()}
    for name in (MODEL, *map(tokenizer_file, config.tokenizers)):
        hashes[name] = digest(run / name)
    return hashes


def write(manifest: Manifest, folder: Path) -> None:
    """Write an export's manifest.

    Raises:
        RunError: it cannot be written.
    """
    write_text(folder / MANIFEST, manifest.model_dump_json(indent=2, by_alias=True) + "\n")


def read(folder: Path, engine: str, run: Path) -> Manifest:
    """Read the manifest of an export, and check that it matches the current state of the run.

    Raises:
        ArgumentError: there is no export, it is for another engine, or the run has changed since.
        RunError: the export is damaged or written by a newer version.
    """
    command = f"attent export {run} --to {engine}" + ("" if folder == run / EXPORTS / engine else f" --out {folder}")
    try:
        manifest = Manifest.model_validate(read_json(folder / MANIFEST, LARGEST))
        for file in folder.iterdir():
            if not file.is_dir():
                open_regular(file).close()
    except OSError as error:
        raise ArgumentError(f"{folder} contains no export; create one with {command}") from error
    except (DataError, ValidationError) as error:
        raise RunError(
            f"{folder / MANIFEST} is damaged, or was written by a newer attent; recreate it with {command}"
        ) from error
    if manifest.engine != engine:
        raise ArgumentError(f"{folder} is for the engine {manifest.engine}, not {engine}")
    hashes = identity(run)
    if changed := sorted(name for name in hashes if hashes[name] != manifest.run.get(name)):
        raise ArgumentError(
            f"{folder} was made from another state of {run} ({', '.join(changed)} changed); recreate it with {command}"
        )
    return manifest


def package(module: str, name: str, extra: str) -> Any:
    """Import a package that an engine needs.

    Args:
        module: the name of the module to import.
        name: the name of the package, for messages.
        extra: the extra of attent that installs it.

    Raises:
        AttentError: the package is not installed.
    """
    with needs(f"this needs {name}", extra):
        return import_module(module)
