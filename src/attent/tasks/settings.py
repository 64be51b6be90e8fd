"""Settings of a run, and their strict parsing from TOML."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from pydantic import BaseModel, Field, ValidationError, create_model, model_validator

from attent.bounded import text_of
from attent.errors import ArgumentError, AttentError, DataError, UnknownNameError, refuse, reraise
from attent.models.settings import SETTINGS, ModelSettings, keys_of
from attent.tasks.task import DEFAULT_TASK, Task, task_of, tasks
from attent.text.settings import VectorsSettings
from attent.training.settings import TrainingSettings

# Maximum bytes of a settings file.
LARGEST = 2**20
# A deeper model takes minutes and gigabytes to build, regardless of its width.
MAX_LAYERS = 10_000


def _task(tables: Mapping[str, Any]) -> Task[Any] | None:
    """Return the task of a recipe; None if it is unknown."""
    name = tables.get("task", DEFAULT_TASK)
    return tasks().get(name) if isinstance(name, str) else None


def _default_model(tables: dict[str, Any]) -> Any:
    task = _task(tables)
    values = {} if task is None else task.model_settings(tables)
    return SETTINGS[values.get("kind", "transformer")].model_validate(values)


def _default_table(settings: type[BaseModel]) -> BaseModel | None:
    """Return the default settings of a corpus table; None if some values are required."""
    try:
        return settings.model_validate({})
    except ValidationError:
        return None


def _tables() -> dict[str, type[BaseModel]]:
    """Return the settings class of every corpus, by table name."""
    return {name: settings for task in tasks().values() for name, settings in task.tables.items()}


def _fields_of_tasks() -> dict[str, Any]:
    """Return the fields of `RunSettings` that depend on the tasks, in the order used by earlier versions."""
    fields: dict[str, Any] = {"task": (Literal[*tasks()], Field(DEFAULT_TASK, description="what the run learns"))}
    vectors = {"vectors": (VectorsSettings | None, None)}
    for task in tasks().values():
        tables = {
            name: (
                settings | None,
                Field(_default_table(settings), description=f"`[{name}]`, a corpus of a run that {task.does}"),
            )
            for name, settings in task.tables.items()
        }
        # word vectors apply to the tables before them
        fields |= tables if task.needs_tokenizers else vectors | tables
    return fields | vectors


class RunSettings(create_model("TaskSettings", **_fields_of_tasks()), extra="forbid", frozen=True):
    """All settings of a run: its task, the corpus tables of every task, and those below.

    Args:
        vectors: word vectors to initialize embeddings with, `[vectors]`.
        model: `[model]`; may name a preset and change parts of it.
        training: `[training]`.
    """

    model: ModelSettings = Field(default_factory=_default_model)
    training: TrainingSettings

    if TYPE_CHECKING:
        task: str
        vectors: VectorsSettings | None

        def __getattr__(self, name: str) -> Any: ...

    @property
    def files(self) -> list[str]:
        """Return the files of the corpus."""
        corpora = [corpus for name in task_of(self.task).tables if (corpus := getattr(self, name)) is not None]
        return [
            file
            for corpus in corpora
            for name in getattr(corpus, "file_keys", ())
            if (file := getattr(corpus, name, None)) is not None
        ]

    @model_validator(mode="before")
    @classmethod
    def _complete_model(cls, values: Any) -> Any:
        """Add the settings that the task requires to a table [model]."""
        model = values.get("model") if isinstance(values, dict) else None
        if not isinstance(model, dict) or (task := _task(values)) is None:
            return values
        required = task.model_settings(values)
        is_of_kind = model.get("kind") in (None, required.get("kind", model.get("kind")))
        return values | {"model": required | model} if is_of_kind else values

    @model_validator(mode="before")
    @classmethod
    def _complete_tables(cls, values: Any) -> Any:
        """Add the defaults of the task to the tables of its corpora."""
        if not isinstance(values, dict) or (task := _task(values)) is None:
            return values
        tables = {
            name: {**defaults, **values[name]}
            for name, defaults in task.table_defaults.items()
            if isinstance(values.get(name), dict)
        }
        return values | tables

    @model_validator(mode="after")
    def _one_corpus(self) -> RunSettings:
        task = task_of(self.task)
        present = [name for name in _tables() if name in self.model_fields_set and getattr(self, name) is not None]
        tables = " or ".join(f"[{name}]" for name in task.tables)
        if wrong := [name for name in present if name not in task.tables]:
            raise ValueError(f"a run that {task.does} learns from {tables}, got [{wrong[0]}] (task = {self.task!r})")
        if len(present) > 1:
            raise ValueError(f"{' and '.join(f'[{name}]' for name in present)} cannot both be the corpus")
        if not present and getattr(self, next(iter(task.tables))) is None:
            raise ValueError(f"task = {self.task!r} needs a corpus: {tables}")
        return self

    @model_validator(mode="after")
    def _model_can_do_it(self) -> RunSettings:
        task = task_of(self.task)
        task.check(self)
        if self.model.kind not in task.model_kinds:
            raise ValueError(f"model: a model of kind {self.model.kind!r} does not suit task = {self.task!r}")
        refuse(
            *(
                (value > MAX_LAYERS, f"model: {name} must be at most {MAX_LAYERS:,}, got {value:,}")
                for name, value in self.model
                if name.endswith("layers")
            ),
            kind=ValueError,
        )
        for name, value in task.model_settings({table: getattr(self, table) for table in task.tables}).items():
            if (actual := getattr(self.model, name, None)) != value:
                raise ValueError(f"model: task = {self.task!r} needs {name} = {value!r}, got {actual!r}")
        return self


def read(path: Path | str) -> RunSettings:
    """Read settings from a TOML file.

    Raises:
        ArgumentError: the file cannot be read, is not TOML, or has an invalid value.
        UnknownNameError: a key or a value's name is unknown; the message lists the known ones and the closest match.
    """
    with reraise(ArgumentError, f"{path} cannot be read", OSError, DataError), Path(path).open("rb") as file:
        text = text_of(file, LARGEST)
    return parse(text, str(path))


def demo(name: str = "dates") -> RunSettings:
    """Return the settings of a demo, "dates" or "words", which come with the package."""
    file = files("attent").joinpath("configs", f"{name}-demo.toml")
    return parse(file.read_text(encoding="utf-8"), file.name)


def parse(text: str, name: str) -> RunSettings:
    """Parse settings from TOML text.

    Args:
        text: the TOML.
        name: name of the source, for error messages.

    Raises:
        ArgumentError: it is not TOML, or has an invalid value.
        UnknownNameError: a key or a value's name is unknown.
    """
    try:
        tables = tomllib.loads(text)
    except RecursionError:
        raise ArgumentError(f"{name} cannot be read as TOML: it is nested too deeply") from None
    # also raised for a number with more digits than Python accepts
    except ValueError as error:
        raise ArgumentError(f"{name} is not TOML: {error}") from error
    return check(tables, name)


def check(tables: dict[str, Any], name: str) -> RunSettings:
    """Return the settings in nested tables of plain values.

    Args:
        tables: the tables, as read from TOML.
        name: name of the source, for error messages.

    Raises:
        ArgumentError: a value is invalid.
        UnknownNameError: a key or a value's name is unknown.
    """
    try:
        return RunSettings.model_validate(tables)
    except ValidationError as error:
        # report the first fault only: further ones may follow from it
        first, *rest = error.errors()
        fault = _clear_error(first, name, tables)
        unknown = [item for item in rest if item["type"] == "extra_forbidden"]
        if first["type"] != "missing" or not unknown:
            raise fault from None
        # a missing key may be present under a wrong name
        raise ArgumentError(f"{fault}; {_clear_error(unknown[0], name, tables)}") from None


def _clear_error(error: Any, name: str, settings: dict[str, Any]) -> AttentError:
    *tables, key = error["loc"] or ("",)
    location = ".".join(map(str, error["loc"])) or name
    fields = keys_of(settings["model"]) if tables == ["model"] else _key_types(tables)
    match error["type"]:
        case "extra_forbidden":
            kind = f"key in [{'.'.join(map(str, tables))}] of {name}," if tables else f"table in {name},"
            return UnknownNameError(kind, str(key), fields)
        case "missing":
            return ArgumentError(f"{name}: {location} is missing")
        case "literal_error" if isinstance(error["input"], str) and key in fields:
            return UnknownNameError(
                f"{location} in {name},", error["input"], [str(value) for value in get_args(fields[key])]
            )
        case "value_error":
            return ArgumentError(f"{name}: {location}: {error['ctx']['error']}")
        case _:
            return ArgumentError(
                f"{name}: {location}: {error['msg'][:1].lower()}{error['msg'][1:]}, got {error['input']!r}"
            )


def _key_types(tables: list[str | int]) -> dict[str, Any]:
    """Return the keys of a table, and their types."""
    settings: type[BaseModel] = RunSettings
    for table in tables:
        field = settings.model_fields.get(str(table))
        kinds = () if field is None else (field.annotation, *get_args(field.annotation))
        inner = next((kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)), None)
        if inner is None:
            return {}
        settings = inner
    return {name: field.annotation for name, field in settings.model_fields.items()}
