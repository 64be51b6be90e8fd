"""A scene: the content of an interactive view, that is, groups of attention layers and the texts that they connect."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from attent.attention.maps.attention_map import AttentionMap
from attent.attention.maps.statistics import Span
from attent.attention.masks.causal import Causal
from attent.errors import ArgumentError, ShapeError, refuse
from attent.views.labels import has_right_to_left

# The subject of a row. The weights of step t may belong to the token that the step writes or to the one that it reads
# (Luong et al. 2015, footnote 14).
PRODUCED, READ = "the token being written", "the token"
# The labels of the tokens that runs add to a text.
SPECIAL_LABELS = "CLS", "<s>", "</s>"
# The meaning of a group's numbers.
Measure = Literal["weights", "norms", "gradients"]


@dataclass(frozen=True)
class Text:
    """The labels of a text's positions, in order."""

    labels: tuple[str, ...]

    @property
    def direction(self) -> str:
        """Return "rtl" if more labels are written from right to left than from left to right, else "ltr"."""
        letters = [label for label in self.labels if any(character.isalpha() for character in label)]
        return "rtl" if 2 * sum(map(has_right_to_left, letters)) > len(letters) else "ltr"


@dataclass(frozen=True)
class LayerWeights:
    """The weights of one layer for one sequence.

    Args:
        name: the path of the layer's module.
        weights: a map (B, H, Tq, Tk), or with fewer axes as in `attend`; or a tensor (Tq, Tk), (H, Tq, Tk) or (B, H,
            Tq, Tk).
        sequence: the index of the sequence in the batch, from 0.
    """

    name: str
    weights: AttentionMap | Tensor
    sequence: int = 0

    @cached_property
    def shape(self) -> tuple[int, int, int]:
        """(H, Tq, Tk)."""
        if isinstance(self.weights, Tensor):
            return tuple(self._four_axes.shape[1:])  # pyright: ignore[reportReturnType]
        call = self.weights.call
        return call.heads, call.queries, call.keys

    @property
    def is_distribution(self) -> bool:
        """True if each row that sees any key sums to one."""
        if isinstance(self.weights, AttentionMap):
            return self.weights.is_distribution
        sums = self._four_axes.sum(-1)
        return bool((self._four_axes >= 0).all() and (((sums - 1).abs() < 1e-3) | (sums == 0)).all())

    def rows(self, queries: Tensor) -> Tensor:
        """Return the weights of the given queries, (H, len(queries), Tk), on the CPU and without gradients."""
        if isinstance(self.weights, Tensor):
            return self._four_axes[self.sequence][:, queries].float()
        with torch.no_grad():
            return self.weights.rows(queries.to(self.weights.call.device))[self.sequence].float().cpu()

    def grouped(self, spans: Sequence[Span]) -> Tensor:
        """Return the weights between groups of positions, such as words, (H, n, n), as `AttentionMap.grouped` does."""
        if isinstance(self.weights, AttentionMap):
            grouped = self.weights.grouped(spans, spans).float().cpu()
            return grouped.reshape(-1, self.shape[0], len(spans), len(spans))[self.sequence]
        rows = self._four_axes[self.sequence].float()
        keys = torch.stack([rows[..., begin:end].sum(-1) for begin, end in spans], -1)
        return torch.stack([keys[:, begin:end].mean(1) for begin, end in spans], 1)

    @property
    def _four_axes(self) -> Tensor:
        """(B, H, Tq, Tk)."""
        assert isinstance(self.weights, Tensor)
        return self.weights.detach().cpu()[(None,) * (4 - self.weights.dim())]


