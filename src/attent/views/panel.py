"""A panel: a matrix of weights with labels, and a line that explains its rows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar, get_args

import torch
from torch import Tensor

from attent.attention.maps.attention_map import AttentionMap, LabelledMap
from attent.errors import ShapeError, check_index, check_known, refuse
from attent.views.scene import Scene

PanelKind = Literal["cross", "encoder", "decoder"]
# The subject of a row, which depends on the kind of attention.
READING: dict[str, str] = {
    "cross": "a row is about the token produced · columns: the source",
    "encoder": "a row is about the token itself · columns: the source",
    "decoder": "a row is about the token produced · columns: what was read before it",
    "self": "a row is about the token read · columns: that token and those before it",
}
Map = TypeVar("Map")


@dataclass(frozen=True)
class Panel:
    """A labeled matrix of weights, used by all views.

    Args:
        weights: (Tq, Tk).
        rows: a label for each query.
        columns: a label for each key.
        title: the origin of the weights.
        reading: a line that explains the rows.

    Raises:
        ShapeError: the number of labels differs from the number of rows or columns.
    """

    weights: Tensor
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    title: str = ""
    reading: str = ""

    def __post_init__(self) -> None:
        if tuple(self.weights.shape) != (len(self.rows), len(self.columns)):
            raise ShapeError(
                f"weights must be (rows, columns) = ({len(self.rows)}, {len(self.columns)}), got "
                f"{tuple(self.weights.shape)}"
            )


def panel(
    weights: AttentionMap | Tensor,
    rows: Sequence[str],
    columns: Sequence[str],
    *,
    head: int | None = None,
    title: str = "",
    reading: str = "",
) -> Panel:
    """Build the panel of one head, or of the mean over heads.

    Args:
        weights: (Tq, Tk), (H, Tq, Tk) or (1, H, Tq, Tk).
        rows: a label for each query.
        columns: a label for each key.
        head: the index of the head, from 0; the mean over heads by default.
        title: the origin of the weights.
        reading: a line that explains the rows.

    Raises:
        ShapeError: the weights contain several sequences, or the labels do not fit.
        ArgumentError: there is no such head.
    """
    dense = dense_heads(weights)
    if head is None:
        matrix, head_title = dense.mean(0), f"mean over {len(dense)} heads" if len(dense) > 1 else ""
    else:
        matrix, head_title = dense[check_index("head", head, len(dense))], f"head {head}"
    return Panel(matrix, tuple(rows), tuple(columns), ", ".join(filter(None, (title, head_title))), reading)


def head_panels(
    weights: AttentionMap | Tensor, rows: Sequence[str], columns: Sequence[str], *, title: str = "", reading: str = ""
) -> dict[str, Panel]:
    """Build a panel for each head, in order; arguments and errors as for `panel`."""
    dense = dense_heads(weights)
    return {
        f"head {head}": panel(dense, rows, columns, head=head, title=title, reading=reading)
        for head in range(len(dense))
    }


def dense_heads(weights: AttentionMap | Tensor) -> Tensor:
    """Return the weights of one sequence as numbers, (H, Tq, Tk)."""
    dense = (weights if isinstance(weights, Tensor) else weights.dense()).detach().float().cpu()
    if dense.dim() == 4 and dense.shape[0] == 1:
        dense = dense[0]
    if dense.dim() not in (2, 3):
        raise ShapeError(f"weights to show must be (Tq, Tk), (H, Tq, Tk) or (1, H, Tq, Tk), got {tuple(dense.shape)}")
    return dense if dense.dim() == 3 else dense[None]


def kind_of(name: str) -> PanelKind:
    """Return the kind of attention, inferred from the name of its map in `watch`."""
    if name.startswith("encoder"):
        return "encoder"
    return "cross" if name.endswith("cross_attention") else "decoder"


def choose(maps: Mapping[str, Map], kind: str = "cross", layer: int | None = None) -> tuple[str, Map]:
    """Return the name and map of one attention of a model.

    Args:
        maps: the maps by the names that `watch` gives them, in the order of computation.
        kind: "cross" (target to source), "encoder" or "decoder" (self-attention).
        layer: the index of the layer, from 0; the last by default.

    Raises:
        UnknownNameError: there is no such kind.
        ArgumentError: the model has no attention of this kind, or fewer layers.
    """
    check_known("kind of attention", kind, get_args(PanelKind))
    names = [name for name in maps if kind_of(name) == kind]
    refuse((not names, f"this model has no {kind} attention; it has {', '.join(maps) or 'none at all'}"))
    name = names[-1 if layer is None else check_index("layer", layer, len(names))]
    return name, maps[name]


def panel_of(
    maps: Mapping[str, LabelledMap], kind: str = "cross", layer: int | None = None, head: int | None = None
) -> Panel:
    """Build the panel of one attention of a model; arguments and errors as for `choose` and `panel`."""
    name, labelled = choose(maps, kind, layer)
    return panel(
        labelled.weights, labelled.rows, labelled.columns, head=head, title=name, reading=_reading(kind, labelled)
    )


def head_panels_of(maps: Mapping[str, LabelledMap], kind: str = "cross", layer: int | None = None) -> dict[str, Panel]:
    """Build the panels of every head of one attention of a model; arguments and errors as for `choose` and `panel`."""
    name, labelled = choose(maps, kind, layer)
    return head_panels(labelled.weights, labelled.rows, labelled.columns, title=name, reading=_reading(kind, labelled))


def panels_of(
    scene: Scene, kind: str | None, layer: int | None = None, head: int | Literal["mean", "all"] = "mean"
) -> Panel | dict[str, Panel]:
    """Build the panels of one attention of a run, from its scene; arguments and errors as for `choose` and `panels`."""
    maps = {
        layer.name: LabelledMap(layer.weights, scene.texts[group.rows].labels, scene.texts[group.columns].labels)  # pyright: ignore[reportArgumentType]
        for group in scene.groups
        for layer in group.layers
    }
    kind = kind or kind_of(next(iter(maps)))
    if head == "all":
        return head_panels_of(maps, kind, layer)
    return panel_of(maps, kind, layer, None if head == "mean" else head)


def _reading(kind: str, labelled: LabelledMap) -> str:
    # the rows of a language model are the tokens that it reads
    return READING["self" if kind == "decoder" and labelled.rows == labelled.columns else kind]


def panels(
    scene: Scene, group: str = "", layer: int = -1, head: int | Literal["mean", "all"] = "mean"
) -> dict[str, Panel]:
    """Build panels from a layer of a scene, by name: one head, the mean over heads, or every head.

    Args:
        scene: the scene.
        group: the name of the group; the first by default.
        layer: the index of the layer, from 0, or a negative index from the last.
        head: the index of a head, from 0; "mean" for the mean over heads; or "all".

    Raises:
        ArgumentError: there is no such group, layer or head.
    """
    layers = scene.group(group) if group else scene.groups[0]
    count = len(layers.layers)
    refuse((not -count <= layer < count, f"layer must be from 0 to {count - 1}, got {layer}"))
    name, weights = layers.layers[layer].name, layers.layers[layer].rows(torch.arange(layers.shape[1]))
    rows, columns = scene.texts[layers.rows].labels, scene.texts[layers.columns].labels
    reading = f"a row is about {layers.about} · columns: what is looked at"
    if head == "all":
        return head_panels(weights, rows, columns, title=name, reading=reading)
    return {name: panel(weights, rows, columns, head=None if head == "mean" else head, title=name, reading=reading)}
