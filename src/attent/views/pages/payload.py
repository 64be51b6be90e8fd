"""A scene as what a page has inside: a description, and packed numbers by name."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from attent.views.pages.binary_encoding import halves, packed, placed, rounded, shaded
from attent.views.pages.budget import MOST_KEPT, Plan, planned
from attent.views.pages.layer_summary import FIGURES, Gathered, gathered
from attent.views.scene import LayerGroup, Picture, Scene

EXPLORE = "attent explore shows every number."


@dataclass(frozen=True)
class Embedded:
    """What a page has inside.

    Args:
        description: of the scene and of how its numbers are written, as JSON.
        packs: packed numbers by name.
    """

    description: str
    packs: dict[str, str]

    @property
    def size(self) -> int:
        """Bytes."""
        return len(self.description.encode("utf-8", "replace")) + sum(map(len, self.packs.values()))


def embedded(scene: Scene, size: float) -> Embedded:
    """A scene in at most so many bytes.

    Raises:
        ArgumentError: there are more weights than a page is made of.
    """
    plan = planned(scene, size)
    # numbers often shrink to less than is trusted
    most = min(2 * plan.kept, MOST_KEPT)
    layers = {
        group.name: [gathered(group, layer, level=plan.level(group), kept=most, whole=plan.whole) for layer in group.layers]
        for group in scene.groups
    }
    written = _written(scene, plan, layers)
    if plan.kept:
        lists = sum(len(pack) for name, pack in written.packs.items() if name.endswith((".rows", ".columns")))
        plan = replace(plan, kept=max(min(int(plan.kept * (size - written.size + lists) / lists), most), 0))
        written = _written(scene, plan, layers)
    while written.size > size and plan.kept:
        plan = replace(plan, kept=plan.kept - 1)
        written = _written(scene, plan, layers)
    return written


def _written(scene: Scene, plan: Plan, layers: dict[str, list[Gathered]]) -> Embedded:
    packs: dict[str, str] = {}
    description = scene.describe()
    for number, group in enumerate(scene.groups):
        found = layers[group.name]
        more = _group(plan, group, found, packs, number)
        description["groups"][number].update(more)
    if any(layer.nan for several in layers.values() for layer in several):
        description["notes"].append("Rows of weights that are no numbers are drawn as zeros.")
    if scene.picture is not None:
        packs["picture"] = packed(rgb(scene.picture))
    return Embedded(json.dumps(description, ensure_ascii=False, separators=(",", ":")), packs)


def _group(plan: Plan, group: LayerGroup, layers: list[Gathered], packs: dict[str, str], number: int) -> dict[str, Any]:
    """How a group's numbers are written; they go into the packs."""
    thumbnails = [shaded(layer.thumbnails) for layer in layers]
    packs[f"{number}.thumbnails"] = packed(*(codes for codes, _, _ in thumbnails))
    more: dict[str, Any] = {
        "numbers": plan.numbers,
        "level": plan.level(group),
        "kept": [min(plan.kept, group.shape[2]), min(plan.kept, group.shape[1])],
        "note": _note(plan, group),
        "summary": [[_figures(row) for row in layer.figures] for layer in layers],
        "thumbnails": {
            "height": layers[0].thumbnails.shape[1],
            "width": layers[0].thumbnails.shape[2],
            "tops": [tops for _, tops, _ in thumbnails],
            "signed": [signed for _, _, signed in thumbnails],
        },
    }
    maps: dict[str, Any] = {"tops": [], "signed": []}
    for place, layer in enumerate(layers):
        name = f"{number}.{place}"
        if layer.whole is not None:
            packs[f"{name}.map"] = packed(layer.whole.astype(np.float32) if plan.numbers == "float32" else halves(layer.whole))
            continue
        assert layer.pooled is not None
        codes, tops, signed = shaded(layer.pooled)
        packs[f"{name}.map"] = packed(codes)
        maps["tops"].append(tops)
        maps["signed"].append(signed)
        if plan.kept:
            for side, (places, weights), length in (("rows", layer.rows, group.shape[2]), ("columns", layer.columns, group.shape[1])):
                packs[f"{name}.{side}"] = placed(places[..., : plan.kept], weights[..., : plan.kept], length)
    return more if plan.whole else more | {"maps": maps}


def _note(plan: Plan, group: LayerGroup) -> str:
    """What was pooled or rounded, for the reader."""
    if plan.whole:
        return "" if plan.numbers == "float32" else f"Weights are 16-bit numbers, of three or four digits; {EXPLORE}"
    step = 2 ** plan.level(group)
    said = f"The map shows the mean of each {step} × {step} weights, in 255 steps up to the head's largest. " if step > 1 else ""
    said = said or "The map shows each weight in 255 steps up to the head's largest. "
    if not plan.kept:
        return f"{said}There is no room for single weights; {EXPLORE}"
    return f"{said}Tokens show the {plan.kept} largest weights of each row and column, as 16-bit numbers; {EXPLORE}"


def _figures(row: np.ndarray) -> dict[str, float | None]:
    return {name: None if math.isnan(value) else rounded(value) for name, value in zip(FIGURES, row.tolist(), strict=True)}


def rgb(picture: Picture) -> np.ndarray:
    """The pixels as bytes, (H, W, 3)."""
    pixels = picture.pixels
    if pixels.dtype != np.uint8:
        pixels = np.rint(np.clip(pixels, 0.0, 1.0) * 255).astype(np.uint8)
    return np.repeat(pixels, 3, 2) if pixels.shape[2] == 1 else pixels
