"""The texts of a scene: which text the rows and the columns of a map belong to, from its kind and its size."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Literal

from torch import Tensor

from attent.errors import ShapeError
from attent.views.scene import PRODUCED, READ, Picture, Text

AttentionKind = Literal["cross", "encoder", "self", "decoder"]
About = Literal["produced", "read"]
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


def kinds(paths: Sequence[str]) -> list[AttentionKind]:
    """Return the kind of attention of each module of a model, judged from all their paths together."""
    # only the last names, or every module of "encoder_attention.layers.0" would count as cross-attention
    is_cross = [
        bool(CROSS.search(".".join(path.lower().split(".")[-2:]) if "multihead" not in path else path.lower()))
        for path in paths
    ]
    if not any(is_cross):
        return ["self" for _ in paths]
    is_encoder = [path.lower().startswith("encoder") or ".encoder" in path.lower() for path in paths]
    return [
        "cross" if cross else "encoder" if encoder else "decoder"
        for cross, encoder in zip(is_cross, is_encoder, strict=True)
    ]


class SceneLabels:
    """The texts of a scene, created while groups ask for them.

    Args:
        tokens: labels of the text that is read; numbers unless given.
        targets: labels of the text that a decoder reads and writes.
        picture: whose patches name the positions of "tokens".
        about: the subject of a decoder's rows; unless given, inferred from the number of targets.
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
        """Check that the labels of the caller fit at least one map.

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

        Produced tokens if there is one label more than queries.
        """
        targets = self._labels["targets"]
        if targets is not None and len(targets) == queries + 1 and self._about != "read":
            self._fits.add("targets")
            return self._add("target", targets[1:]), PRODUCED
        if self._about == "produced":
            return self._add_part("target", "targets", queries), PRODUCED
        return self._add_part("given", "targets", queries), READ

    def _add_part(self, text_id: str, name: str, length: int) -> str:
        """Add a text with the first labels of the caller if they fit, or with numbers."""
        labels = self._labels[name]
        if labels is not None and len(labels) in (length, length + 1):
            self._fits.add(name)
            return self._add(text_id, labels[:length])
        if labels is not None:
            self._misfits.setdefault(name, []).append(str(length))
        return self._add(text_id, [str(index) for index in range(length)])

    def _add(self, text_id: str, labels: Sequence[str]) -> str:
        """Add a text under its id, or with a number behind it if another text has this id; return the id."""
        # ids of tokens, of a tensor, are numbers
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
