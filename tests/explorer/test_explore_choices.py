"""What is chosen on the page of `attent explore`, in a real browser: tokens, addresses and files."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import attent
from attent.explorer.server import ExploreServer

pytestmark = pytest.mark.slow

PLACES = 700


@pytest.fixture
def served() -> Iterator[tuple[ExploreServer, torch.Tensor]]:
    """Two heads that look from 700 places to 700, and the weights of all."""
    torch.manual_seed(7)
    query, key = torch.randn(1, 2, PLACES, 16), torch.randn(1, 2, PLACES, 16)
    weights = attent.attend(query, key, key, return_map=True)[1]
    with attent.explore(weights, [f"t{position}" for position in range(PLACES)], title="700 places") as exploring:
        yield exploring, weights.dense()[0]


def readout(page: Any, text: str, location: str = ".tokens .readout") -> str:
    page.locator(location).filter(has_text=text).wait_for(timeout=60_000)
    return page.inner_text(location)


def table(page: Any, part: str) -> list[list[str]]:
    with page.expect_download() as waiting:
        page.get_by_role("button", name=f"save the {part} as CSV").click()
    return list(csv.reader(io.StringIO(Path(waiting.value.path()).read_text("utf-8"), newline="")))


@pytest.mark.parametrize(("size", "dark"), [((1280, 800), False), ((390, 844), True)], ids=["wide", "narrow"])
def test_choices(
    served: tuple[ExploreServer, torch.Tensor], window: Any, size: tuple[int, int], dark: bool, wait: Any
) -> None:
    exploring, weights = served
    page = window.open(exploring.address, size=size, dark=dark)
    wait.view(page)
    page.click("button[aria-label='layer 0, head 0']")
    page.click("summary")
    # a pooled cell says of what it is
    level = int(page.locator(".zoom canvas").first.get_attribute("data-level"))
    assert level > 0
    page.locator(".zoom canvas").first.focus()
    readout(
        page,
        f"the mean of these {2**level} × {2**level} weights: {2**level} tokens by {2**level} tokens",
        ".zoom .readout",
    )
    page.get_by_label("cells show the").select_option("largest")
    readout(page, f"the largest of these {2**level} × {2**level} weights", ".zoom .readout")
    # the sum of several rows is that of the server's own
    page.click(".rows li:nth-child(3)")
    page.click(".rows li:nth-child(6)", modifiers=["Shift"])
    readout(page, "from 4 words (2 to 5), their sum", ".said")
    header, *rows = table(page, "texts")
    assert header[2] == "sum of rows 2-5"
    np.testing.assert_allclose([float(row[2]) for row in rows], weights[0, 2:6].double().sum(0), rtol=1e-6)
    assert page.evaluate("document.documentElement.scrollWidth") <= size[0]
    window.picture(page, f"explore-choices-{size[0]}", whole=True)
    # the address has it all, behind the token
    page.wait_for_timeout(400)
    address = page.evaluate("location.href")
    assert address.startswith(f"{exploring.address}&")
    second = window.open(address, size=size)
    wait.view(second)
    readout(second, "from 4 words (2 to 5), their sum", ".said")
    assert second.inner_text(".grid h2") == "Head 0"
    # a click into the map ends the selection
    second.locator(".zoom canvas").first.click()
    readout(second, "from t", ".said")
    second.click("summary")
    # and what is drawn can be saved
    with second.expect_download() as waiting:
        second.get_by_role("button", name="save the matrix as PNG").click()
    assert Path(waiting.value.path()).read_bytes()[:4] == b"\x89PNG"
