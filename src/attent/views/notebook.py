"""Notebooks: a map, or what watch saw, shown as a page in the cell that ends with it."""

from __future__ import annotations

from typing import Any

from attent.attention.capture.watch import watch
from attent.attention.maps.attention_map import AttentionMap
from attent.errors import AttentError
from attent.views.pages.page import page
from attent.views.scene import Scene


def load_ipython_extension(shell: Any) -> None:
    """What `%load_ext attent` does: maps, what `watch` saw and scenes are shown as pages, each in a frame of its own.

    Args:
        shell: IPython's.
    """
    formatter = shell.display_formatter.formatters["text/html"]
    for kind in (AttentionMap, watch, Scene):
        formatter.for_type(kind, framed)


def framed(shown: AttentionMap | watch | Scene) -> str | None:
    """A page as HTML for a cell; None, so that the notebook prints it as ever, where there is nothing to show or far too much."""
    try:
        return page(shown)._repr_html_()  # pyright: ignore[reportPrivateUsage]
    except AttentError:
        return None
