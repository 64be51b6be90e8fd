"""The links of the page."""

from __future__ import annotations

import re
from collections.abc import Callable
from urllib.parse import urljoin

from starlette.testclient import TestClient

LINK = re.compile(r'(?:href|src)="([^"#:]+)"')


def test_links_of_the_page_lead_somewhere(serve: Callable[..., TestClient]) -> None:
    client = serve()
    # a proxy may serve it below a path of its own, which it takes away
    root, prefix = "http://testserver", "http://testserver/translator"
    links = [urljoin(f"{prefix}/", link) for link in LINK.findall(client.get(f"{root}/").text)]
    assert any(link.endswith(".css") for link in links)
    for link in links:
        assert link.startswith(f"{prefix}/") and client.get(link.replace(prefix, root)).status_code == 200, link


def test_more_slashes_at_the_end_of_a_page_lead_back_too(serve: Callable[..., TestClient]) -> None:
    client = serve()
    # what a browser makes of them, below any path: urljoin leaves empty parts of a path out
    answer = client.get("http://testserver//", follow_redirects=False)
    assert (answer.status_code, answer.headers["location"]) == (307, "../")
