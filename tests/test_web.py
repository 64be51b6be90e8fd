"""Scripts and style sheets of pages, and nothing else."""

from __future__ import annotations

import pytest
from starlette.applications import Starlette
from starlette.routing import Route
from starlette.testclient import TestClient

from attent.web import static_file


@pytest.mark.parametrize(
    ("name", "media_type"),
    [
        ("words.js", "text/javascript"),
        ("attention.css", "text/css"),
        ("page.html", None),
        ("none.js", None),
        ("..%2fpages%2fpage.py", None),
    ],
)
def test_scripts_and_style_sheets_alone_are_sent(name: str, media_type: str | None) -> None:
    answer = TestClient(Starlette(routes=[Route("/web/{name:str}", static_file)])).get(f"/web/{name}")
    assert answer.status_code == (404 if media_type is None else 200)
    assert media_type is None or answer.headers["content-type"].startswith(media_type)
