"""Maps of a scene as panels, which a terminal, a PNG and an SVG show."""

from __future__ import annotations

from typing import Literal

import torch

from attent.errors import ArgumentError
from attent.views.panel import Panel, heads, panel
from attent.views.scene import LayerGroup, Scene


def panels(scene: Scene, group: str = "", layer: int = -1, head: int | Literal["mean", "all"] = "mean") -> dict[str, Panel]:
    """One head of one layer, the mean over its heads, or every head, by name.

    Args:
        scene: as `attent.views.build_scene.build_scene` makes it.
        group: its name; the first unless given.
        layer: from 0; from the last, −1, backwards.
        head: from 0; "mean" over all heads; or "all", each by itself.

    Raises:
        ArgumentError: there is no such group, layer or head.
    """
    chosen = scene.group(group) if group else scene.groups[0]
    count = len(chosen.layers)
    if not -count <= layer < count:
        raise ArgumentError(f"layer must be from 0 to {count - 1}, got {layer}")
    one = chosen.layers[layer]
    weights = one.rows(torch.arange(chosen.shape[1]))
    rows, columns = scene.texts[chosen.rows].labels, scene.texts[chosen.columns].labels
    if head == "all":
        return heads(weights, rows, columns, title=one.name, reading=reading(chosen))
    number = None if head == "mean" else head
    return {one.name: panel(weights, rows, columns, head=number, title=one.name, reading=reading(chosen))}


def reading(group: LayerGroup) -> str:
    """How a group's maps are read."""
    return f"a row is about {group.about} · columns: what is looked at"
