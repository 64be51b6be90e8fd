"""The settings of a run, and their strict reading from TOML."""

from __future__ import annotations

import tomllib
from importlib.resources import files
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from attent.data.dates import DatesSettings
from attent.data.settings import TextSettings
from attent.errors import ArgumentError, AttentError, UnknownNameError
from attent.models.settings import ModelSettings, keys_of
from attent.models.transformer_settings import TransformerSettings
from attent.training.settings import TrainingSettings


class RunSettings(BaseModel):
    """Everything that decides a run; each part's settings are that part's own.

    Args:
        dates: the corpus, `[dates]` in TOML.
        text: instead of dates, a corpus in files, `[text]`.
        model: `[model]`; may name a preset and change some of it.
        training: `[training]`.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    dates: DatesSettings = DatesSettings.model_validate({})
    text: TextSettings | None = None
    model: ModelSettings = TransformerSettings()
    training: TrainingSettings

    @model_validator(mode="after")
    def _one_corpus(self) -> RunSettings:
        if self.text is not None and "dates" in self.model_fields_set:
            raise ValueError("[dates] and [text] cannot both be the corpus")
        return self


def read(path: Path | str) -> RunSettings:
    """The settings in a TOML file.

    Raises:
        ArgumentError: the file cannot be read, is not TOML, or a value in it cannot be used.
        UnknownNameError: a key or a value's name is unknown; the message lists the known ones and the nearest.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
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
    tables: dict[str, Any] = {}
    try:
        tables = tomllib.loads(text)
        return RunSettings.model_validate(tables)
    except tomllib.TOMLDecodeError as error:
        raise ArgumentError(f"{name} is not TOML: {error}") from error
    except ValidationError as error:
        # pydantic says everything at once; the first is enough to go on with, and others may only follow from it.
        raise _said_clearly(error.errors()[0], name, tables) from None


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
