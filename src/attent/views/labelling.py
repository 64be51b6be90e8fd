"""Which text the rows and the columns of a map are about, from its kind and its size."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Literal

from attent.errors import ShapeError
from attent.views.scene import PRODUCED, READ, Picture, Text

Kind = Literal["cross", "encoder", "self", "decoder"]
About = Literal["produced", "read"]
TITLES: dict[Kind, str] = {
    "cross": "cross-attention",
    "encoder": "encoder self-attention",
    "self": "self-attention",
    "decoder": "decoder self-attention",
}
# What modules that attend to another text are called in attent, in Hugging Face's models and in PyTorch's.
CROSS = re.compile(r"cross|enc(oder)?_?(dec(oder)?)?_?att|encdec|decoder\..*multihead_attn|src_attn")
FRONT = "CLS"


def kinds(paths: Sequence[str]) -> list[Kind]:
    """What attends to what in each module of a model, from all their paths together."""
    # the last names alone, or every module of "encoder_attention.layers.0" were one that attends to an encoder
    cross = [bool(CROSS.search(".".join(path.lower().split(".")[-2:]) if "multihead" not in path else path.lower())) for path in paths]
    decoding = any(cross)
    found: list[Kind] = []
    for path, across in zip(paths, cross, strict=True):
        names = path.lower()
        if across:
            found.append("cross")
        elif decoding:
            found.append("encoder" if names.startswith("encoder") or ".encoder" in names else "decoder")
        else:
            found.append("self")
    return found


class Labels:
    """The texts of a scene, made as groups ask for them.

    Args:
        tokens: of the text that is read; numbers unless given.
        targets: of the text that a decoder reads and writes.
        picture: whose patches are the places of "tokens", which gives them names.
        about: what a decoder's rows are about, where that is known; else it is told from how many targets there are.
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
        self._given = {name: None if some is None else (*some,) for name, some in (("tokens", tokens), ("targets", targets))}
        self._misfits: dict[str, list[str]] = {}
        self._fits: set[str] = set()

    def of(self, kind: Kind, queries: int, keys: int) -> tuple[str, str, str]:
        """The texts of rows and columns by id, and what a row is about."""
        if kind == "cross":
            rows, about = self._written(queries)
            return rows, self._read("source", "tokens", keys), about
        if kind == "decoder":
            rows, about = self._written(queries)
            return rows, self._read("given", "targets", keys), about
        name = "tokens" if kind == "self" else "source"
        return self._read(name, "tokens", queries), self._read(name, "tokens", keys), READ

    def named(self, kind: Kind, rows: Sequence[str], columns: Sequence[str]) -> tuple[str, str, str]:
        """The same of a map that has labels of its own."""
        names = {
            "cross": ("target", "source"),
            "decoder": ("target", "given"),
            "encoder": ("source", "source"),
            "self": ("tokens", "tokens"),
        }
        row, column = names[kind]
        about = PRODUCED if kind in ("cross", "decoder") else READ
        return self._add(row, rows), self._add(column, columns), about

    def check(self) -> None:
        """Hold that what was given fits somewhere.

        Raises:
            ShapeError: it fits nowhere.
        """
        for what, sizes in self._misfits.items():
            labels = self._given[what]
            if what not in self._fits and labels is not None:
                raise ShapeError(f"there are {len(labels)} labels in {what}, and the maps have {' and '.join(dict.fromkeys(sizes))} places")

    def _written(self, queries: int) -> tuple[str, str]:
        """What a decoder's rows are about: what it wrote, where one label more than was read says what that is."""
        targets, about = self._given["targets"], self._about
        if targets is not None and len(targets) == queries + 1 and about != "read":
            self._fits.add("targets")
            return self._add("target", targets[1:]), PRODUCED
        if about == "produced":
            return self._read("target", "targets", queries), PRODUCED
        return self._read("given", "targets", queries), READ

    def _read(self, name: str, what: str, places: int) -> str:
        labels = self._given[what]
        if labels is not None and len(labels) in (places, places + 1):
            self._fits.add(what)
            return self._add(name, labels[:places])
        if labels is not None:
            self._misfits.setdefault(what, []).append(str(places))
        return self._add(name, [str(place) for place in range(places)])

    def _add(self, name: str, labels: Sequence[str]) -> str:
        text, number, free = Text(tuple(map(str, labels))), 1, name
        while free in self.texts and self.texts[free] != text:
            number += 1
            free = f"{name}-{number}"
        self.texts[free] = text
        return free


def patch_names(picture: Picture) -> list[str]:
    """What the places of a picture's text are called: patches by row and column, from 1."""
    down, across = picture.grid
    front = [FRONT, *(f"{FRONT} {number}" for number in range(2, picture.before + 1))][: picture.before]
    return front + [f"patch {row + 1},{column + 1}" for row in range(down) for column in range(across)]
