"""page(): attention as one HTML file that opens from disk and asks nobody for anything."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from attent.errors import ArgumentError
from attent.views.build_scene import Weights, build_scene
from attent.views.labelling import About
from attent.views.pages.budget import MEBIBYTE
from attent.views.pages.bundle import bundled, web
from attent.views.pages.payload import embedded
from attent.views.panel import LabelledMap
from attent.views.scene import Picture, Scene

# MiB of a page.
SIZE = 8.0
# Pixels of a page within a notebook.
HEIGHT = 760
ENDINGS = (".html", ".htm")
# Besides the numbers and the program.
REST = 2**12


@dataclass(frozen=True)
class Page:
    """An HTML page; a notebook shows it, in a frame of its own."""

    html: str

    def save(self, path: Path | str) -> Path:
        """Write it into a file, and say where.

        Raises:
            ArgumentError: the name does not end in .html, or the file cannot be written.
        """
        path = Path(path)
        if path.suffix.lower() not in ENDINGS:
            raise ArgumentError(f"a page's name must end in .html, got {str(path)!r}")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(self.html, encoding="utf-8")
        except OSError as error:
            raise ArgumentError(f"{path} cannot be written: {error.strerror or error}") from error
        return path

    def _repr_html_(self) -> str:
        # a frame of its own: several on one page never meet
        return (
            f'<iframe srcdoc="{escape(self.html)}" style="width:100%;height:{HEIGHT}px;border:0" '
            f'title="attention" sandbox="allow-scripts"></iframe>'
        )

    def __repr__(self) -> str:
        return f"Page({len(self.html.encode()) / MEBIBYTE:.1f} MiB)"


def page(
    maps: Scene | Mapping[str, Weights] | Mapping[str, LabelledMap] | Sequence[Weights] | Weights,
    tokens: Iterable[str] | None = None,
    targets: Iterable[str] | None = None,
    *,
    title: str = "",
    sequence: int = 0,
    call: int = -1,
    picture: Picture | None = None,
    about: About | None = None,
    size: float = SIZE,
) -> Page:
    """Attention as a page: tokens with lines, the map with its values, every head small, and what each does in few numbers.

    It holds every weight where there is room for that. Where there is not, maps are pooled and tokens have their largest weights,
    which the page says.

    Example:
        >>> with attent.watch(model) as seen:
        ...     model(**inputs)
        >>> attent.views.page(seen, tokens).save("attention.html")

    Args:
        maps: a scene, or what `attent.views.build_scene` takes: what `watch` saw, a run's `map`, the `attentions` of Hugging Face's
            models, or one map.
        tokens: labels, as there.
        targets: labels, as there.
        title: above it.
        sequence: which of a batch, as there.
        call: where the model ran several times, which of them, as there.
        picture: as there.
        about: what the rows of a text that is written are about, as there.
        size: MiB that the page may have.

    Raises:
        ArgumentError: there is nothing to show, or more than a page is made of.
        ShapeError: labels fit none of the maps.
    """
    scene = maps if isinstance(maps, Scene) else None
    if scene is None:
        scene = build_scene(
            maps,  # pyright: ignore[reportArgumentType]
            tokens,
            targets,
            title=title,
            sequence=sequence,
            call=call,
            picture=picture,
            about=about,
        )
    script, style = bundled("page"), web("attention.css")
    room = size * MEBIBYTE - len(script.encode()) - len(style.encode()) - REST
    if room <= 0:
        raise ArgumentError(f"size must leave room for the program, which takes {1 - room / MEBIBYTE / size:.1f} times the {size:g} MiB")
    inside = embedded(scene, room)
    packs = "\n".join(f'<script type="text/plain" data-pack="{name}">{pack}</script>' for name, pack in inside.packs.items())
    parts = {
        "{title}": escape(scene.title or "attention"),
        "{style}": style,
        "{packs}": packs,
        # no token can end the element that it stands in
        "{description}": inside.description.replace("<", "\\u003c"),
        "{script}": script,
    }
    html = web("page.html")
    before, *rest = html.split("{{")
    written = before + "".join(parts[f"{{{name}}}"] + after for name, after in (part.split("}}", 1) for part in rest))
    # half of a pair of surrogates, which a token may be cut to, is no text
    return Page(written.encode("utf-8", "replace").decode("utf-8"))
