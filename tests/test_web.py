from __future__ import annotations

from starlette.applications import Starlette
from starlette.routing import Route
from starlette.testclient import TestClient

from attent.web import static_file


def test_scripts_and_style_sheets_alone_are_sent() -> None:
    client = TestClient(Starlette(routes=[Route("/web/{name:str}", static_file)]))
    for name, media_type in {"words.js": "text/javascript", "attention.css": "text/css"}.items():
        answer = client.get(f"/web/{name}")
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith(media_type)
    for name in ("page.html", "none.js", "..%2fpages%2fpage.py"):
        assert client.get(f"/web/{name}").status_code == 404
