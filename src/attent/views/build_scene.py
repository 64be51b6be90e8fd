"""Build a scene from a model's maps: layers of the same kind form a group, with labels for rows and columns."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Literal, TypeVar

from torch import Tensor

from attent.attention.capture.captured_maps import ConcatenatedMap
from attent.attention.capture.derived_maps import LAYER_NUMBER, DerivedMaps
from attent.attention.maps.attention_map import AttentionMap, LabelledMap
from attent.errors import ArgumentError, ShapeError, check_index, refuse
from attent.views.scene import PRODUCED, READ, LayerGroup, LayerWeights, Measure, Picture, Scene, Text

AttentionKind = Literal["cross", "encoder", "self", "decoder"]
About = Literal["produced", "read"]
Weights = AttentionMap | Tensor
Map = TypeVar("Map")
# In the order in which groups are shown.
TITLES: dict[AttentionKind, str] = {
    "cross": "cross-attention",
    "encoder": "encoder self-attention",
    "self": "self-attention",
    "decoder": "decoder self-attention",
}
# The text ids of the rows and columns of a map that brings its own labels.
TEXT_IDS: dict[AttentionKind, tuple[str, str]] = {
    "cross": ("target", "source"),
    "encoder": ("source", "source"),
    "self": ("tokens", "tokens"),
    "decoder": ("target", "given"),
}
# Names of cross-attention modules in attent, in Hugging Face's models and in PyTorch's.
CROSS = re.compile(r"cross|enc(oder)?_?(dec(oder)?)?_?att|encdec|decoder\..*multihead_attn|src_attn")
CLS = "CLS"
# The names that watch() gives to the second and later calls of a module.
LATER_CALL = re.compile(r"^(.*)#\d+$")


def kinds(paths: Sequence[str]) -> list[AttentionKind]:
    """Return the kind of attention of each module, inferred from the paths of all modules of the model."""
    # only the last names count; otherwise every module of "encoder_attention.layers.0" would be cross-attention
    is_cross = [
        bool(CROSS.search(".".join(path.lower().split(".")[-2:]) if "multihead" not in path else path.lower()))
        for path in paths
    ]
    if not any(is_cross):
        return ["self" for _ in paths]
    # a layer of a decoder has both
    decoding = {path.rpartition(".")[0] for path, cross in zip(paths, is_cross, strict=True) if cross} - {""}
    return [
        "cross"
        if cross
        else "encoder"
        if re.search(r"(^|\.)encoder", path.lower())
        else "decoder"
        if "dec" in path.lower() or path.rpartition(".")[0] in decoding
        else "self"
        for path, cross in zip(paths, is_cross, strict=True)
    ]


class SceneLabels:
    """The texts of a scene, created as groups request them.

    Args:
        tokens: labels of the text that is read; numbers by default.
        targets: labels of the text that a decoder reads and writes.
        picture: a picture whose patches name the positions of "tokens".
        about: the subject of a decoder's rows; by default inferred from the number of targets.
    """

    def __init__(
        self,
        tokens: Iterable[str] | None,
        targets: Iterable[str] | None,
        picture: Picture | None = None,
        about: About | None = None,
    ) -> None:
        if tokens is None and picture is not None:
            tokens = patch_names(picture)
        self.texts: dict[str, Text] = {}
        self._about = about
        self._labels = {
            name: None if labels is None else (*labels,) for name, labels in (("tokens", tokens), ("targets", targets))
        }
        self._misfits: dict[str, list[str]] = {}
        self._fits: set[str] = set()

    def of_shape(self, kind: AttentionKind, queries: int, keys: int) -> tuple[str, str, str]:
        """Return the text ids of rows and columns, and the subject of a row."""
        if kind in ("cross", "decoder"):
            rows, about = self._decoder_rows(queries)
            return (
                rows,
                self._add_part("source", "tokens", keys)
                if kind == "cross"
                else self._add_part("given", "targets", keys),
                about,
            )
        name, _ = TEXT_IDS[kind]
        return self._add_part(name, "tokens", queries), self._add_part(name, "tokens", keys), READ

    def of_labels(self, kind: AttentionKind, rows: Sequence[str], columns: Sequence[str]) -> tuple[str, str, str]:
        """Return the text ids and the subject of a row for a map that brings its own labels."""
        row, column = TEXT_IDS[kind]
        return self._add(row, rows), self._add(column, columns), PRODUCED if kind in ("cross", "decoder") else READ

    def check(self) -> None:
        """Check that the caller's labels fit at least one map.

        Raises:
            ShapeError: they fit none.
        """
        for name, sizes in self._misfits.items():
            labels = self._labels[name]
            if name not in self._fits and labels is not None:
                number = "there is 1 label" if len(labels) == 1 else f"there are {len(labels)} labels"
                raise ShapeError(f"{number} in {name}, and the maps have {' and '.join(dict.fromkeys(sizes))} places")

    def _decoder_rows(self, queries: int) -> tuple[str, str]:
        """Return the text id and the subject of a decoder's rows.

        Rows are about produced tokens if there is one label more than queries.
        """
        targets = self._labels["targets"]
        if targets is not None and len(targets) == queries + 1 and self._about != "read":
            self._fits.add("targets")
            return self._add("target", targets[1:]), PRODUCED
        if self._about == "produced":
            return self._add_part("target", "targets", queries), PRODUCED
        return self._add_part("given", "targets", queries), READ

    def _add_part(self, text_id: str, name: str, length: int) -> str:
        """Add a text with the first of the caller's labels if they fit, otherwise with numbers."""
        labels = self._labels[name]
        # a text that is read has no token beyond those read; one that is written may
        if labels is not None and len(labels) - length in (0, text_id != "source"):
            self._fits.add(name)
            return self._add(text_id, labels[:length])
        if labels is not None:
            self._misfits.setdefault(name, []).append(str(length))
        return self._add(text_id, [str(index) for index in range(length)])

    def _add(self, text_id: str, labels: Sequence[str]) -> str:
        """Add a text and return its id, to which a number is appended if another text has the same id."""
        # token ids from a tensor are converted to numbers
        names = (str(label.item()) if isinstance(label, Tensor) else str(label) for label in labels)
        text, number, free = Text((*names,)), 1, text_id
        while self.texts.setdefault(free, text) != text:
            number += 1
            free = f"{text_id}-{number}"
        return free


