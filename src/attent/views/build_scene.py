"""From the maps of a model to a scene: layers of one kind become a group, and their places get labels."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from torch import Tensor

from attent.attention.capture.concatenated_map import ConcatenatedMap
from attent.attention.maps.attention_map import AttentionMap
from attent.errors import ArgumentError, ShapeError
from attent.views.forward_passes import chosen, passes
from attent.views.labelling import TITLES, About, Kind, Labels, kinds
from attent.views.panel import LabelledMap
from attent.views.scene import LayerGroup, LayerWeights, Picture, Scene

Weights = AttentionMap | Tensor
# In which order groups are offered.
ORDER: tuple[Kind, ...] = ("cross", "encoder", "self", "decoder")


def build_scene(
    maps: Mapping[str, Weights] | Mapping[str, LabelledMap] | Sequence[Weights] | Weights,
    tokens: Iterable[str] | None = None,
    targets: Iterable[str] | None = None,
    *,
    title: str = "",
    sequence: int = 0,
    call: int = -1,
    picture: Picture | None = None,
    about: About | None = None,
) -> Scene:
    """A scene of what `watch` saw, of what a run's `map` has, or of any maps.

    Calls of one module that continue one another, as those of `generate()` do, are one map.

    Args:
        maps: by the paths of their modules; a sequence with one for each layer, such as the `attentions` that Hugging Face's models
            return, tensors (B, H, Tq, Tk); or a single one.
        tokens: the labels of the text that is read, the source of an encoder–decoder; numbers unless given. There may be one label
            more than places, that of a token which was written last and not read again.
        targets: those of what an encoder–decoder's decoder reads. With one more, which it wrote last, rows are about the token
            produced; without, about the token read in.
        title: above it.
        sequence: which of a batch, from 0.
        call: where the model ran several times, which of them, from 0; the last unless given.
        picture: where the places of "tokens" are its patches.
        about: whether rows of a text that is written are about the token "produced" or the one "read" in; unless given, told from
            how many targets there are.

    Raises:
        ArgumentError: there is nothing to show, it is not attention, or there is no such sequence or call.
        ShapeError: labels fit none of the maps.
    """
    given = _by_path(maps)
    if not given:
        raise ArgumentError(f"there is no attention to show: {_reason(maps)}")
    each = passes(given)
    notes = _said(each, call)
    members: dict[tuple[str, tuple[int, ...]], list[tuple[LayerWeights, object]]] = {}
    for (path, found), layer in zip((one := chosen(each, call)).items(), _layers(one, sequence), strict=True):
        members.setdefault((_pattern(path), layer.shape), []).append((layer, found))
    labels = Labels(tokens, targets, picture, about)
    # an alignment alone has no name that says so
    shapes = [each.shape for each in given.values() if isinstance(each, AttentionMap | Tensor) and not isinstance(maps, Mapping)]
    across = targets is not None or any(shape[-2] != shape[-1] for shape in shapes)
    found_kinds: list[Kind] = [_alone(kind, across) for kind in kinds([pattern for pattern, _ in members])]
    groups: list[tuple[Kind, LayerGroup]] = []
    for kind, ((pattern, shape), layers) in zip(found_kinds, members.items(), strict=True):
        first = layers[0][1]
        of = labels.of(kind, *shape[1:]) if isinstance(first, AttentionMap | Tensor) else labels.named(kind, first.rows, first.columns)  # pyright: ignore[reportAttributeAccessIssue]
        number = found_kinds[: len(groups) + 1].count(kind)
        several = found_kinds.count(kind) > 1
        name = f"{kind}-{number}" if several else kind
        shown = f"{TITLES[kind]} ({pattern})" if several else TITLES[kind]
        groups.append((kind, LayerGroup(name, shown, of[0], of[1], tuple(layer for layer, _ in layers), of[2], kind != "cross")))
    labels.check()
    ordered = sorted(groups, key=lambda one: ORDER.index(one[0]))
    return Scene(title, labels.texts, tuple(group for _, group in ordered), picture, notes)


def _by_path(maps: object) -> Mapping[str, Weights | LabelledMap]:
    named = maps if isinstance(maps, Mapping) else {"attention": maps}
    if isinstance(maps, Sequence) and not isinstance(maps, str):
        named = {f"layers.{number}": layer for number, layer in enumerate(maps)}
    for path, one in named.items():
        if not isinstance(one, AttentionMap | Tensor) and not all(hasattr(one, name) for name in ("weights", "rows", "columns")):
            expected = "a map, a tensor (B, H, Tq, Tk), a sequence with one of these for each layer, or a mapping from paths to them"
            raise ArgumentError(f"attention to show must be {expected}, got {type(one).__name__} as {path!r}")
    return named


def _alone(kind: Kind, across: bool) -> Kind:
    return "cross" if across and kind == "self" else kind


def _layers(found: Mapping[str, object], sequence: int) -> list[LayerWeights]:
    weights = {path: one if isinstance(one, AttentionMap | Tensor) else one.weights for path, one in found.items()}  # pyright: ignore[reportAttributeAccessIssue]
    batches = {path: _batch(one) for path, one in weights.items()}
    if not 0 <= sequence < (most := max(batches.values())):
        raise ArgumentError(f"sequence must be from 0 to {most - 1}, got {sequence}")
    # an encoder read once what a search writes several hypotheses of
    layers = [LayerWeights(path, one, min(sequence, batches[path] - 1)) for path, one in weights.items()]
    for layer in layers:
        if 0 in layer.shape:
            raise ArgumentError(f"there is nothing to show: {layer.name} has {layer.shape[1]} queries and {layer.shape[2]} keys")
    return layers


def _batch(weights: Weights) -> int:
    if isinstance(weights, AttentionMap):
        return weights.call.batch
    if weights.dim() not in (2, 3, 4):
        raise ShapeError(f"weights to look at must be (Tq, Tk), (H, Tq, Tk) or (B, H, Tq, Tk), got {tuple(weights.shape)}")
    return weights.shape[0] if weights.dim() == 4 else 1


def _pattern(path: str) -> str:
    """A module's path without the number of its layer."""
    return re.sub(r"(?<=\.)\d+(?=\.|$)|^\d+(?=\.|$)", "*", path)


def _said(each: Mapping[str, Sequence[object]], call: int) -> tuple[str, ...]:
    notes: list[str] = []
    most = max(map(len, each.values()))
    if most > 1:
        which = "the last" if call == -1 else f"number {call % most}, from 0,"
        notes.append(f"The model ran {most} times; {which} is shown.")
    if any(isinstance(one, ConcatenatedMap) and one.call.batch > 1 for several in each.values() for one in several):
        notes.append("Several hypotheses were written side by side: a row is that of the one which stood there when it was computed.")
    return tuple(notes)


def _reason(maps: object) -> str:
    said = str(maps) if hasattr(maps, "joined") else "no map was given"
    return re.sub(r"\s*\n\s*", "; ", said)


# the former name
arranged = build_scene
