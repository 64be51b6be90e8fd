"""A MkDocs hook that puts the playground on the site.

Its script and style are for docs/playground.md and the first page; figures/playground.html is a page of one file.
"""

from __future__ import annotations

import json
from typing import Any

from mkdocs.structure.files import File

from attent.views.pages.page import bundle, fill, web_file

# Where a page has an element with this id, the script fills it; on the first page it is the compact form.
PLACE = "playground"


def on_files(files: Any, *, config: Any) -> Any:
    """Add the script, the style and the page of one file to the site's files."""
    for name, content in (
        ("playground.js", script()),
        ("playground.css", web_file("playground.css")),
        ("playground.html", page()),
    ):
        files.append(File.generated(config, f"figures/{name}", content=content))
    return files


def on_page_content(html: str, **_: Any) -> str:
    """Return a page that has a place for the playground with the script and the style; other pages load neither."""
    if f'id="{PLACE}"' not in html:
        return html
    style = '<link rel="stylesheet" href="figures/playground.css">'
    return f'{html}\n{style}\n<script src="figures/playground.js" defer></script>\n'


def page() -> str:
    """Return the playground as one HTML file that opens from disk."""
    style = web_file("tokens.css") + web_file("playground.css")
    return fill("playground.html", {"style": style, "script": script()}).html


def script() -> str:
    """Return the script of a page that has a place for the playground, with that of its worker as text in it."""
    worker = json.dumps(
        f'"use strict";\n{bundle("playground/worker")}\nmodule_playground_worker.serve(self);', ensure_ascii=False
    )
    return (
        f"(() => {{\nconst place = document.getElementById({json.dumps(PLACE)});\nif (!place) return;\n"
        f"const worker = {worker.replace('<', chr(92) + 'u003c')};\n{bundle('playground/playground')}\n"
        'module_playground_playground.start(place, worker, place.classList.contains("compact"));\n})();\n'
    )