def patch_names(picture: Picture) -> list[str]:
    """Return the names of the positions of a picture's text: CLS, then patches by row and column, from 1."""
    down, across = picture.grid
    front = [CLS, *(f"{CLS} {number}" for number in range(2, picture.before + 1))][: picture.before]
    return front + [f"patch {row + 1},{column + 1}" for row in range(down) for column in range(across)]


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
    gradients: Mapping[str, AttentionMap] | None = None,
) -> Scene:
    """Build a scene from the maps recorded by `watch`, from a run's `map`, or from any other maps.

    The norms of the keys' contributions to outputs are included if they are known: see `watch.norms`.

    Consecutive calls of a module in the same pass, such as the steps of `generate()`, are joined to one map.

    Args:
        maps: a mapping from module paths to maps; a sequence with one map per layer, such as the `attentions` returned
            by Hugging Face models, tensors (B, H, Tq, Tk); or a single map.
        tokens: labels of the text that is read (the source, for an encoder–decoder); numbers by default. There may be
            one label more than positions, for the last token written, which is not read again.
        targets: labels of the text that the decoder of an encoder–decoder reads. With one extra label, for the last
            token written, rows are about the token produced; otherwise about the token read.
        title: the title of the scene.
        sequence: the index of the sequence in the batch, from 0.
        call: the index of the pass, from 0, if the model ran several times; the last by default.
        picture: a picture whose patches are the positions of "tokens".
        about: whether rows of a written text are about the token "produced" or "read"; by default inferred from the
            number of targets.
        gradients: the weights times their gradients, such as `watch.gradients` returns, shown instead of the weights on
            request; labeled maps have their own.

    Raises:
        ArgumentError: there is nothing to show, the maps are not attention, or there is no such sequence or call.
        ShapeError: labels fit none of the maps.
    """
    named = _by_path(maps)
    passes = forward_passes(named)
    selected = select_pass(passes, call)
    by_group: dict[tuple[str, tuple[int, ...]], list[LayerWeights]] = {}
    for layer in _layers(selected, sequence):
        by_group.setdefault((LAYER_NUMBER.sub("*", layer.name), layer.shape), []).append(layer)
    group_kinds: Sequence[AttentionKind] = kinds([pattern for pattern, _ in by_group])
    if targets is not None or _is_cross(maps, named):
        group_kinds = ["cross" if kind == "self" else kind for kind in group_kinds]
    labels = SceneLabels(tokens, targets, picture, about)
    groups = _groups(by_group, group_kinds, selected, _gradients(gradients, named, passes, call), labels)
    labels.check()
    return Scene(title, labels.texts, groups, picture, _notes(passes, call))


