"""A scene: what an interactive view shows, which are groups of layers of attention with the texts that they are about."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from attent.attention.maps.attention_map import AttentionMap
from attent.errors import ArgumentError, ShapeError
from attent.views.labels import right_to_left

# What a row is about. The weights of step t may belong to the token that the step writes, or to the one that it reads
# (Luong et al. 2015, footnote 14).
PRODUCED, READ = "the token produced", "the token read in"


@dataclass(frozen=True)
class Text:
    """The places of a text in order, each with what it is called."""

    labels: tuple[str, ...]

    @property
    def direction(self) -> str:
        """Which way it is read: "rtl" where more of its labels are written from right to left than the other way, else "ltr"."""
        letters = [label for label in self.labels if any(character.isalpha() for character in label)]
        return "rtl" if 2 * sum(map(right_to_left, letters)) > len(letters) else "ltr"


@dataclass(frozen=True)
class LayerWeights:
    """The weights of one layer, of one sequence.

    Args:
        name: the path of its module.
        weights: (B, H, Tq, Tk), or with fewer axes as `attend` has them; a tensor (Tq, Tk) or (H, Tq, Tk) or (B, H, Tq, Tk).
        sequence: which of the batch, from 0.
    """

    name: str
    weights: AttentionMap | Tensor
    sequence: int = 0

    @cached_property
    def shape(self) -> tuple[int, int, int]:
        """(H, Tq, Tk)."""
        if isinstance(self.weights, Tensor):
            return tuple(self._numbers.shape[1:])  # pyright: ignore[reportReturnType]
        call = self.weights.call
        return call.heads, call.queries, call.keys

    @property
    def is_distribution(self) -> bool:
        """Whether each row that sees anything sums to one."""
        if isinstance(self.weights, AttentionMap):
            return self.weights.is_distribution
        sums = self._numbers.sum(-1)
        return bool((self._numbers >= 0).all() and (((sums - 1).abs() < 1e-3) | (sums == 0)).all())

    def rows(self, queries: Tensor) -> Tensor:
        """How some queries look, (H, len(queries), Tk), as numbers without gradients on the CPU."""
        if isinstance(self.weights, Tensor):
            return self._numbers[self.sequence][:, queries].float()
        with torch.no_grad():
            return self.weights.rows(queries.to(self.weights.call.device))[self.sequence].float().cpu()

    @property
    def _numbers(self) -> Tensor:
        assert isinstance(self.weights, Tensor)
        return self.weights.detach().cpu()[(None,) * (4 - self.weights.dim())]


@dataclass(frozen=True)
class LayerGroup:
    """Layers of one kind, such as the cross-attention of all decoder layers.

    Args:
        name: unlike any other group's, such as "cross".
        title: what a reader sees.
        rows: id of the text that the queries are about.
        columns: id of the text that the keys are about.
        layers: from the first to the last, all with as many heads, queries and keys.
        about: what a row is about: PRODUCED, READ, or whatever else.
        is_self_attention: whether a text attends to itself, so that a query stands at one of the keys' places, the last at the last.

    Raises:
        ArgumentError: there is no layer.
        ShapeError: the layers are of different shapes.
    """

    name: str
    title: str
    rows: str
    columns: str
    layers: tuple[LayerWeights, ...]
    about: str = READ
    is_self_attention: bool = True

    def __post_init__(self) -> None:
        if not self.layers:
            raise ArgumentError(f"the group {self.name!r} has no layer")
        if len(shapes := {layer.shape for layer in self.layers}) > 1:
            raise ShapeError(f"the layers of a group must be of one shape (H, Tq, Tk), got {sorted(shapes)}")

    @property
    def shape(self) -> tuple[int, int, int]:
        """(H, Tq, Tk) of each layer."""
        return self.layers[0].shape

    @cached_property
    def is_distribution(self) -> bool:
        """Whether each row that sees anything sums to one, in every layer."""
        return all(layer.is_distribution for layer in self.layers)


@dataclass(frozen=True)
class Picture:
    """A picture whose patches are places of a text, row by row from the top.

    Args:
        pixels: (H, W, C), bytes or floats from 0 to 1, of one channel or three.
        grid: how many patches there are from top to bottom and from left to right.
        text: id of the text.
        before: how many places stand in front of the first patch, such as a vector that gathers (CLS).

    Raises:
        ShapeError: the pixels are no picture.
    """

    pixels: np.ndarray
    grid: tuple[int, int]
    text: str = "tokens"
    before: int = 1

    def __post_init__(self) -> None:
        if self.pixels.ndim != 3 or self.pixels.shape[2] not in (1, 3):
            raise ShapeError(f"a picture must be (H, W, 1) or (H, W, 3), got {self.pixels.shape}")


@dataclass(frozen=True)
class Scene:
    """What is shown.

    Args:
        title: above it.
        texts: by id.
        groups: in the order in which they are offered.
        picture: what one of the texts is made of.
        notes: what a reader must know, a sentence each.

    Raises:
        ArgumentError: a group names a text that is not there, or two have one name.
        ShapeError: a text has not as many places as the maps.
    """

    title: str
    texts: Mapping[str, Text]
    groups: tuple[LayerGroup, ...]
    picture: Picture | None = None
    notes: tuple[str, ...] = field(default=())

    def __post_init__(self) -> None:
        if len({group.name for group in self.groups}) < len(self.groups):
            raise ArgumentError(f"groups must have names of their own, got {', '.join(group.name for group in self.groups)}")
        for group in self.groups:
            for what, text, places in (("rows", group.rows, group.shape[1]), ("columns", group.columns, group.shape[2])):
                if text not in self.texts:
                    raise ArgumentError(f"the {what} of {group.name!r} are about a text {text!r} that is not there")
                if len(labels := self.texts[text].labels) != places:
                    raise ShapeError(f"{group.title} has {places} {what}, got {len(labels)} labels")
        if self.picture is not None:
            down, across = self.picture.grid
            places = len(self.texts[self.picture.text].labels) if self.picture.text in self.texts else 0
            if down * across + self.picture.before != places:
                raise ShapeError(
                    f"{down} x {across} patches behind {self.picture.before} places must be as many as the maps have, got {places}"
                )

    def group(self, name: str) -> LayerGroup:
        """The group of a name.

        Raises:
            ArgumentError: there is none.
        """
        for group in self.groups:
            if group.name == name:
                return group
        raise ArgumentError(f"no group {name!r}; there are {', '.join(group.name for group in self.groups)}")

    def describe(self) -> dict[str, Any]:
        """All but the weights and the pixels, for JSON."""
        return {
            "title": self.title,
            "texts": {name: {"labels": list(text.labels), "direction": text.direction} for name, text in self.texts.items()},
            "groups": [
                {
                    "name": group.name,
                    "title": group.title,
                    "rows": group.rows,
                    "columns": group.columns,
                    "layers": [layer.name for layer in group.layers],
                    "heads": group.shape[0],
                    "height": group.shape[1],
                    "width": group.shape[2],
                    "about": group.about,
                    "distribution": group.is_distribution,
                    "itself": group.is_self_attention,
                }
                for group in self.groups
            ],
            "picture": None
            if self.picture is None
            else {
                "grid": list(self.picture.grid),
                "text": self.picture.text,
                "before": self.picture.before,
                "height": self.picture.pixels.shape[0],
                "width": self.picture.pixels.shape[1],
            },
            "notes": list(self.notes),
        }
