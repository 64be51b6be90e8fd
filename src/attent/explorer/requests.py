"""Requests of the page, validated on arrival."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from attent.explorer.pooling import TEMPERATURES

# The page says "mean" for the mean over heads, which is None in Python.
Head = Annotated[Annotated[int, Field(ge=0)] | None, BeforeValidator(lambda head: None if head == "mean" else head)]
Index = Annotated[int, Field(ge=0)]
# Characters of a module's path, and heads that are switched off at once.
MAX_PATH, MAX_HEADS = 500, 4096


class RequestModel(BaseModel):
    """Base of all requests: refuses unknown fields."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class HeadRequest(RequestModel):
    """A head of a layer of a group, or the mean over its heads.

    Args:
        group: its name.
        layer: from 0.
        head: from 0, or "mean".
        temperature: of what is shown: see `pooling.adjust`.
        top: how many of the largest weights of each row are shown; 0 for all.
    """

    group: str
    layer: Index
    head: Head
    temperature: float = Field(default=1.0, ge=TEMPERATURES[0], le=TEMPERATURES[1])
    top: Index = 0


class RowRequest(HeadRequest):
    """The weights of one query."""

    query: Index


class ColumnRequest(HeadRequest):
    """The weights on one key."""

    key: Index


class TileRequest(HeadRequest):
    """A tile of a level."""

    level: Index
    y: Index
    x: Index
    reduction: Literal["mean", "max"] = Field(default="mean", alias="how")


class SummaryRequest(RequestModel):
    """The statistics of the heads of a group."""

    group: str


class SwitchedHead(RequestModel):
    """A head that is switched off, by the path of its module."""

    module: str = Field(max_length=MAX_PATH)
    head: Annotated[int, Field(ge=0, lt=MAX_HEADS)]


class RunRequest(RequestModel):
    """A request to a run, which is given by its number, with some heads switched off."""

    run: Index = 0
    off: tuple[SwitchedHead, ...] = Field(default=(), max_length=MAX_HEADS)


class TextRequest(RunRequest):
    """A text for a run."""

    text: str


class ExampleRequest(RunRequest):
    """An example among those that a run was started with."""

    row: Index


class TranslateRequest(TextRequest):
    """A text to translate, or to continue.

    Args:
        prefix: ids of the tokens that the translation or continuation begins with.
        more: text that follows the prefix.
        beam: beam size; with more than one the translation arrives all at once. A continuation is greedy.
        best: candidates reported at each step.
        view: the head whose weights are sent with each token; none unless given. JSON calls it "where".
    """

    prefix: tuple[Index, ...] = ()
    more: str = ""
    beam: int = Field(default=1, ge=1, le=16)
    best: int = Field(default=8, ge=1, le=50)
    view: HeadRequest | None = Field(default=None, alias="where")
