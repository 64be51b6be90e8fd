"""The browser that tests open pages in tells what a page should not have done."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

pytestmark = pytest.mark.slow

QUIET = "<!doctype html><meta charset=utf-8><link rel=icon href='data:,'><title>quiet</title><p>a word</p>"


@pytest.fixture
def page(tmp_path: Path) -> Any:
    """Writes a page, which is quiet but for what is added to it."""

    def written(more: str = "") -> Path:
        file = tmp_path / "page.html"
        file.write_text(QUIET + more, encoding="utf-8")
        return file

    return written


@pytest.fixture
def server() -> Iterator[str]:
    """The address of a server on this machine that answers everything with the quiet page."""

    class Answer(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(QUIET.encode())

        def log_message(self, format: str, *args: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answer) as serving:
        thread = threading.Thread(target=serving.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{serving.server_port}"
        serving.shutdown()
        thread.join()


def test_a_quiet_page_passes(window: Any, page: Any) -> None:
    opened = window.open(page())
    assert opened.inner_text("p") == "a word"
    assert window.requests[0].startswith("file:")
    window.check()


def test_a_server_on_this_machine_may_be_asked(window: Any, server: str) -> None:
    opened = window.open(server)
    opened.evaluate("address => fetch(address).then(answer => answer.text())", f"{server}/more")
    assert window.requests[0] == f"{server}/"
    assert f"{server}/more" in window.requests
    window.check()


@pytest.mark.parametrize(
    ("more", "wrong"),
    [
        ("<script>console.error('no good')</script>", "console: no good"),
        ("<script>throw new Error('thrown')</script>", "error: thrown"),
        ("<script>Promise.reject(new Error('unheard'))</script>", "error: unheard"),
        ("<img src='https://example.org/picture.png'>", "request: https://example.org/picture.png"),
        ("<style>@import 'http://example.org/fonts.css'</style>", "request: http://example.org/fonts.css"),
        ("<script>new WebSocket('wss://example.org/live')</script>", "request: wss://example.org/live"),
    ],
)
def test_a_page_that_errs_or_asks_others_fails(window: Any, page: Any, more: str, wrong: str) -> None:
    opened = window.open(page(more))
    for _ in range(50):
        opened.wait_for_timeout(100)
        if wrong in window.wrong:
            break
    assert wrong in window.wrong
    with pytest.raises(AssertionError, match=wrong.split(":")[0]):
        window.check()


def test_pages_are_seen_as_on_a_desk_and_in_the_hand(window: Any, page: Any, tmp_path: Path) -> None:
    shades = page(
        "<style>body { background: white } @media (prefers-color-scheme: dark) { body { background: black } }</style>"
    )
    values = {}
    for name, size, dark in (("desk", (1280, 800), False), ("hand", (390, 844), True)):
        path = window.picture(window.open(shades, size=size, dark=dark), name)
        with Image.open(path) as picture:
            values[name] = picture.size, picture.convert("L").getpixel((5, picture.height - 5))
    assert values == {"desk": ((1280, 800), 255), "hand": ((390, 844), 0)}
    window.check()
