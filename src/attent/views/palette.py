"""The colors of every view, read from views/web/tokens.css, which is their only source."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.colors import LinearSegmentedColormap

COLOR = re.compile(r"--([\w-]+): ((?:#[0-9A-F]{6}\s?)+);")


@cache
def palette(*, dark: bool = False) -> dict[str, tuple[str, ...]]:
    """Return the colors of light or dark pages by name, as #RRGGBB: one each, but several of "ramp"."""
    text = files("attent.views").joinpath("web", "tokens.css").read_text(encoding="utf-8")
    light, _, rest = text.partition("@media (prefers-color-scheme: dark)")
    return {name: tuple(values.split()) for name, values in COLOR.findall(rest if dark else light)}


def color(name: str, *, dark: bool = False) -> str:
    """Return a color of light or of dark pages, such as "query" or "ink", as #RRGGBB."""
    return palette(dark=dark)[name][0]


def color_map() -> LinearSegmentedColormap:
    """Return the scale of weights for matplotlib, from paper to the color of weights."""
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("attent", list(palette()["ramp"]))