def _is_cross(maps: object, named: Mapping[str, Weights | LabelledMap]) -> bool:
    """Return whether maps without paths are cross-attention, which is inferred from differing keys and queries."""
    unlabelled = [layer.shape for layer in named.values() if isinstance(layer, AttentionMap | Tensor)]
    return not isinstance(maps, Mapping) and any(shape[-2] != shape[-1] for shape in unlabelled)


def _gradients(
    gradients: Mapping[str, AttentionMap] | None, maps: Mapping[str, object], passes: Mapping[str, list[Any]], call: int
) -> dict[str, AttentionMap]:
    """Return the gradients of one pass, for each module that has gradients for all its passes."""
    known = gradients.available() if isinstance(gradients, DerivedMaps) else gradients or {}
    known_passes = forward_passes({path: known[path] for path in maps if path in known})
    return {path: calls[call] for path, calls in known_passes.items() if len(calls) == len(passes[path])}


def _groups(
    by_group: Mapping[tuple[str, tuple[int, ...]], Sequence[LayerWeights]],
    group_kinds: Sequence[AttentionKind],
    maps: Mapping[str, Weights | LabelledMap],
    gradients: Mapping[str, AttentionMap],
    labels: SceneLabels,
) -> tuple[LayerGroup, ...]:
    """Return groups of layers with the same path pattern and shape, in the order of their kinds."""
    groups: list[tuple[AttentionKind, LayerGroup]] = []
    for kind, ((pattern, shape), layers) in zip(group_kinds, by_group.items(), strict=True):
        source = maps[layers[0].name]
        if isinstance(source, AttentionMap | Tensor):
            rows, columns, subject = labels.of_shape(kind, *shape[1:])
        else:
            rows, columns, subject = labels.of_labels(kind, source.rows, source.columns)
        name, title = kind, TITLES[kind]
        if group_kinds.count(kind) > 1:
            name, title = f"{kind}-{group_kinds[: len(groups) + 1].count(kind)}", f"{title} ({pattern})"
        group = LayerGroup(name, title, rows, columns, tuple(layers), subject, kind != "cross")
        groups.append((kind, replace(group, measures=(*_measures(group, maps, gradients),))))
    order = [*TITLES]
    return tuple(group for _, group in sorted(groups, key=lambda group: order.index(group[0])))


def _measures(
    group: LayerGroup, maps: Mapping[str, Weights | LabelledMap], gradients: Mapping[str, AttentionMap]
) -> Iterator[LayerGroup]:
    """Yield copies of a group with the other measures that are known for every layer."""

    def gradient(layer: LayerWeights) -> AttentionMap | None:
        labelled = maps[layer.name]
        return labelled.gradients if isinstance(labelled, LabelledMap) else gradients.get(layer.name)

    def norm(layer: LayerWeights) -> AttentionMap | None:
        with suppress(ArgumentError):
            return layer.weights.norms() if isinstance(layer.weights, AttentionMap) else None

    measures: tuple[tuple[Measure, Callable[[LayerWeights], AttentionMap | None]], ...] = (
        ("norms", norm),
        ("gradients", gradient),
    )
    for measure, derive in measures:
        derived = [derive(layer) for layer in group.layers]
        layers = tuple(
            replace(layer, weights=weights)
            for layer, weights in zip(group.layers, derived, strict=True)
            if weights is not None
        )
        if len(layers) == len(group.layers):
            yield replace(group, name=f"{group.name}.{measure}", layers=layers, measure=measure, base=group.name)


def forward_passes(maps: Mapping[str, Map]) -> dict[str, list[Map | AttentionMap]]:
    """Return the passes of each module in order, by path; calls of the same pass are joined.

    Args:
        maps: the maps by path, with later calls as `path#2`, `path#3` and so on.
    """
    calls: dict[str, list[Map]] = {}
    for name, layer in maps.items():
        later = LATER_CALL.match(name)
        calls.setdefault(later[1] if later and later[1] in maps else name, []).append(layer)
    return {path: _join(layers) for path, layers in calls.items()}


