"""Attention as a single HTML file that opens from disk and loads nothing else.

The modules of views/web are bundled into one script, since browsers refuse imports between modules when a page is
opened from disk. Each module becomes a function that runs once, in the order of imports. Supported are
`import { a, b as c } from "./other.js";`, also from other folders, and `export` before `function`, `async function`,
`class` or `const`.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

from attent.attention.capture.watch import watch
from attent.attention.maps.attention_map import AttentionMap, LabelledMap
from attent.errors import ArgumentError, AttentError, refuse
from attent.views.build_scene import About, Weights, build_scene
from attent.views.pages.budget import MEBIBYTE
from attent.views.pages.payload import build_payload
from attent.views.scene import Picture, Scene

# Default maximum size of a page, in MiB.
SIZE = 8.0
# Height of a page in a notebook, in pixels.
HEIGHT = 760
ENDINGS = (".html", ".htm")
# Bytes reserved for everything other than the numbers and the program.
OVERHEAD = 2**12
IMPORT = re.compile(r'^import \{([^}]*)\} from "(\.\.?/[\w/]+)\.js";\n', re.MULTILINE)
EXPORT = re.compile(r"^export (?=(?:async )?(?:function\*?|class|const) (\w+))", re.MULTILINE)


@dataclass(frozen=True)
class Page:
    """An HTML page; a notebook shows it in a frame."""

    html: str

    def save(self, path: Path | str) -> Path:
        """Write the page to a file; return its path.

        Raises:
            ArgumentError: the name does not end in .html, or the file cannot be written.
        """
        path = Path(path)
        refuse((path.suffix.lower() not in ENDINGS, f"a page's name must end in .html, got {str(path)!r}"))
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(self.html, encoding="utf-8", newline="")
        except OSError as error:
            raise ArgumentError(f"{path} cannot be written: {error.strerror or error}") from error
        return path

    def _repr_html_(self) -> str:
        # frames keep the scripts of several pages in a notebook apart
        return (
            f'<iframe srcdoc="{escape(self.html)}" style="width:100%;height:{HEIGHT}px;border:0" '
            f'title="attention" sandbox="allow-scripts allow-downloads"></iframe>'
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
    gradients: Mapping[str, AttentionMap] | None = None,
    size: float = SIZE,
) -> Page:
    """Build a page: tokens connected by lines, the map with its values, and a thumbnail and statistics of each head.

    The page holds every weight if there is room. Otherwise maps are pooled, tokens keep only their largest weights, and
    a note says so. Norms or gradients can be selected instead of weights if they are known and there is room.

    Example:
        >>> with attent.watch(model) as seen:
        ...     model(**inputs)
        >>> attent.views.page(seen, tokens).save("attention.html")

    Args:
        maps: a scene, or maps as for `attent.views.build_scene`: the result of `watch`, a run's `map`, the `attentions`
            of Hugging Face models, or a single map.
        tokens: see `build_scene`.
        targets: see `build_scene`.
        title: the title of the page.
        sequence: see `build_scene`.
        call: see `build_scene`.
        picture: see `build_scene`.
        about: see `build_scene`.
        gradients: see `build_scene`.
        size: the maximum size of the page, in MiB.

    Raises:
        ArgumentError: there is nothing to show, or there are too many weights to compute.
        ShapeError: labels fit none of the maps.
    """
    if not isinstance(maps, Scene):
        maps = build_scene(
            maps,
            tokens,
            targets,
            title=title,
            sequence=sequence,
            call=call,
            picture=picture,
            about=about,
            gradients=gradients,
        )
    return _page_of(maps, size)


def _page_of(scene: Scene, size: float) -> Page:
    """Return the page of a scene, with at most `size` MiB."""
    script, style = bundle("page"), web_file("tokens.css") + web_file("attention.css")
    room = size * MEBIBYTE - len(script.encode()) - len(style.encode()) - OVERHEAD
    if room <= 0:
        raise ArgumentError(
            f"size must leave room for the program, which takes {1 - room / MEBIBYTE / size:.1f} times the {size:g} MiB"
        )
    payload = build_payload(scene, room)
    packs = (f'<script type="text/plain" data-pack="{name}">{pack}</script>' for name, pack in payload.packs.items())
    # prevents tokens from closing the element around the description
    description = payload.description.replace("<", "\\u003c")
    parts = {"style": style, "packs": "\n".join(packs), "description": description, "script": script}
    return fill("page.html", parts | {"title": escape(scene.title or "attention")})


def fill(template: str, parts: Mapping[str, str]) -> Page:
    """Return the page of a template in views/web, in which each {{name}} is replaced by a part."""
    html = re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], web_file(template))
    # a truncated token may contain a lone surrogate, which cannot be encoded
    return Page(html.encode("utf-8", "replace").decode("utf-8"))


def load_ipython_extension(shell: Any) -> None:
    """Implement `%load_ext attent`, which shows maps, results of `watch` and scenes as pages in frames.

    Args:
        shell: the IPython shell.
    """
    formatter = shell.display_formatter.formatters["text/html"]
    for kind in (AttentionMap, watch, Scene):
        formatter.for_type(kind, frame)


def frame(value: AttentionMap | watch | Scene) -> str | None:
    """Return a page as HTML for a notebook cell.

    None if there is nothing to show or far too much; the notebook then prints the value.
    """
    try:
        return page(value)._repr_html_()
    except AttentError:
        return None


@cache
def web_file(name: str) -> str:
    """Return the content of a file in views/web."""
    return files("attent.views").joinpath("web", name).read_text(encoding="utf-8")


def bundle(main: str) -> str:
    """Return a module, named by its path in views/web, and all its imports as one script."""
    scripts: dict[str, str] = {}
    _add_module(main, scripts)
    return "\n".join(scripts.values())


def _add_module(path: str, scripts: dict[str, str]) -> None:
    text, folder = web_file(f"{path}.js"), posixpath.dirname(path)

    def imported(match: re.Match[str]) -> str:
        other = posixpath.normpath(posixpath.join(folder, match[2]))
        if other not in scripts:
            _add_module(other, scripts)
        return f"const {{{match[1].replace(' as ', ': ')}}} = {_variable(other)};\n"

    exports = EXPORT.findall(text)
    body = EXPORT.sub("", IMPORT.sub(imported, text))
    scripts[path] = f"const {_variable(path)} = (() => {{\n{body}\nreturn {{ {', '.join(exports)} }};\n}})();"


def _variable(path: str) -> str:
    return "module_" + path.replace("/", "_")
