"""A MkDocs hook that gives the site the design of all pages (docs/design-pages.md).

The style sheet and the mark are those of views/web; the first picture becomes part of its page, with its text as text.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from jinja2 import ChoiceLoader, DictLoader
from mkdocs.structure.files import File

from attent.views.palette import color

ROOT = Path(__file__).parents[1]
WEB = ROOT / "src" / "attent" / "views" / "web"
PICTURE = re.compile(r'<img alt="([^"]+)" src="(figures/black-dog\.svg)" ?/?>')


def on_files(files: Any, *, config: Any) -> Any:
    """Add the style sheet and the icon of windows to the site's files."""
    tokens = (WEB / "tokens.css").read_text(encoding="utf-8")
    files.append(File.generated(config, "figures/tokens.css", content=tokens))
    files.append(File.generated(config, "figures/mark.svg", content=icon()))
    return files


def on_env(env: Any, **_: Any) -> Any:
    """Put the mark in the place of the theme's logo, in the color of the text around it."""
    mark = (WEB / "mark.svg").read_text(encoding="utf-8")
    env.loader = ChoiceLoader([DictLoader({"partials/logo.html": mark}), env.loader])
    return env


def on_page_content(html: str, *, config: Any, **_: Any) -> str:
    """Return the page with the first picture as SVG elements, described by the text of the Markdown."""
    folder = Path(config.docs_dir)
    return PICTURE.sub(lambda found: described(found[1], (folder / found[2]).read_text(encoding="utf-8")), html)


def on_post_page(output: str, **_: Any) -> str:
    """Return the page with a name for the theme's search, which has none."""
    dialog = 'data-md-component="search" role="dialog"'
    return output.replace(dialog, f'{dialog} aria-label="Search"')


def described(text: str, picture: str) -> str:
    """Return an SVG with a name that screen readers say instead of its contents."""
    return picture.strip().replace("<svg ", f'<svg aria-label="{text}" ', 1)


def icon() -> str:
    """Return the mark in the color of weights, for light and dark windows."""
    colors = [f"svg{{color:{color('weight', dark=dark)}}}" for dark in (False, True)]
    style = f"<style>{colors[0]}@media (prefers-color-scheme:dark){{{colors[1]}}}</style>"
    return (WEB / "mark.svg").read_text(encoding="utf-8").replace(">", f">{style}", 1)
