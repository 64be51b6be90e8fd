"""A plate: a picture with its text, and an optional page with all heads; and the Markdown of all plates."""

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
# In bytes; pictures are stored in the repository.
LARGEST = 200 * 1024
WORDS = "plates.json"
OPENED = "Open it as a page: every layer and head, every number"
HEAD = """# Gallery

Written by `make gallery`: each picture from a run, each number from the same run, all seeds fixed; \
`scripts/gallery/` has a
file for each plate. A large weight says where one head of one layer looked, and no more: values, the other heads \
and the residual
stream decide what comes of it. So each plate says what was run, what is seen, and what must not be concluded.
"""


class Words(NamedTuple):
    """The text of a plate.

    Args:
        title: of the plate.
        alt: description of the picture, for screen readers.
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
    """A picture and its text.

    Args:
        name: of its file, without extension.
        words: text of the plate.
        drawing: matplotlib's figure.
        scene: scene of the plate's page; None for no page.
    """

    name: str
    words: Words
    drawing: Any
    scene: Scene | None = None


def write(plate: Plate, folder: Path) -> Path:
    """Write NAME.png, NAME.html if there is a scene, and the text into the file of all texts.

    Raises:
        ArgumentError: the picture is too large for the repository.
        RunError: a file cannot be written.
    """
    drawn = io.BytesIO()
    plate.drawing.savefig(drawn, dpi=DOTS_PER_INCH, format="png", metadata={"Software": None})
    if len(drawn.getvalue()) > LARGEST:
        raise ArgumentError(f"{plate.name}.png has {len(drawn.getvalue()):,} bytes, more than {LARGEST:,}")
    entries = words(folder) | {plate.name: plate.words}
    folder.mkdir(parents=True, exist_ok=True)
    with new_file(folder / f"{plate.name}.png") as file:
        file.write_bytes(drawn.getvalue())
    if plate.scene is not None:
        attent.views.page(plate.scene).save(folder / f"{plate.name}.html")
    with new_file(folder / WORDS) as file:
        values = {name: entry._asdict() for name, entry in sorted(entries.items())}
        file.write_text(json.dumps(values, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return folder / f"{plate.name}.png"


def words(folder: Path) -> dict[str, Words]:
    """Read the text of every plate, by name."""
    file = folder / WORDS
    if not file.is_file():
        return {}
    return {name: Words(**values) for name, values in json.loads(file.read_text(encoding="utf-8")).items()}


def page(folder: Path, order: Sequence[str]) -> str:
    """Return the gallery in Markdown, for a file beside the folder.

    Args:
        folder: of the plates.
        order: names of the plates; those that were never drawn are skipped.
    """
    parts, entries = [HEAD], words(folder)
    for name in order:
        if name in entries:
            text = entries[name]
            opened = f"[{OPENED}]({folder.name}/{name}.html)\n\n" if (folder / f"{name}.html").is_file() else ""
            parts.append(
                f"## {text.title}\n\n[![{text.alt}]({folder.name}/{name}.png)]({folder.name}/{name}.png)\n\n"
                f"{opened}**What was run.** {text.ran}\n\n**What is seen.** {text.seen}\n\n"
                f"**What must not be concluded.** {text.caution}\n"
            )
    return "\n".join(parts)