@dataclass(frozen=True)
class LayerGroup:
    """Layers of one kind, such as the cross-attention of all decoder layers.

    Args:
        name: a unique name in the scene, such as "cross".
        title: the title shown on the page.
        rows: the id of the queries' text.
        columns: the id of the keys' text.
        layers: the layers from first to last, all of the same shape.
        about: the subject of a row, such as PRODUCED or READ.
        is_self_attention: whether the queries are the last of the keys, the last query at the last key.
        measure: the meaning of the numbers.
        base: the name of the group of weights that the numbers are derived from, if they are not weights.
        measures: the same attention in other measures.

    Raises:
        ArgumentError: there is no layer.
        ShapeError: the layers have different shapes.
    """

    name: str
    title: str
    rows: str
    columns: str
    layers: tuple[LayerWeights, ...]
    about: str = READ
    is_self_attention: bool = True
    measure: Measure = "weights"
    base: str = ""
    measures: tuple[LayerGroup, ...] = ()

    def __post_init__(self) -> None:
        refuse((not self.layers, f"the group {self.name!r} has no layer"))
        if len(shapes := {layer.shape for layer in self.layers}) > 1:
            raise ShapeError(f"the layers of a group must be of one shape (H, Tq, Tk), got {sorted(shapes)}")

    @property
    def shape(self) -> tuple[int, int, int]:
        """(H, Tq, Tk) of each layer."""
        return self.layers[0].shape

    @property
    def is_causal(self) -> bool:
        """True if every token is known to attend only to itself and to earlier tokens."""
        return all(
            isinstance(layer.weights, AttentionMap) and isinstance(layer.weights.call.mask, Causal)
            for layer in self.layers
        )

    @cached_property
    def is_distribution(self) -> bool:
        """True if each row that sees any key sums to one, in every layer."""
        return all(layer.is_distribution for layer in self.layers)

    def part(self, rows: Sequence[int], columns: Sequence[int]) -> LayerGroup:
        """Return the group with some of its rows and columns only; see `Scene.without`."""
        is_rescaled = self.measure == "weights" and self.is_distribution
        layers: list[LayerWeights] = []
        for layer in self.layers:
            weights = layer.rows(torch.tensor(rows))[..., columns]  # (H, rows, columns)
            if is_rescaled:
                sums = weights.sum(-1, keepdim=True)
                weights = weights / sums.masked_fill(sums == 0, 1.0)
            layers.append(LayerWeights(layer.name, weights))
        return replace(
            self,
            layers=tuple(layers),
            # the rows and columns left of two texts may no longer end at the same token
            is_self_attention=self.is_self_attention and self.rows == self.columns,
            measures=tuple(group.part(rows, columns) for group in self.measures),
        )

    def describe(self) -> dict[str, Any]:
        """Return a description for JSON of everything except the weights."""
        heads, height, width = self.shape
        return {
            "name": self.name,
            "title": self.title,
            "rows": self.rows,
            "columns": self.columns,
            "layers": [layer.name for layer in self.layers],
            "heads": heads,
            "height": height,
            "width": width,
            "about": self.about,
            "distribution": self.is_distribution,
            "itself": self.is_self_attention,
            "causal": self.is_causal,
            "measure": self.measure,
            "base": self.base or self.name,
        }


@dataclass(frozen=True)
class Picture:
    """A picture whose patches are positions of a text, row by row from the top.

    Args:
        pixels: (H, W, C), bytes or floats from 0 to 1, with one or three channels.
        grid: the number of patches from top to bottom and from left to right.
        text: the id of the text.
        before: the number of positions before the first patch, such as that of a CLS vector.

    Raises:
        ShapeError: the pixels do not have this shape.
    """

    pixels: np.ndarray
    grid: tuple[int, int]
    text: str = "tokens"
    before: int = 1

    def __post_init__(self) -> None:
        if self.pixels.ndim != 3 or self.pixels.shape[2] not in (1, 3):
            raise ShapeError(f"a picture must be (H, W, 1) or (H, W, 3), got {self.pixels.shape}")

    def describe(self) -> dict[str, Any]:
        """Return a description for JSON of everything except the pixels."""
        height, width, _ = self.pixels.shape
        return {"grid": list(self.grid), "text": self.text, "before": self.before, "height": height, "width": width}


