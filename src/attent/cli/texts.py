"""From the files that a command names to the settings of a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attent.cli.output import say
from attent.errors import ArgumentError, UnknownNameError

if TYPE_CHECKING:
    from attent.tasks.settings import RunSettings

# What standard input is taken to hold, which cannot be counted before it is read.
UNCOUNTED = 20_000
# What is learnt from each table of files.
TASKS = {"text": "translate", "lines": "fill-mask", "images": "classify", "labelled": "classify"}


def table_of(named: Mapping[str, Mapping[str, str | None]], task: str | None) -> tuple[str, dict[str, str]]:
    """The table that the files of a command are for, and the files; "text" and none where the command names none.

    Args:
        named: each table's keys, and the file that the command names for each, if any.
        task: what the command says is to be learnt, if anything.

    Raises:
        ArgumentError: the files are for two tables, or not for the task.
        UnknownNameError: there is no such task.
    """
    if task is not None and task not in TASKS.values():
        raise UnknownNameError("task", task, set(TASKS.values()))
    found = {table: files for table, given in named.items() if (files := {name: file for name, file in given.items() if file is not None})}
    if len(found) > 1:
        raise ArgumentError(f"files for {' and for '.join(f'[{table}]' for table in found)} are for two runs")
    for table, files in found.items():
        if task not in (None, TASKS[table]):
            raise ArgumentError(f"these files are for --task {TASKS[table]}, not for --task {task}")
        return table, files
    return "text", {}


def settings_of(
    files: Mapping[str, str], start: RunSettings | None, preset: str | None = None, folder: Path | None = None, table: str = "text"
) -> RunSettings:
    """The settings of a run on these files.

    Args:
        files: the keys of `[text]` or of another table, such as train or train_source, and the files.
        start: settings whose text these files are; unless given, all follows from the number of lines.
        preset: of the model, whatever follows from the number of lines.
        folder: where the files lie, to count their lines; the settings keep the names that were given.
        table: which table the files are for.

    Raises:
        ArgumentError, DataError: files that do not go together or cannot be read.
    """
    from attent.cli.overrides import toml
    from attent.tasks.settings import parse
    from attent.tasks.suggestions import SIZES, suggest, summary
    from attent.training.distributed import is_main_process

    if start is not None:
        tables: dict[str, Any] = start.model_dump(mode="json", exclude_unset=True, exclude_none=True)
    else:
        there = files if folder is None else placed(files, folder)
        tables = {"task": TASKS[table]} if table != "text" else {}
        pairs, found = _images(there) if table == "images" else (_lines(there), suggest)
        tables |= found(pairs, TASKS[table])
        if preset is not None:
            tables["model"] = {name: value for name, value in tables["model"].items() if name not in SIZES} | {"preset": preset}
        if is_main_process():
            say(summary(tables, pairs))
    tables[table] = {**tables.get(table, {}), **files}
    return parse(toml(tables), "the command line")


def within(settings: RunSettings, folder: Path) -> RunSettings:
    """The settings with the files of their corpus looked for in a folder, but for those named from the root of the file system.

    Raises:
        ArgumentError: the settings name no files, or there is no such folder.
    """
    from attent.data.labelled.settings import FILES as LABELLED_FILES
    from attent.data.settings import FILES

    names = {*FILES, *LABELLED_FILES}
    for table in TASKS:
        corpus = getattr(settings, table)
        if table == "images" and corpus is not None:
            found = placed({"source": corpus.source}, folder)
            return settings.model_copy(update={table: corpus.model_copy(update=found)})
        if corpus is not None:
            found = placed({name: file for name, file in corpus.model_dump().items() if name in names and file is not None}, folder)
            return settings.model_copy(update={table: corpus.model_copy(update=found)})
    raise ArgumentError(f"--data is where the files of {' or '.join(f'[{table}]' for table in TASKS)} lie, and these settings have none")


def placed(files: Mapping[str, str], folder: Path) -> dict[str, str]:
    """The same files in a folder, but for standard input, the digits that no file holds, and those named from the root of the file system.

    Raises:
        ArgumentError: there is no such folder.
    """
    from attent.data.labelled.settings import DIGITS
    from attent.data.readers import STANDARD_INPUT

    if not folder.is_dir():
        raise ArgumentError(f"--data {folder} is no folder")
    elsewhere = {("source", DIGITS), *((name, STANDARD_INPUT) for name in files)}
    return {name: file if (name, file) in elsewhere or name == "size" else str(folder / file) for name, file in files.items()}


def _images(files: Mapping[str, str]) -> tuple[int, Callable[[int, str], dict[str, dict[str, Any]]]]:
    """How many examples there are, and what suggests settings for so many."""
    from attent.data.labelled.corpus import count_examples
    from attent.tasks.suggestions import suggest_pictures, suggest_vectors

    if "source" not in files:
        raise ArgumentError("--size goes with --images, or with settings that have [images]")
    examples, pictures = count_examples(files["source"])
    return examples, suggest_pictures if pictures else suggest_vectors


def _lines(files: Mapping[str, str]) -> int:
    from attent.data.readers import STANDARD_INPUT, read_lines

    file = files.get("train") or files.get("train_source")
    if file is None:
        raise ArgumentError("there is nothing to train on: give --train, --train-source and --train-target, --text, --images or --labelled")
    return UNCOUNTED if file == STANDARD_INPUT else sum(1 for _ in read_lines(file))
