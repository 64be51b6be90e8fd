"""Annotations of settings: help, bounds and the names of options.

A setting is declared once, as `beam: Annotated[int, Bound(1, 100), Help("Beam size.")] = 1`; options, environment
variables and the reference are read off the declaration. A pydantic model has the same in
`Field(ge=1, le=100, description="Beam size.")`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from attent.errors import ArgumentError

Settings = TypeVar("Settings")
# The bounds of a number in messages, by their names in pydantic.
BOUNDS = {"ge": "at least", "gt": "above", "le": "at most", "lt": "below"}


@dataclass(frozen=True)
class Help:
    """Sentence about a setting, for `--help` and the reference, and the placeholder of its value there."""

    text: str = ""
    metavar: str | None = None


@dataclass(frozen=True)
class Bound:
    """The minimum and maximum of a setting; None for no bound."""

    minimum: float | None = None
    maximum: float | None = None


@dataclass(frozen=True)
class Flag:
    """The option of a setting, if not `--` and its name, such as "--open/--no-open" or "--updates", "--steps"."""

    names: tuple[str, ...]

    def __init__(self, *names: str) -> None:
        object.__setattr__(self, "names", names)


@dataclass(frozen=True)
class Offer:
    """The settings of a class that a command offers as options, all `None` unless given.

    Args:
        module: of the class, imported when the command is called or shows its help.
        name: of the class.
        settings: names of its fields; all of them if neither these nor options are named.
        options: names of further fields, and of their options.
        overrides: whether the values replace those of other settings, such as a recipe's. Then no defaults are shown,
            and the command line refuses values out of bounds; else `Given.settings` does.
    """

    module: str
    name: str
    settings: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    overrides: bool = False


@dataclass(frozen=True)
class Given(Generic[Settings]):
    """The values of settings that were given to a command; the others keep their defaults.

    Attributes:
        kind: the class of the settings, a pydantic model.
        values: by the name of the setting.
        options: the option of each setting.
    """

    kind: type[Settings]
    values: Mapping[str, Any]
    options: Mapping[str, str]

    def settings(self, **values: Any) -> Settings:
        """Return the settings with the values that were given, and with these.

        Raises:
            ArgumentError: a value cannot be used, or two do not go together.
        """
        from pydantic import ValidationError

        try:
            return self.kind(**{**self.values, **values})
        except ValidationError as error:
            raise ArgumentError(self._message(error.errors()[0])) from error

    def _message(self, fault: Any) -> str:
        """Return the message about the first fault, by its option where it is about a single one."""
        context = fault.get("ctx", {})
        limits = [f"{words} {context[bound]:g}" for bound, words in BOUNDS.items() if bound in context]
        limits = ["a finite number"] if fault["type"] == "finite_number" else limits
        if not limits or not fault["loc"]:
            return fault["msg"].removeprefix("Value error, ")
        return f"{self.options[fault['loc'][0]]} must be {limits[0]}, got {fault['input']}"
