"""What a comparison found: tables and figures, for people (Markdown, PNG) and for pages (JSON with every point)."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from attent.errors import AttentError
from attent.experiments.benchmarking.report import Report, Table
from attent.runs.durable import new_file


class Point(NamedTuple):
    """A point of a figure, with its interval and the values of each seed where it has them."""

    x: float | str
    y: float
    low: float | None = None
    high: float | None = None
    sentences: int | None = None
    by_seed: tuple[float, ...] = ()


@dataclass(frozen=True)
class Series:
    """One model's points."""

    name: str
    points: Sequence[Point]


@dataclass(frozen=True)
class Figure:
    """Lines over a number, or dots over names.

    Args:
        name: of its file, without ending.
        title: what it shows.
        x: what is to the right, with its unit.
        y: what is upward, with its unit.
        series: the lines.
        log_x: whether the axis is logarithmic.
        log_y: whether this one is.
        kind: "lines", or "dots" where x is a name.
    """

    name: str
    title: str
    x: str
    y: str
    series: Sequence[Series]
    log_x: bool = False
    log_y: bool = False
    kind: Literal["lines", "dots"] = "lines"

    def values(self) -> dict[str, Any]:
        """All of it as plain values, a number that is none as null."""
        series = [{"name": one.name, "points": [_plain(point._asdict()) for point in one.points]} for one in self.series]
        return {**asdict(self), "series": series}


@dataclass(frozen=True)
class Result:
    """What one comparison found.

    Args:
        name: of its files, without ending.
        report: its tables.
        figures: its figures.
    """

    name: str
    report: Report
    figures: Sequence[Figure]

    def markdown(self, pictures: Sequence[str]) -> str:
        """A page of the tables and of the pictures that there are."""
        title, *lines = self.report.lines()[1:]
        lines.insert(0, title.removeprefix("#"))
        for figure in self.figures:
            if f"{figure.name}.png" in pictures:
                lines += ["", f"![{figure.title}]({figure.name}.png)"]
        return "\n".join(lines) + "\n"

    def values(self) -> dict[str, Any]:
        """All of it as plain values, for JSON."""
        return _plain({"name": self.name, **self.report.values(), "figures": [figure.values() for figure in self.figures]})


def write(result: Result, folder: Path) -> list[Path]:
    """Write NAME.md, NAME.json and a picture of each figure into a folder.

    Returns:
        What was written. Pictures are left out where matplotlib is not installed.

    Raises:
        RunError: a file cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    pictures: list[Path] = []
    try:
        from attent.experiments.comparing.figure import draw

        pictures = [draw(figure, folder / f"{figure.name}.png") for figure in result.figures]
    except AttentError:
        if pictures:
            raise
    texts: Mapping[str, str] = {
        f"{result.name}.md": result.markdown([picture.name for picture in pictures]),
        f"{result.name}.json": json.dumps(result.values(), indent=1, ensure_ascii=False, allow_nan=False) + "\n",
    }
    for name, text in texts.items():
        with new_file(folder / name) as file:
            file.write_text(text, encoding="utf-8")
    return [*(folder / name for name in texts), *pictures]


def table(title: str, columns: Sequence[Any], rows: Sequence[dict[str, Any]]) -> Table:
    """A table whose numbers that are none are left empty."""
    return Table(title, columns, [_plain(row) for row in rows])


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
