"""Training settings, made from data files or with single values overridden."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attent.errors import ArgumentError, check_known, refuse

if TYPE_CHECKING:
    from attent.tasks.settings import RunSettings
    from attent.tasks.task import Task


def known_task(name: str | None) -> str | None:
    """Return the name of a task, given by its name or an alias.

    Raises:
        UnknownNameError: there is no such task.
    """
    from attent.tasks.task import tasks

    names = {alias: task.name for task in tasks().values() for alias in (task.name, *task.aliases)}
    check_known("task", name, names)
    return None if name is None else names[name]


def tasks_of_table(table: str) -> list[Task[Any]]:
    """Return the tasks that learn from a corpus table, the default one first."""
    from attent.tasks.task import tasks

    return [task for task in tasks().values() if table in task.tables]


def select_table(options: Mapping[str, Mapping[str, str | None]], task: str | None) -> tuple[str, dict[str, str]]:
    """Return the corpus table that the files of a command belong to, and these files.

    Return "text" and no files if the command names none.

    Args:
        options: the file of each key of each table, or None.
        task: the task that the command names, or None.

    Raises:
        ArgumentError: the files are for two tables, or not for the task.
    """
    named = {table: {key: file for key, file in files.items() if file is not None} for table, files in options.items()}
    tables = [table for table, files in named.items() if files]
    if len(tables) > 1:
        raise ArgumentError(f"files for {' and for '.join(f'[{table}]' for table in tables)} cannot be used in one run")
    if not tables:
        return "text", {}
    names = [table_task.name for table_task in tasks_of_table(tables[0])]
    if task is not None and task not in names:
        raise ArgumentError(f"these files are for --task {names[0]}, not for --task {task}")
    return tables[0], named[tables[0]]


def corpus_settings(
    files: Mapping[str, str],
    start: RunSettings | None,
    preset: str | None = None,
    folder: Path | None = None,
    table: str = "text",
    task: str | None = None,
    init_from: Path | None = None,
    minutes: float | None = None,
    say: Callable[[str], None] | None = None,
) -> RunSettings:
    """Return the settings of a run on these files.

    Args:
        files: file names, by their keys in the table, such as train or train_source.
        start: settings to add the files to; by default, all settings are suggested from the number of lines.
        preset: preset of the model, instead of the suggested sizes.
        folder: folder of the files, to count their lines; the settings keep the names as given.
        table: corpus table of the files.
        task: the task to learn; the table's first task by default.
        init_from: a run to fine-tune; the suggestion then has a lower learning rate and no model.
        minutes: training time in minutes, instead of the suggested updates.
        say: reports the suggestion, in the main process.

    Raises:
        ArgumentError, DataError: the files are inconsistent or cannot be read.
    """
    from attent.runs.config import read_config
    from attent.tasks.settings import check
    from attent.tasks.suggestions import SIZES, fine_tuning, summary
    from attent.tasks.task import task_of
    from attent.training.distributed import is_main_process

    if table == "text":
        _check_sides(
            files if start is None or start.text is None else {**start.text.model_dump(exclude_none=True), **files}
        )
    if start is not None:
        tables: dict[str, Any] = start.model_dump(mode="json", exclude_unset=True, exclude_none=True)
    else:
        paths = files if folder is None else resolve_files(files, folder)
        task = task or tasks_of_table(table)[0].name
        suggestion, examples = task_of(task).suggest(paths, minutes)
        tables = {"task": task, **suggestion}
        if init_from is not None:
            tables = fine_tuning(tables, read_config(init_from).model.width)
        elif preset is not None:
            tables["model"] = {name: value for name, value in tables["model"].items() if name not in SIZES} | {
                "preset": preset
            }
        if say is not None and is_main_process():
            say(summary(tables, examples))
    tables[table] = {**tables.get(table, {}), **files}
    return check(tables, "the command line")


def resolve_corpus(settings: RunSettings, folder: Path) -> RunSettings:
    """Return the settings with their corpus files moved to paths in a folder, except absolute paths.

    Raises:
        ArgumentError: the settings name no files, or there is no such folder.
    """
    from attent.tasks.task import task_of, tasks

    for table in task_of(settings.task).tables:
        corpus = getattr(settings, table)
        if keys := getattr(corpus, "file_keys", ()):
            files = {name: file for name, file in corpus.model_dump().items() if name in keys and file is not None}
            return settings.model_copy(update={table: corpus.model_copy(update=resolve_files(files, folder))})
    tables = [
        f"[{name}]" for task in tasks().values() for name, table in task.tables.items() if hasattr(table, "file_keys")
    ]
    raise ArgumentError(
        f"--data is where the files of {' or '.join(dict.fromkeys(tables))} are, but these settings name none"
    )


def resolve_files(files: Mapping[str, str], folder: Path) -> dict[str, str]:
    """Return the files as paths in a folder, except standard input, scikit-learn's digits, and absolute paths.

    Raises:
        ArgumentError: there is no such folder.
    """
    from attent.tasks.classification.settings import DIGITS
    from attent.text.readers import STANDARD_INPUT

    if not folder.is_dir():
        raise ArgumentError(f"--data {folder} is not a folder")
    no_files = {("source", DIGITS), *((name, STANDARD_INPUT) for name in files)}
    return {
        name: file if (name, file) in no_files or name == "size" else str(folder / file) for name, file in files.items()
    }


def override(
    settings: RunSettings,
    changes: Sequence[str] = (),
    **values: Any,
) -> RunSettings:
    """Return settings with some values replaced, checked like those of a file.

    Args:
        settings: settings to start from.
        changes: changes of the form `table.key=value`, with the value in TOML; a value that is not valid TOML is used
            as text.
        values: training settings; None leaves a setting unchanged. Minutes or updates replace both limits of the
            settings.

    Raises:
        ArgumentError: a change does not have this form, or a value is invalid.
        UnknownNameError: a key is unknown.
    """
    from attent.tasks.settings import check

    tables = settings.model_dump(mode="json", exclude_unset=True, exclude_none=True)
    training = tables.setdefault("training", {})
    values = {name: value for name, value in values.items() if value is not None}
    if values.keys() & {"minutes", "updates"}:
        training.pop("minutes", None)
        training.pop("updates", None)
    training |= values
    for change in changes:
        _set(tables, change)
    return check(tables, "the command line")


def _set(tables: dict[str, Any], change: str) -> None:
    path, equals, text = change.partition("=")
    *names, key = path.strip().split(".")
    if not equals or not names or not all((*names, key)):
        raise ArgumentError(f"--set takes table.key=value, such as training.learning_rate=1e-3, got {change!r}")
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text.strip()
    except (ValueError, RecursionError):
        raise ArgumentError(
            f"--set {path}: the value is nested too deeply, or is a number with too many digits"
        ) from None
    table = tables
    for name in names:
        table = table.setdefault(name, {})
        if not isinstance(table, dict):
            raise ArgumentError(f"--set {change}: {name} is not a table")
    table[key] = value


def _check_sides(files: Mapping[str, Any]) -> None:
    """Raise an ArgumentError if the file of only one side of pairs is given, or a file name is not that of pairs."""
    from attent.text.readers import pairs_ending

    for name in ("train", "valid", "replay"):
        if name in files:
            pairs_ending(files[name])
    refuse(
        *(
            (
                f"{name}_{side}" in files and f"{name}_{other_side}" not in files,
                f"--{name}-{side} {files.get(f'{name}_{side}')} needs --{name}-{other_side}, a file with the "
                f"{other_side}s, line for line",
            )
            for name in ("train", "valid")
            for side, other_side in (("source", "target"), ("target", "source"))
        )
    )
