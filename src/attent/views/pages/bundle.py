"""The modules of views/web as one script, so that a page needs no other file.

A browser refuses modules that import one another when a page is opened from disk. Each becomes a function that runs once, in the
order of imports. They keep to what is understood here: `import { a, b } from "./other.js";` and `export` before `function`,
`async function`, `class` or `const`.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

IMPORT = re.compile(r'^import \{([^}]*)\} from "\./([\w]+)\.js";\n', re.MULTILINE)
EXPORT = re.compile(r"^export (?=(?:async )?(?:function\*?|class|const) (\w+))", re.MULTILINE)


@cache
def web(name: str) -> str:
    """A file of views/web."""
    return files("attent.views").joinpath("web", name).read_text(encoding="utf-8")


def bundled(main: str) -> str:
    """A module and all that it imports as one script."""
    ordered: dict[str, str] = {}
    _visit(main, ordered)
    return "\n".join(ordered.values())


def _visit(name: str, ordered: dict[str, str]) -> None:
    text = web(f"{name}.js")
    for other in (found[2] for found in IMPORT.finditer(text)):
        if other not in ordered:
            _visit(other, ordered)
    exported = EXPORT.findall(text)
    body = EXPORT.sub("", IMPORT.sub(lambda found: f"const {{{found[1]}}} = module_{found[2]};\n", text))
    ordered[name] = f"const module_{name} = (() => {{\n{body}\nreturn {{ {', '.join(exported)} }};\n}})();"
