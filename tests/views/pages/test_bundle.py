from __future__ import annotations

import re
from importlib.resources import files

import pytest

from attent.views.pages.bundle import EXPORT, IMPORT, bundled, web

MODULES = sorted(file.name.removesuffix(".js") for file in files("attent.views").joinpath("web").iterdir() if file.name.endswith(".js"))


def test_what_is_imported_stands_before() -> None:
    script = bundled("page")
    assert script.index("const module_elements") < script.index("const module_grid") < script.index("const module_page")
    assert script.count("const module_elements =") == 1
    assert not re.search(r"^(import|export)\b", script, re.MULTILINE)


@pytest.mark.parametrize("name", MODULES)
def test_modules_keep_to_what_is_understood(name: str) -> None:
    text = web(f"{name}.js")
    assert len(text.splitlines()) <= 300
    assert len(re.findall(r"^import\b", text, re.MULTILINE)) == len(IMPORT.findall(text))
    assert len(re.findall(r"^export\b", text, re.MULTILINE)) == len(EXPORT.findall(text))
    # no markup is made of text, and nothing is fetched from another host
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|https?://(?!www\.w3\.org/2000/svg)", text)
