"""From the files that a command names to the settings of a run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attent.cli.output import say
from attent.errors import ArgumentError

if TYPE_CHECKING:
    from attent.config.settings import RunSettings

# What standard input is taken to hold, which cannot be counted before it is read.
UNCOUNTED = 20_000


def settings_of(files: Mapping[str, str], start: RunSettings | None, preset: str | None = None, folder: Path | None = None) -> RunSettings:
    """The settings of a run on these files.

    Args:
        files: the keys of `[text]`, such as train or train_source, and the files.
        start: settings whose text these files are; unless given, all follows from the number of lines.
        preset: of the model, whatever follows from the number of lines.
        folder: where the files lie, to count their lines; the settings keep the names that were given.

    Raises:
        ArgumentError, DataError: files that do not go together or cannot be read.
    """
    from attent.cli.overrides import toml
    from attent.config.settings import parse
    from attent.config.suggestions import in_words, suggested
    from attent.training.parallel import speaks

    if start is not None:
        tables: dict[str, Any] = start.model_dump(mode="json", exclude_unset=True, exclude_none=True)
    else:
        pairs = _lines(files if folder is None else placed(files, folder))
        tables = suggested(pairs)
        if preset is not None:
            tables["model"]["preset"] = preset
        if speaks():
            say(in_words(tables, pairs))
    tables["text"] = {**tables.get("text", {}), **files}
    return parse(toml(tables), "the command line")


def within(settings: RunSettings, folder: Path) -> RunSettings:
    """The settings with the files of `[text]` looked for in a folder, but for those named from the root of the file system.

    Raises:
        ArgumentError: the settings name no files, or there is no such folder.
    """
    from attent.data.settings import FILES

    if settings.text is None:
        raise ArgumentError("--data is where the files of [text] lie, and these settings have none")
    found = placed({name: file for name, file in settings.text.model_dump().items() if name in FILES and file is not None}, folder)
    return settings.model_copy(update={"text": settings.text.model_copy(update=found)})


def placed(files: Mapping[str, str], folder: Path) -> dict[str, str]:
    """The same files in a folder, but for standard input and those named from the root of the file system.

    Raises:
        ArgumentError: there is no such folder.
    """
    from attent.data.reading import STANDARD_INPUT

    if not folder.is_dir():
        raise ArgumentError(f"--data {folder} is no folder")
    return {name: file if file == STANDARD_INPUT else str(folder / file) for name, file in files.items()}


def _lines(files: Mapping[str, str]) -> int:
    from attent.data.reading import STANDARD_INPUT, lines

    file = files.get("train") or files.get("train_source")
    if file is None:
        raise ArgumentError("there is nothing to train on: give --train, or --train-source and --train-target")
    return UNCOUNTED if file == STANDARD_INPUT else sum(1 for _ in lines(file))
