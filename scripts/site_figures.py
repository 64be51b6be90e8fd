"""A MkDocs hook that adds the live figures of views/web/figures to the site, and to their pages the numbers they read.

Every page has the script; a page with a place such as `<div class="live-figure" id="figure-heads">` gets before it what
scripts/figures/record.py recorded for that figure.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from functools import cache
from pathlib import Path
from posixpath import relpath
from typing import Any

import numpy as np
from mkdocs.structure.files import File

from attent.views.pages.page import bundle

FOLDER = Path(__file__).parent / "figures"
SCRIPT = "figures/figures.js"
PLACE = re.compile(r'<div class="live-figure" id="figure-(\w+)"')
# What figures read, by the name of the file on the site; the others read nothing.
READ = {
    "recorded": {"recurrent", "patches"},
    "translator": {"projections", "context", "heads", "positions", "masks", "transformer", "seeing"},
}


def on_config(config: Any, **_: Any) -> Any:
    """Add the script to every page."""
    config.extra_javascript.append(SCRIPT)
    return config


def on_files(files: Any, *, config: Any) -> Any:
    """Add the script and what figures read to the site's files."""
    files.append(File.generated(config, SCRIPT, content=script()))
    for name in READ:
        files.append(File.generated(config, f"figures/{name}.js", content=numbers(name)))
    return files


def on_page_content(html: str, *, page: Any, **_: Any) -> str:
    """Return the page with a script for each file that its figures read."""
    figures = set(PLACE.findall(html))
    needed = [f"figures/{name}.js" for name, readers in READ.items() if readers & figures]
    folder = Path(page.file.src_uri).parent.as_posix()
    return html + "".join(f'<script src="{relpath(path, folder)}"></script>' for path in needed)


@cache
def script() -> str:
    """Return the figures as one script."""
    return f"(() => {{\n{bundle('figures/figures')}\n}})();\n"


def numbers(name: str) -> str:
    """Return a script that gives figures what they read as `ATTENT_FIGURES.NAME`."""
    value = translator() if name == "translator" else json.loads((FOLDER / "recorded.json").read_text(encoding="utf-8"))
    return f"(globalThis.ATTENT_FIGURES ??= {{}}).{name} = {json.dumps(value, ensure_ascii=False)};\n"


def translator() -> dict[str, Any]:
    """Return the recorded translator: its description as views/web/engine reads it, and its weights as base64."""
    with np.load(FOLDER / "translator.npz", allow_pickle=False) as arrays:
        return {
            "description": json.loads(str(arrays["description"])),
            "weights": b64encode(arrays["weights"].tobytes()).decode(),
        }
