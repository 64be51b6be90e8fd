"""A plate: a picture with what was run, what is seen, and what it does not show; and the page of all plates."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from attent.errors import ArgumentError
from attent.runs.durable import new_file

DOTS_PER_INCH = 130
# Bytes: all of it stays in the repository.
LARGEST = 200 * 1024
WORDS = "plates.json"
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
    """

    name: str
    words: Words
    drawing: Any


def write(plate: Plate, folder: Path) -> Path:
    """Write NAME.png, and keep its words with those of the others.

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


def page(kept: Mapping[str, Words], order: Sequence[str], folder: str) -> str:
    """The page in Markdown.

    Args:
        kept: the words of plates, by name.
        order: of the plates; those that were never drawn are passed by.
        folder: of the pictures, as the page links to them.
    """
    parts = [HEAD]
    for name in order:
        if name in kept:
            one = kept[name]
            parts.append(
                f"## {one.title}\n\n![{one.alt}]({folder}/{name}.png)\n\n"
                f"**What was run.** {one.ran}\n\n**What is seen.** {one.seen}\n\n**What must not be concluded.** {one.caution}\n"
            )
    return "\n".join(parts)
