"""The pages: the description of the interface as one, and their links."""

from __future__ import annotations

import re
from collections.abc import Callable
from urllib.parse import urljoin

import pytest
from starlette.testclient import TestClient

from attent.server.pages import docs_page

LINK = re.compile(r'(?:href|src)="([^"#:]+)"')


def test_what_a_description_says_is_on_the_page_and_never_markup() -> None:
    properties = {"a": {"type": "integer", "minimum": 3}, "b": {"$ref": "#/components/schemas/B"}}
    schema = {"type": "object", "required": ["a"], "properties": properties}
    text = {"text/x": {"schema": {"type": "string"}}}
    operation = {
        "tags": ["t"],
        "summary": "Do <it>",
        "requestBody": {"content": {"application/json": {"schema": schema}}},
        "responses": {"200": {"description": "Done", "content": text}, "400": {"description": "Wrong"}},
    }
    spec = {
        "info": {"title": "T&T", "version": "1", "description": "D"},
        "tags": [{"name": "t", "description": "Tag"}],
        "paths": {"/p": {"post": operation}},
        "components": {"schemas": {"B": {"enum": ["<b>"], "description": "Bee"}}},
    }
    page = docs_page(spec)
    parts = ["T&amp;T 1", "<b>POST</b> <code>/p</code>", "Do &lt;it&gt;.", "<code>a</code></th>"]
    parts += ["<code>b</code>?</th>", "minimum: <code>3", '<a href="#B">B</a>', 'id="B"', "200: Done"]
    parts += ["enum: <code>&lt;b&gt;</code>"]
    assert [part for part in parts if part not in page] == []


@pytest.mark.parametrize("path", ["/", "/docs", "/docs/"])
def test_links_of_pages_lead_somewhere_with_a_slash_at_the_end_too(serve: Callable[..., TestClient], path: str) -> None:
    client = serve()
    # a proxy may serve it below a path of its own, which it takes away
    root, prefix = "http://testserver", "http://testserver/translator"
    answer, address = client.get(f"{root}{path}", follow_redirects=False), f"{prefix}{path}"
    if path == "/docs/":
        address = urljoin(address, answer.headers["location"])
        assert (answer.status_code, address) == (307, f"{prefix}/docs")
        answer = client.get(address.replace(prefix, root))
    links = [urljoin(address, link) for link in LINK.findall(answer.text)]
    assert any(link.endswith(".css") for link in links)
    for link in links:
        assert link.startswith(f"{prefix}/") and client.get(link.replace(prefix, root)).status_code == 200, link


def test_more_slashes_at_the_end_of_a_page_lead_back_too(serve: Callable[..., TestClient]) -> None:
    client = serve()
    # what a browser makes of them, below any path: urljoin leaves empty parts of a path out
    for path, location in (("//", "../"), ("/docs//", "../../docs")):
        answer = client.get(f"http://testserver{path}", follow_redirects=False)
        assert (answer.status_code, answer.headers["location"]) == (307, location)
