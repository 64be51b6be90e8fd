"""Notebooks: a map, or what `watch` saw, as a page in the cell that ends with it."""

from __future__ import annotations

from typing import Any

from attent.attention.capture.watch import watch
from attent.attention.maps.attention_map import AttentionMap
from attent.errors import AttentError
from attent.views.pages.page import page
from attent.views.scene import Scene


def load_ipython_extension(shell: Any) -> None:
    """Run `%load_ext attent`: show maps, what `watch` saw and scenes as pages, each in a frame.

    Args:
        shell: IPython's.
    """
    formatter = shell.display_formatter.formatters["text/html"]
    for kind in (AttentionMap, watch, Scene):
        formatter.for_type(kind, frame)


def frame(value: AttentionMap | watch | Scene) -> str | None:
    """Return a page as HTML for a cell; None if there is nothing to show or far too much, so that the notebook prints the value."""
    try:
        return page(value)._repr_html_()  # pyright: ignore[reportPrivateUsage]
    except AttentError:
        return None