def select_pass(passes: Mapping[str, Sequence[Map]], number: int) -> dict[str, Map]:
    """Return one pass of each module.

    Raises:
        ArgumentError: a module has fewer passes.
    """
    refuse(
        *(
            (not -count <= number < count, f"{path} ran {count} times, numbered from 0, got {number}")
            for path, count in zip(passes, map(len, passes.values()), strict=True)
        )
    )
    return {path: layers[number] for path, layers in passes.items()}


def _join(calls: Sequence[Map]) -> list[Map | AttentionMap]:
    runs: list[list[Any]] = []
    for call in calls:
        if runs and _continues(runs[-1][-1], call):
            runs[-1].append(call)
        else:
            runs.append([call])
    return [run[0] if len(run) == 1 else ConcatenatedMap(run) for run in runs]


def _continues(before: object, after: object) -> bool:
    """Return whether the queries of a call continue those of the previous call.

    Their keys extend a cache, or belong to another text.
    """
    if not isinstance(before, AttentionMap) or not isinstance(after, AttentionMap):
        return False
    first, second = before.call, after.call
    is_longer = second.keys == first.keys + second.queries or (second.queries == 1 and second.keys == first.keys)
    return is_longer and (first.batch, first.heads, first.axes) == (second.batch, second.heads, second.axes)


def _by_path(maps: object) -> Mapping[str, Weights | LabelledMap]:
    named: Mapping[str, Any] = maps if isinstance(maps, Mapping) else {"attention": maps}
    if isinstance(maps, Sequence) and not isinstance(maps, str):
        named = {f"layers.{number}": layer for number, layer in enumerate(maps)}
    if not named:
        reason = re.sub(r"\s*\n\s*", "; ", str(maps)) if hasattr(maps, "concatenated") else "no map was given"
        raise ArgumentError(f"there is no attention to show: {reason}")
    for path, layer in named.items():
        if not isinstance(layer, AttentionMap | Tensor) and not all(
            hasattr(layer, name) for name in ("weights", "rows", "columns")
        ):
            expected = (
                "a map, a tensor (B, H, Tq, Tk), a sequence with one of these for each layer, or a mapping from paths "
                "to them"
            )
            raise ArgumentError(f"attention to show must be {expected}, got {type(layer).__name__} as {path!r}")
    return named


def _weights(layer: Weights | LabelledMap) -> Weights:
    return layer if isinstance(layer, AttentionMap | Tensor) else layer.weights


def _layers(maps: Mapping[str, Weights | LabelledMap], sequence: int) -> list[LayerWeights]:
    batches = {path: _batch(_weights(layer)) for path, layer in maps.items()}
    check_index("sequence", sequence, max(batches.values()))
    # a beam search reads a source once and writes several hypotheses
    layers = [LayerWeights(path, _weights(layer), min(sequence, batches[path] - 1)) for path, layer in maps.items()]
    refuse(
        *(
            (0 in shape, f"there is nothing to show: {name} has {shape[1]} queries and {shape[2]} keys")
            for name, shape in ((layer.name, layer.shape) for layer in layers)
        )
    )
    return layers


def _batch(weights: Weights) -> int:
    if isinstance(weights, AttentionMap):
        return weights.call.batch
    if weights.dim() not in (2, 3, 4):
        raise ShapeError(f"weights to show must be (Tq, Tk), (H, Tq, Tk) or (B, H, Tq, Tk), got {tuple(weights.shape)}")
    return weights.shape[0] if weights.dim() == 4 else 1


def _notes(passes: Mapping[str, Sequence[object]], call: int) -> tuple[str, ...]:
    notes: list[str] = []
    if (count := max(map(len, passes.values()))) > 1:
        number = "the last" if call == -1 else f"number {call % count}, from 0,"
        notes.append(f"The model ran {count} times; {number} is shown.")
    if any(
        isinstance(layer, ConcatenatedMap) and layer.call.batch > 1 for layers in passes.values() for layer in layers
    ):
        notes.append(
            "Several hypotheses were written side by side: a row is that of the one which stood there when it was "
            "computed."
        )
    return tuple(notes)
