"""What a field of a settings class says of itself, from which options, names and references are read.

A setting is written once, as `beam: Annotated[int, Bound(1, 100), Help("Beam size.")] = 1`. Fields of pydantic models
say the same by `Field(ge=1, le=100, description="Beam size.")`.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Help:
    """One sentence about a setting, for `--help` and the reference; `metavar` stands for its value there."""

    text: str = ""
    metavar: str | None = None


@dataclass(frozen=True)
class Bound:
    """The least and the largest value of a setting; None where there is no bound."""

    least: float | None = None
    largest: float | None = None


@dataclass(frozen=True)
class Flag:
    """The option of a setting, if not `--` and its name, such as "--open/--no-open" or "--updates", "--steps"."""

    names: tuple[str, ...]

    def __init__(self, *names: str) -> None:
        object.__setattr__(self, "names", names)
