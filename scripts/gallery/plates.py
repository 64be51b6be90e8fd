"""A plate: a picture with its words, and where all heads are to be seen a page of its own; and the Markdown of all plates."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import attent
from attent.errors import ArgumentError
from attent.runs.durable import new_file
from attent.views.scene import Scene

DOTS_PER_INCH = 130
# Bytes: all of it stays in the repository.
LARGEST = 200 * 1024
WORDS = "plates.json"
OPENED = "Open it as a page: every layer and head, every number"
HEAD = """# Gallery

Written by `make gallery`: each picture from a run, each number from the same run, all seeds fixed; `scripts/gallery/` has a
file for each plate. A large weight says where one head of one layer looked, and no more: values, the other heads and the residual
stream decide what comes of it. So each plate says what was run, what is seen, and what must not be concluded.
"""


class Words(NamedTuple):
    """What stands beside a picture.

    Args:
        title: above it.
        alt: the picture for those who do not see it.
        ran: what was run.
        seen: what is seen.
        caution: what must not be concluded.
    """

    title: str
    alt: str
    ran: str
    seen: str
    caution: str


@dataclass(frozen=True)
class Plate:
    """A picture, drawn, and its words.

    Args:
        name: of its file, without ending.
        words: that stand beside it.
        drawing: matplotlib's figure.
        scene: what a page to be opened shows; no page unless given.
    """

    name: str
    words: Words
    drawing: Any
    scene: Scene | None = None


def write(plate: Plate, folder: Path) -> Path:
    """Write NAME.png, and NAME.html where there is a scene, and keep the words with those of the others.

    Raises:
        ArgumentError: the picture is larger than the repository should hold.
        RunError: a file cannot be written.
    """
    drawn = io.BytesIO()
    plate.drawing.savefig(drawn, dpi=DOTS_PER_INCH, format="png", metadata={"Software": None})
    if len(drawn.getvalue()) > LARGEST:
        raise ArgumentError(f"{plate.name}.png has {len(drawn.getvalue()):,} bytes, more than {LARGEST:,}")
    kept = words(folder) | {plate.name: plate.words}
    folder.mkdir(parents=True, exist_ok=True)
    with new_file(folder / f"{plate.name}.png") as file:
        file.write_bytes(drawn.getvalue())
    if plate.scene is not None:
        attent.views.page(plate.scene).save(folder / f"{plate.name}.html")
    with new_file(folder / WORDS) as file:
        values = {name: one._asdict() for name, one in sorted(kept.items())}
        file.write_text(json.dumps(values, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return folder / f"{plate.name}.png"


def words(folder: Path) -> dict[str, Words]:
    """The words of every plate that was written, by name."""
    file = folder / WORDS
    if not file.is_file():
        return {}
    return {name: Words(**values) for name, values in json.loads(file.read_text(encoding="utf-8")).items()}


def page(folder: Path, order: Sequence[str]) -> str:
    """The gallery in Markdown, for a file beside the folder.

    Args:
        folder: of the plates.
        order: of the plates; those that were never drawn are passed by.
    """
    parts, kept = [HEAD], words(folder)
    for name in order:
        if name in kept:
            one = kept[name]
            opened = f"[{OPENED}]({folder.name}/{name}.html)\n\n" if (folder / f"{name}.html").is_file() else ""
            parts.append(
                f"## {one.title}\n\n[![{one.alt}]({folder.name}/{name}.png)]({folder.name}/{name}.png)\n\n{opened}"
                f"**What was run.** {one.ran}\n\n**What is seen.** {one.seen}\n\n**What must not be concluded.** {one.caution}\n"
            )
    return "\n".join(parts)
