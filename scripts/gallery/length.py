"""Quality by the length of the source, as `scripts/bench compare length` measures it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from comparison.length import compare
from comparison.results import COLORS, DASHES, MARKERS
from comparison.trainings import Options

from attent.errors import DataError
from gallery.drawing import plain, sheet
from gallery.plates import Plate, Words

# Updates of the short comparison that is run without JSON: enough to draw the figure, too few for conclusions.
UPDATES = 300


def load(file: Path, runs: Path, updates: int = UPDATES) -> dict[str, Any]:
    """Read a comparison's JSON; without one, run a short comparison on dates.

    Raises:
        DataError: the file is not a comparison of lengths.
    """
    if not file.is_file():
        out = runs / f"compare-length-{updates}"
        file = out / "length.json"
        if not file.is_file():
            compare(Options(out, updates=updates, seeds=1)).write(out)
    try:
        values = json.loads(file.read_text(encoding="utf-8"))
        if values["name"] != "length" or not values["figures"]:
            raise ValueError
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"{file} is not a comparison of lengths") from error
    return values


def plate(values: Mapping[str, Any]) -> Plate:
    """Draw a panel for each corpus, with a line and an interval for each model."""
    figures: Sequence[Mapping[str, Any]] = values["figures"]
    drawing = sheet(9.0, 3.6)
    panels = drawing.subplots(1, len(figures), squeeze=False).flatten()
    for axes, figure in zip(panels, figures, strict=True):
        for series, color, dash, mark in zip(figure["series"], COLORS, DASHES, MARKERS, strict=False):
            x, y, low, high = ([point[name] for point in series["points"]] for name in ("x", "y", "low", "high"))
            axes.plot(x, y, color=color, linestyle=dash, marker=mark, markersize=4, linewidth=1.4, label=series["name"])
            axes.fill_between(x, low, high, color=color, alpha=0.15, linewidth=0)
        axes.set_ylim(bottom=0)
        plain(axes, figure["x"], figure["y"], figure["title"].split(":")[0])
    drawing.legend(
        *panels[0].get_legend_handles_labels(), frameon=False, fontsize=8, loc="outside lower center", ncols=4
    )
    return Plate(
        "quality-by-length",
        Words(
            "Quality by source length",
            "Lines of quality by source length, one for each model, each within a band; a panel for each corpus.",
            f"`scripts/bench compare length`: {_trained(values)}. "
            "Bands contain 95 % of resamples of the test sentences.",
            " ".join(_describe(figure) for figure in figures),
            "That the fastest learner is best in the end, or that the gap is the same at any size and budget: these "
            "are small models, trained briefly with the same settings. The bands show how much the sentences matter, "
            "but not how much another seed would.",
        ),
        drawing,
    )


def _describe(figure: Mapping[str, Any]) -> str:
    """Describe the lowest, the highest and the last point of each line."""
    lines = {series["name"]: [point["y"] for point in series["points"]] for series in figure["series"]}
    ranges = "; ".join(
        f"{name} {min(heights):.0f}, {max(heights):.0f} and {heights[-1]:.0f}" for name, heights in lines.items()
    )
    longest = figure["series"][0]["points"][-1]["x"]
    corpus, measure, unit = figure["title"].split(":")[0], figure["y"].split(",")[0], figure["x"].split(", ")[-1]
    return f"{corpus}, {measure} at the worst, the best and the greatest length ({longest:.0f} {unit}): {ranges}."


def _trained(values: Mapping[str, Any]) -> str:
    """Describe the number of updates and of seeds for each corpus."""
    trainings = []
    for figure, table in zip(values["figures"], values["tables"][::2], strict=True):
        updates = sorted(float(row["updates"]) for row in table["rows"])
        seeds = len(figure["series"][0]["points"][0]["by_seed"])
        span = f"{updates[0]:,.0f}" if updates[0] == updates[-1] else f"{updates[0]:,.0f} to {updates[-1]:,.0f}"
        trainings.append(
            f"{figure['title'].split(':')[0]}, {span} updates per model, {seeds} {'seed' if seeds == 1 else 'seeds'}"
        )
    return "; ".join(trainings)
