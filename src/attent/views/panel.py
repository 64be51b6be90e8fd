"""A panel: one matrix of weights with its labels and a line that says how to read it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeVar, get_args

from torch import Tensor

from attent.attention.maps.attention_map import AttentionMap
from attent.errors import ArgumentError, ShapeError, UnknownNameError

Kind = Literal["cross", "encoder", "decoder"]
# What a row is about, which differs with what attends to what.
READING: dict[str, str] = {
    "cross": "a row is about the token produced · columns: the source",
    "encoder": "a row is about the token itself · columns: the source",
    "decoder": "a row is about the token produced · columns: what was read before it",
}
Found = TypeVar("Found")


class LabelledMap(Protocol):
    """Attention weights (1, H, Tq, Tk) with Tq row labels and Tk column labels."""

    @property
    def weights(self) -> AttentionMap: ...
    @property
    def rows(self) -> tuple[str, ...]: ...
    @property
    def columns(self) -> tuple[str, ...]: ...


@dataclass(frozen=True)
class Panel:
    """A matrix of weights, ready for any view.

    Args:
        weights: (Tq, Tk).
        rows: a label for each query.
        columns: a label for each key.
        title: where the weights come from.
        reading: what a row is about.

    Raises:
        ShapeError: there are not as many labels as rows or columns.
    """

    weights: Tensor
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    title: str = ""
    reading: str = ""

    def __post_init__(self) -> None:
        if tuple(self.weights.shape) != (len(self.rows), len(self.columns)):
            raise ShapeError(f"weights must be (rows, columns) = ({len(self.rows)}, {len(self.columns)}), got {tuple(self.weights.shape)}")


def panel(
    weights: AttentionMap | Tensor,
    rows: Sequence[str],
    columns: Sequence[str],
    *,
    head: int | None = None,
    title: str = "",
    reading: str = "",
) -> Panel:
    """The panel of one head, or of the mean over heads.

    Args:
        weights: (Tq, Tk), (H, Tq, Tk) or (1, H, Tq, Tk).
        rows: a label for each query.
        columns: a label for each key.
        head: which head, from 0; the mean over heads if not given.
        title: where the weights come from.
        reading: what a row is about.

    Raises:
        ShapeError: the weights are of several sequences, or the labels do not fit.
        ArgumentError: there is no such head.
    """
    every = by_head(weights)
    if head is not None and not 0 <= head < len(every):
        raise ArgumentError(f"head must be from 0 to {len(every) - 1}, got {head}")
    chosen = every.mean(0) if head is None else every[head]
    which = f"head {head}" if head is not None else f"mean over {len(every)} heads" if len(every) > 1 else ""
    return Panel(chosen, tuple(rows), tuple(columns), ", ".join(filter(None, (title, which))), reading)


def heads(
    weights: AttentionMap | Tensor, rows: Sequence[str], columns: Sequence[str], *, title: str = "", reading: str = ""
) -> dict[str, Panel]:
    """A panel for each head, in order; arguments and errors as for `panel`."""
    count = len(by_head(weights))
    panels = [panel(weights, rows, columns, head=head, title=title, reading=reading) for head in range(count)]
    return {f"head {head}": panel for head, panel in enumerate(panels)}


def by_head(weights: AttentionMap | Tensor) -> Tensor:
    """The weights as numbers, (H, Tq, Tk)."""
    dense = (weights if isinstance(weights, Tensor) else weights.dense()).detach().float().cpu()
    if dense.dim() == 4 and dense.shape[0] == 1:
        dense = dense[0]
    if dense.dim() == 2:
        dense = dense[None]
    if dense.dim() != 3:
        raise ShapeError(f"weights to look at must be (Tq, Tk), (H, Tq, Tk) or (1, H, Tq, Tk), got {tuple(dense.shape)}")
    return dense


def kind_of(name: str) -> Kind:
    """What attends to what, from the name under which `watch` has a map."""
    if name.startswith("encoder"):
        return "encoder"
    return "cross" if name.endswith("cross_attention") else "decoder"


def choose(maps: Mapping[str, Found], kind: str = "cross", layer: int | None = None) -> tuple[str, Found]:
    """One of a model's maps and its name.

    Args:
        maps: by the names that `watch` gives them, in the order of computation.
        kind: "cross" (target looks at source), "encoder" or "decoder" (each looks at itself).
        layer: counted from 0; the last if not given.

    Raises:
        UnknownNameError: no such kind.
        ArgumentError: the model has no attention of this kind, or not so many layers.
    """
    if kind not in get_args(Kind):
        raise UnknownNameError("kind of attention", kind, get_args(Kind))
    names = [name for name in maps if kind_of(name) == kind]
    if not names:
        raise ArgumentError(f"this model has no {kind} attention; it has {', '.join(maps) or 'none at all'}")
    if layer is not None and not 0 <= layer < len(names):
        raise ArgumentError(f"layer must be from 0 to {len(names) - 1}, got {layer}")
    name = names[-1 if layer is None else layer]
    return name, maps[name]


def panel_of(maps: Mapping[str, LabelledMap], kind: str = "cross", layer: int | None = None, head: int | None = None) -> Panel:
    """The panel of one attention of a model; arguments and errors as for `choose` and `panel`."""
    name, found = choose(maps, kind, layer)
    return panel(found.weights, found.rows, found.columns, head=head, title=name, reading=READING[kind])


def heads_of(maps: Mapping[str, LabelledMap], kind: str = "cross", layer: int | None = None) -> dict[str, Panel]:
    """The panels of every head of one attention of a model; arguments and errors as for `choose` and `heads`."""
    name, found = choose(maps, kind, layer)
    return heads(found.weights, found.rows, found.columns, title=name, reading=READING[kind])
