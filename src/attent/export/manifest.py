"""What an export says of itself: of which run, of which weights, by which versions, and how it compares with our own engine."""

from __future__ import annotations

import hashlib
import json
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, ValidationError

from attent.bounded import open_regular, read_json
from attent.errors import ArgumentError, AttentError, DataError, RunError
from attent.runs.config import CONFIG, LARGEST, read_config, versions
from attent.runs.durable import new_file
from attent.runs.folder import MODEL, tokenizer_file
from attent.runs.weights import digest

FORMAT = 1
MANIFEST = "export.json"
# Where in a run folder its exports lie, a folder for each engine.
EXPORTS = "export"

Side = Literal["written", "source", "neither"]


class StateTensor(BaseModel):
    """One tensor of a decoder's state.

    Args:
        name: in the graphs.
        side: what a search moves when it selects rows: what is "written" and the "source" have a row for each of the batch's,
            "neither" has none.
        is_constant: True if a step leaves it as it is (`kept` in JSON).
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    side: Side
    is_constant: bool = Field(validation_alias=AliasChoices("kept", "is_constant"), serialization_alias="kept")


class Manifest(BaseModel):
    """What export.json holds.

    Args:
        format: the version of the folder's layout.
        engine: what reads the export.
        versions: of attent, torch, python and the engine's packages, by name.
        run: what of the run it was made of, by name, with a hash of each.
        quantization: of the weights, in the engine's spelling (`quantisation` in JSON); None for the run's own precision.
        longest: the most tokens that a sequence may have; None where there is no limit.
        state: the decoder's state, where the graphs have one.
        comparison: how many lines of a sample came out otherwise than by our own engine, by search.
    """

    model_config = ConfigDict(extra="forbid")

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
    """A hash of everything in a run folder that an export depends on, by name.

    Raises:
        RunError: the run is damaged, or has no weights.
    """
    config = read_config(run)
    # as they were written, without what later versions of the library may be set to besides
    written = read_json(run / CONFIG, LARGEST)["model"]
    settings = json.dumps(written, sort_keys=True)
    found = {"model": hashlib.sha256(settings.encode()).hexdigest()}
    for name in (MODEL, *map(tokenizer_file, config.tokenizers)):
        found[name] = digest(run / name)
    return found


def write(manifest: Manifest, folder: Path) -> None:
    """Write an export's manifest.

    Raises:
        RunError: it cannot be written.
    """
    with new_file(folder / MANIFEST) as file:
        file.write_text(manifest.model_dump_json(indent=2, by_alias=True) + "\n", encoding="utf-8")


def read(folder: Path, engine: str, run: Path) -> Manifest:
    """The manifest of an export to an engine, which must be of the run as it is now.

    Raises:
        ArgumentError: there is no export, it is for another engine, or the run has changed since.
        RunError: the export is damaged or written by a newer version.
    """
    again = f"attent export {run} --to {engine}" + ("" if folder == run / EXPORTS / engine else f" --out {folder}")
    try:
        manifest = Manifest.model_validate(read_json(folder / MANIFEST, LARGEST))
        for file in folder.iterdir():
            if not file.is_dir():
                open_regular(file).close()
    except OSError as error:
        raise ArgumentError(f"{folder} holds no export; {again} makes one") from error
    except (DataError, ValidationError) as error:
        raise RunError(f"{folder / MANIFEST} is damaged, or written by a newer attent; {again} makes it anew") from error
    if manifest.engine != engine:
        raise ArgumentError(f"{folder} is for the engine {manifest.engine}, not for {engine}")
    found = identity(run)
    if changed := sorted(name for name in found if found[name] != manifest.run.get(name)):
        raise ArgumentError(f"{folder} was made of another state of {run} ({', '.join(changed)} changed); {again} makes it anew")
    return manifest


def package(module: str, name: str, extra: str) -> Any:
    """A package that an engine needs.

    Args:
        module: what is imported.
        name: what a message calls it.
        extra: what of ours installs it.

    Raises:
        AttentError: it is not installed.
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise AttentError(f"this needs {name}: pip install 'attent[{extra}]' ({error})") from error


def version_of(package: str) -> str:
    """The version of a package that is installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown"
