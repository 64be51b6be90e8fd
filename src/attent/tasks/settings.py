"""The settings of a run, and their strict reading from TOML."""

from __future__ import annotations

import tomllib
from importlib.resources import files
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from attent.bounded import text_of
from attent.data.dates import DatesSettings
from attent.data.labelled.settings import FILES as LABELLED_FILES
from attent.data.labelled.settings import ImagesSettings, LabelledSettings
from attent.data.settings import FILES, LinesSettings, TextSettings
from attent.data.word_vectors.settings import VectorsSettings
from attent.errors import ArgumentError, AttentError, DataError, UnknownNameError
from attent.models.settings import SETTINGS, ModelSettings, keys_of
from attent.runs.config import DOES, Task
from attent.training.settings import TrainingSettings

# Bytes of a file of settings.
LARGEST = 2**20
ENCODER = "encoder"
# More of them take minutes and gigabytes to build whatever their width.
MOST_LAYERS = 10_000
# The tables that can be a task's corpus; the first stands for its settings' defaults, where it has any.
CORPORA: dict[Task, tuple[str, ...]] = {"translate": ("dates", "text"), "fill-mask": ("lines",), "classify": ("images", "labelled")}
# What a task asks of a model's settings: what they are unless they say so, and must not be otherwise.
NEEDED: dict[str, dict[str, Any]] = {
    "translate": {},
    "fill-mask": {"kind": ENCODER, "input": "tokens", "cls": False},
    "classify": {"kind": ENCODER, "cls": True},
}


def _needed(tables: dict[str, Any]) -> dict[str, Any]:
    """What the model of these settings must be: a classifier reads what its corpus is made of."""
    task = tables.get("task", "translate")
    needed: dict[str, Any] = NEEDED.get(task, {}) if isinstance(task, str) else {}
    return needed if tables.get("images") is None else needed | {"input": "vectors"}


def _model_of(given: dict[str, Any]) -> Any:
    """The model of settings that name none."""
    values = _needed(given)
    return SETTINGS[values.get("kind", "transformer")].model_validate(values)


class RunSettings(BaseModel):
    """Everything that decides a run; each part's settings are that part's own.

    Args:
        task: what is learnt: to translate, to fill blanks, or to classify.
        dates: the corpus of a translator, `[dates]` in TOML.
        text: instead of dates, a corpus in files, `[text]`.
        lines: what blanks are made in, `[lines]`.
        vectors: word vectors that embeddings start from, `[vectors]`.
        images: pictures or sequences of vectors to be classified, `[images]`.
        labelled: instead of these, texts, `[labelled]`.
        model: `[model]`; may name a preset and change some of it.
        training: `[training]`.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    task: Task = "translate"
    dates: DatesSettings = DatesSettings.model_validate({})
    text: TextSettings | None = None
    lines: LinesSettings | None = None
    vectors: VectorsSettings | None = None
    images: ImagesSettings | None = None
    labelled: LabelledSettings | None = None
    model: ModelSettings = Field(default_factory=_model_of)
    training: TrainingSettings

    @property
    def files(self) -> list[str]:
        """The files that the corpus is read from."""
        tables, names = (self.text, self.lines, self.labelled), {*FILES, *LABELLED_FILES}
        return [file for table in tables if table is not None for name in names if (file := getattr(table, name, None)) is not None]

    @model_validator(mode="before")
    @classmethod
    def _model_of_the_task(cls, values: Any) -> Any:
        """A table [model] need not say what the task says already."""
        if not isinstance(values, dict) or not isinstance(model := values.get("model"), dict):
            return values
        return values | {"model": _needed(values) | model} if model.get("kind", ENCODER) == ENCODER else values

    @model_validator(mode="after")
    def _one_corpus(self) -> RunSettings:
        known = CORPORA[self.task]
        given = [name for names in CORPORA.values() for name in names if name in self.model_fields_set and getattr(self, name) is not None]
        if wrong := [name for name in given if name not in known]:
            tables = " or ".join(f"[{name}]" for name in known)
            raise ValueError(f"a run that {DOES[self.task][0]} learns from {tables}, got [{wrong[0]}] (task = {self.task!r})")
        if len(given) > 1:
            raise ValueError(f"{' and '.join(f'[{name}]' for name in given)} cannot both be the corpus")
        if not given and self.task != "translate":
            raise ValueError(f"task = {self.task!r} needs something to learn from: {' or '.join(f'[{name}]' for name in known)}")
        return self

    @model_validator(mode="after")
    def _model_can_do_it(self) -> RunSettings:
        if (self.model.kind == ENCODER) is (self.task == "translate"):
            raise ValueError(f"model: a model of kind {self.model.kind!r} does not suit task = {self.task!r}")
        for name, value in self.model:
            if name.endswith("layers") and value > MOST_LAYERS:
                raise ValueError(f"model: {name} must be at most {MOST_LAYERS:,}, got {value:,}")
        for name, value in _needed({"task": self.task, "images": self.images}).items():
            if (found := getattr(self.model, name, None)) != value:
                raise ValueError(f"model: task = {self.task!r} needs {name} = {value!r}, got {found!r}")
        return self


def read(path: Path | str) -> RunSettings:
    """The settings in a TOML file.

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
    """The settings of the demo, which come with the package."""
    file = files("attent").joinpath("configs", "dates-demo.toml")
    return parse(file.read_text(encoding="utf-8"), file.name)


