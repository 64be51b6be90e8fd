"""What a page may ask for, checked as it comes in."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

# "mean" over heads is None to us.
Head = Annotated[Annotated[int, Field(ge=0)] | None, BeforeValidator(lambda given: None if given == "mean" else given)]
Number = Annotated[int, Field(ge=0)]


class Asked(BaseModel):
    """Nothing but what is named here."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Where(Asked):
    """One head of one layer of a group, or the mean over its heads."""

    group: str
    layer: Number
    head: Head


class Row(Where):
    """How one query looks."""

    query: Number


class Column(Where):
    """Who looks at one key."""

    key: Number


class TileOf(Where):
    """A tile of a level."""

    level: Number
    y: Number
    x: Number
    how: Literal["mean", "max"] = "mean"


class Summary(Asked):
    """The figures of a group."""

    group: str


class Text(Asked):
    """A text for a run, by its number."""

    run: Number = 0
    text: str


class Example(Asked):
    """One of the examples that a run was started with."""

    run: Number = 0
    row: Number


class Translate(Text):
    """A text to translate.

    Args:
        prefix: ids of the tokens that the translation begins with.
        more: what comes behind them, as text.
        beam: hypotheses kept side by side; with more than one the translation is there all at once.
        best: how many candidates are named at each step.
        where: the weights that are told of each token while it grows; none unless given.
    """

    prefix: tuple[Number, ...] = ()
    more: str = ""
    beam: int = Field(default=1, ge=1, le=16)
    best: int = Field(default=8, ge=1, le=50)
    where: Where | None = None