@dataclass(frozen=True)
class Scene:
    """The content of an interactive view.

    Args:
        title: the title of the view.
        texts: the texts by id.
        groups: the groups of weights, in the order in which the view offers them.
        picture: the picture whose patches form one of the texts.
        notes: sentences for the reader.

    Raises:
        ArgumentError: a group names a text that does not exist, or two groups have the same name.
        ShapeError: a text has more or fewer labels than the maps have positions.
    """

    title: str
    texts: Mapping[str, Text]
    groups: tuple[LayerGroup, ...]
    picture: Picture | None = None
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if len({group.name for group in self.all_groups}) < len(self.all_groups):
            raise ArgumentError(f"groups must have unique names, got {', '.join(group.name for group in self.groups)}")
        for group in self.groups:
            for axis, text, length in (
                ("rows", group.rows, group.shape[1]),
                ("columns", group.columns, group.shape[2]),
            ):
                if text not in self.texts:
                    raise ArgumentError(f"the {axis} of {group.name!r} refer to a text {text!r} that does not exist")
                if len(labels := self.texts[text].labels) != length:
                    raise ShapeError(f"{group.title} has {length} {axis}, got {len(labels)} labels")
        if self.picture is not None:
            down, across = self.picture.grid
            length = len(self.texts[self.picture.text].labels) if self.picture.text in self.texts else 0
            if down * across + self.picture.before != length:
                raise ShapeError(
                    f"{down} x {across} patches behind {self.picture.before} places must be as many as the maps "
                    f"have, got {length}"
                )

    @property
    def all_groups(self) -> tuple[LayerGroup, ...]:
        """The groups of weights, each followed by its other measures."""
        return tuple(measured for group in self.groups for measured in (group, *group.measures))

    def group(self, name: str) -> LayerGroup:
        """Return the group with a name.

        Raises:
            ArgumentError: there is no such group.
        """
        groups = {group.name: group for group in self.all_groups}
        refuse((name not in groups, f"no group {name!r}; there are {', '.join(group.name for group in self.groups)}"))
        return groups[name]

    def without(self, labels: Collection[str] = SPECIAL_LABELS) -> Scene:
        """Return the scene without the rows and columns of some labels, or those before the patches of a picture.

        Weights that are distributions are divided by the sum of those left in their row, so that rows sum to 1 again; a
        row that has none left is 0. Norms and gradients are not divided. A note says so. All weights are computed.

        Args:
            labels: the labels to leave out; by default those of the tokens that runs add to a text.

        Raises:
            ArgumentError: a text has no other label.
        """
        positions: dict[str, list[int]] = {name: [] for name in self.texts}
        dropped: dict[str, None] = {}
        for name, text in self.texts.items():
            front = self.picture.before if self.picture is not None and self.picture.text == name else 0
            for index, label in enumerate(text.labels):
                if index < front or label in labels:
                    dropped[label] = None
                else:
                    positions[name].append(index)
        refuse((not all(positions.values()), f"no token is left without {', '.join(dropped)}"))
        if not dropped:
            return self
        is_rescaled = any(group.is_distribution for group in self.groups)
        note = f"Without {', '.join(dropped)}{'; the weights left in a row are divided by their sum' * is_rescaled}."
        return replace(
            self,
            texts={
                name: Text(tuple(text.labels[index] for index in positions[name])) for name, text in self.texts.items()
            },
            groups=tuple(group.part(positions[group.rows], positions[group.columns]) for group in self.groups),
            picture=None if self.picture is None else replace(self.picture, before=0),
            notes=(*self.notes, note),
        )

    def describe(self) -> dict[str, Any]:
        """Return a description for JSON of everything except the weights and the pixels."""
        return {
            "title": self.title,
            "texts": {
                name: {"labels": list(text.labels), "direction": text.direction} for name, text in self.texts.items()
            },
            "groups": [group.describe() for group in self.all_groups],
            "picture": None if self.picture is None else self.picture.describe(),
            "notes": list(self.notes),
        }
