"""Requests of the page, validated on arrival."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

# The page says "mean" for the mean over heads, which is None in Python.
Head = Annotated[Annotated[int, Field(ge=0)] | None, BeforeValidator(lambda head: None if head == "mean" else head)]
Index = Annotated[int, Field(ge=0)]


class RequestModel(BaseModel):
    """Base of all requests: refuses unknown fields."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class HeadRequest(RequestModel):
    """A head of a layer of a group, or the mean over its heads."""

    group: str
    layer: Index
    head: Head


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


class TextRequest(RequestModel):
    """A text for a run, which is given by its number."""

    run: Index = 0
    text: str


class ExampleRequest(RequestModel):
    """An example among those that a run was started with."""

    run: Index = 0
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