def parse(text: str, name: str) -> RunSettings:
    """The settings in TOML text.

    Args:
        text: the TOML.
        name: what error messages call it.

    Raises:
        ArgumentError: it is not TOML, or a value in it cannot be used.
        UnknownNameError: a key or a value's name is unknown.
    """
    try:
        tables = tomllib.loads(text)
    except RecursionError:
        raise ArgumentError(f"{name} is not TOML that can be read: it is nested too deep") from None
    # also a number of more digits than Python reads
    except ValueError as error:
        raise ArgumentError(f"{name} is not TOML: {error}") from error
    try:
        return RunSettings.model_validate(tables)
    except ValidationError as error:
        # pydantic says everything at once; the first is enough to go on with, and others may only follow from it.
        first, *others = error.errors()
        fault = _said_clearly(first, name, tables)
        unknown = [other for other in others if other["type"] == "extra_forbidden"]
        if first["type"] != "missing" or not unknown:
            raise fault from None
        # what is missing may be there under a wrong name
        raise ArgumentError(f"{fault}; {_said_clearly(unknown[0], name, tables)}") from None


def _said_clearly(error: Any, name: str, given: dict[str, Any]) -> AttentError:
    *tables, key = error["loc"] or ("",)
    place = ".".join(map(str, error["loc"])) or name
    known = keys_of(given["model"]) if tables == ["model"] else _fields(tables)
    match error["type"]:
        case "extra_forbidden":
            kind = f"key in [{'.'.join(map(str, tables))}] of {name}," if tables else f"table in {name},"
            return UnknownNameError(kind, str(key), known)
        case "missing":
            return ArgumentError(f"{name}: {place} is missing")
        case "literal_error" if isinstance(error["input"], str) and key in known:
            return UnknownNameError(f"{place} in {name},", error["input"], [str(value) for value in get_args(known[key])])
        case "value_error":
            return ArgumentError(f"{name}: {place}: {error['ctx']['error']}")
        case _:
            return ArgumentError(f"{name}: {place}: {error['msg'][:1].lower()}{error['msg'][1:]}, got {error['input']!r}")


def _fields(tables: list[str | int]) -> dict[str, Any]:
    """The keys that a table may have, and their types."""
    settings: type[BaseModel] = RunSettings
    for table in tables:
        field = settings.model_fields.get(str(table))
        kinds = () if field is None else (field.annotation, *get_args(field.annotation))
        inner = next((kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)), None)
        if inner is None:
            return {}
        settings = inner
    return {name: field.annotation for name, field in settings.model_fields.items()}
