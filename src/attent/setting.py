"""Annotations of settings: help, bounds and the names of options.

A setting is declared once, as `beam: Annotated[int, Bound(1, 100), Help("Beam size.")] = 1`; options, environment
variables and the reference are derived from that declaration. Pydantic models use
`Field(ge=1, le=100, description="Beam size.")` for the same purpose.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Help:
    """The help text of a setting for `--help` and the reference, and the placeholder for its value."""

    text: str = ""
    metavar: str | None = None


@dataclass(frozen=True)
class Bound:
    """The minimum and maximum of a setting; None for no bound."""

    minimum: float | None = None
    maximum: float | None = None


@dataclass(frozen=True)
class Flag:
    """The options of a setting if they differ from `--` and its name, such as "--open/--no-open"."""

    names: tuple[str, ...]

    def __init__(self, *names: str) -> None:
        object.__setattr__(self, "names", names)
