"""Settings of a run, and their strict parsing from TOML."""

from __future__ import annotations

import tomllib
from importlib.resources import files
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, Field, ValidationError, model_validator

from attent.bounded import text_of
from attent.errors import ArgumentError, AttentError, DataError, UnknownNameError
from attent.models.settings import SETTINGS, ModelSettings, keys_of
from attent.runs.config import DOES, MODEL_KINDS, Task
from attent.tasks.classification.settings import FILES as LABELLED_FILES
from attent.tasks.classification.settings import ImagesSettings, LabelledSettings
from attent.tasks.dates import DatesSettings
from attent.text.settings import FILES, LinesSettings, TextSettings, VectorsSettings
from attent.training.settings import TrainingSettings

# Bytes of a file of settings.
LARGEST = 2**20
ENCODER = "encoder"
# A deeper model takes minutes and gigabytes to build whatever its width.
MAX_LAYERS = 10_000
# The tables of each task's corpora; the first one may be left out if its settings have defaults.
CORPORA: dict[Task, tuple[str, ...]] = {
    "translate": ("dates", "text"),
    "fill-mask": ("lines",),
    "classify": ("images", "labelled"),
    "text-generation": ("lines",),
}
# Model settings that a task requires; they need not be written, and must not differ.
REQUIRED: dict[str, dict[str, Any]] = {
    "translate": {},
    "fill-mask": {"kind": ENCODER, "input": "tokens", "cls": False},
    "classify": {"kind": ENCODER, "cls": True},
    "text-generation": {"kind": "decoder"},
}


def _required(tables: dict[str, Any]) -> dict[str, Any]:
    """Return the required model settings; a classifier of images reads vectors."""
    task = tables.get("task", "translate")
    required: dict[str, Any] = REQUIRED.get(task, {}) if isinstance(task, str) else {}
    return required if tables.get("images") is None else required | {"input": "vectors"}


def _default_model(tables: dict[str, Any]) -> Any:
    values = _required(tables)
    return SETTINGS[values.get("kind", "transformer")].model_validate(values)


class RunSettings(BaseModel, extra="forbid", frozen=True):
    """All settings of a run.

    Args:
        task: translation, masked language modelling, classification or text generation.
        dates: the generated corpus of a translator, `[dates]` in TOML.
        text: instead of dates, a corpus in files, `[text]`.
        lines: the text of a language model, masked or not, `[lines]`.
        vectors: word vectors to initialize embeddings with, `[vectors]`.
        images: pictures or sequences of vectors to classify, `[images]`.
        labelled: instead of these, texts, `[labelled]`.
        model: `[model]`; may name a preset and change parts of it.
        training: `[training]`.
    """

    task: Task = "translate"
    dates: DatesSettings = DatesSettings.model_validate({})
    text: TextSettings | None = None
    lines: LinesSettings | None = None
    vectors: VectorsSettings | None = None
    images: ImagesSettings | None = None
    labelled: LabelledSettings | None = None
    model: ModelSettings = Field(default_factory=_default_model)
    training: TrainingSettings

    @property
    def files(self) -> list[str]:
        """Return the files of the corpus."""
        tables, names = (self.text, self.lines, self.labelled), {*FILES, *LABELLED_FILES}
        return [
            file
            for table in tables
            if table is not None
            for name in names
            if (file := getattr(table, name, None)) is not None
        ]

    @model_validator(mode="before")
    @classmethod
    def _complete_model(cls, values: Any) -> Any:
        """Add the settings that the task requires to a table [model]."""
        if not isinstance(values, dict) or not isinstance(model := values.get("model"), dict):
            return values
        required = _required(values)
        return values | {"model": required | model} if model.get("kind") in (None, required.get("kind")) else values

    @model_validator(mode="before")
    @classmethod
    def _complete_lines(cls, values: Any) -> Any:
        """Cut text to be generated into pieces, unless its table [lines] says otherwise.

        Words would lack all that is rare.
        """
        if (
            not isinstance(values, dict)
            or values.get("task") != "text-generation"
            or not isinstance(lines := values.get("lines"), dict)
        ):
            return values
        return values | {"lines": {"tokenizer": "bpe"} | lines}

    @model_validator(mode="after")
    def _one_corpus(self) -> RunSettings:
        allowed = CORPORA[self.task]
        names = dict.fromkeys(name for tables in CORPORA.values() for name in tables)
        present = [name for name in names if name in self.model_fields_set and getattr(self, name) is not None]
        if wrong := [name for name in present if name not in allowed]:
            tables = " or ".join(f"[{name}]" for name in allowed)
            raise ValueError(
                f"a run that {DOES[self.task][0]} learns from {tables}, got [{wrong[0]}] (task = {self.task!r})"
            )
        if len(present) > 1:
            raise ValueError(f"{' and '.join(f'[{name}]' for name in present)} cannot both be the corpus")
        if not present and self.task != "translate":
            raise ValueError(
                f"task = {self.task!r} needs something to learn from: {' or '.join(f'[{name}]' for name in allowed)}"
            )
        return self

    @model_validator(mode="after")
    def _model_can_do_it(self) -> RunSettings:
        if self.lines is not None and self.lines.packing == "text" and self.task != "text-generation":
            raise ValueError(f'lines: packing = "text" is for task = "text-generation", got {self.task!r}')
        if self.model.kind not in MODEL_KINDS[self.task]:
            raise ValueError(f"model: a model of kind {self.model.kind!r} does not suit task = {self.task!r}")
        for name, value in self.model:
            if name.endswith("layers") and value > MAX_LAYERS:
                raise ValueError(f"model: {name} must be at most {MAX_LAYERS:,}, got {value:,}")
        for name, value in _required({"task": self.task, "images": self.images}).items():
            if (actual := getattr(self.model, name, None)) != value:
                raise ValueError(f"model: task = {self.task!r} needs {name} = {value!r}, got {actual!r}")
        return self


def read(path: Path | str) -> RunSettings:
    """Read settings from a TOML file.

    Raises:
        ArgumentError: the file cannot be read, is not TOML, or a value in it cannot be used.
        UnknownNameError: a key or a value's name is unknown; the message lists the known ones and the nearest.
    """
    try:
        with Path(path).open("rb") as file:
            text = text_of(file, LARGEST)
    except (OSError, DataError) as error:
        raise ArgumentError(f"{path} cannot be read: {error}") from error
    return parse(text, str(path))


def demo() -> RunSettings:
    """Return the settings of the demo, which come with the package."""
    file = files("attent").joinpath("configs", "dates-demo.toml")
    return parse(file.read_text(encoding="utf-8"), file.name)


def parse(text: str, name: str) -> RunSettings:
    """Parse settings from TOML text.

    Args:
        text: the TOML.
        name: of the source, for error messages.

    Raises:
        ArgumentError: it is not TOML, or a value in it cannot be used.
        UnknownNameError: a key or a value's name is unknown.
    """
    try:
        tables = tomllib.loads(text)
    except RecursionError:
        raise ArgumentError(f"{name} is not TOML that can be read: it is nested too deep") from None
    # also raised for a number of more digits than Python reads
    except ValueError as error:
        raise ArgumentError(f"{name} is not TOML: {error}") from error
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
    fields = keys_of(settings["model"]) if tables == ["model"] else _fields(tables)
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


def _fields(tables: list[str | int]) -> dict[str, Any]:
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
