"""The window in which tests open pages finds the faults of a page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

QUIET = "<!doctype html><meta charset=utf-8><link rel=icon href='data:,'><title>quiet</title><p>a word</p>"
WRONG = {
    "console: no good": "<script>console.error('no good')</script>",
    "error: thrown": "<script>throw new Error('thrown')</script>",
    "error: unheard": "<script>Promise.reject(new Error('unheard'))</script>",
    "request: https://example.org/picture.png": "<img src='https://example.org/picture.png'>",
    "request: http://example.org/fonts.css": "<style>@import 'http://example.org/fonts.css'</style>",
    "request: wss://example.org/live": "<script>new WebSocket('wss://example.org/live')</script>",
}


@pytest.mark.slow
def test_faults_of_a_page_and_its_requests_are_found(window: Any, tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    file.write_text(QUIET, encoding="utf-8")
    assert window.open(file).inner_text("p") == "a word"
    window.check()
    file.write_text(QUIET + "".join(WRONG.values()), encoding="utf-8")
    opened = window.open(file)
    for _ in range(50):
        opened.wait_for_timeout(100)
        if set(window.wrong) >= WRONG.keys():
            break
    assert set(window.wrong) >= WRONG.keys()
    with pytest.raises(AssertionError, match="console: no good"):
        window.check()
