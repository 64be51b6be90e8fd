"""What is chosen on the page of `attent explore`, in a real browser: tokens, temperatures, addresses and files."""

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
from attent.explorer.pooling import adjust
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
    page.locator(".choices select").nth(2).select_option("0")
    # a pooled cell says of what it is
    level = int(page.locator(".zoom canvas").first.get_attribute("data-level"))
    assert level > 0
    page.locator(".zoom canvas").first.focus()
    readout(
        page,
        f"the mean of these {2**level} × {2**level} weights: {2**level} tokens by {2**level} tokens",
        ".zoom .readout",
    )
    page.locator(".zoom .options select").select_option("largest")
    readout(page, f"the largest of these {2**level} × {2**level} weights", ".zoom .readout")
    # the sum of several rows is that of the server's own
    page.click(".rows li:nth-child(3)")
    page.click(".rows li:nth-child(6)", modifiers=["Shift"])
    readout(page, "4 tokens (rows 2 to 5) look at, the sum")
    header, *rows = table(page, "tokens")
    assert header[2] == "sum of rows 2-5"
    np.testing.assert_allclose([float(row[2]) for row in rows], weights[0, 2:6].double().sum(0), rtol=1e-6)
    # another temperature, and the largest alone, of what is shown
    temperature, top = page.locator(".adjustment input").all()
    temperature.fill("0.5")
    top.fill("3")
    top.press("Enter")
    note = readout(page, "Shown otherwise than the model computed it", ".adjustment .about")
    assert "raised to 1/0.5" in note
    assert "3 largest weights are kept" in note
    assert "The model and what it writes are not changed" in note
    wait.view(page)
    displayed = adjust(weights[0], 0.5, 3)[2:6].double().sum(0)
    readout(page, f"t{int(displayed.argmax())}⁩")
    np.testing.assert_allclose([float(row[2]) for row in table(page, "tokens")[1:]], displayed, rtol=1e-5)
    assert page.evaluate("document.documentElement.scrollWidth") <= size[0]
    window.picture(page, f"explore-choices-{size[0]}", whole=True)
    # the address has it all, behind the token
    page.wait_for_timeout(400)
    address = page.evaluate("location.href")
    assert address.startswith(f"{exploring.address}&")
    second = window.open(address, size=size)
    wait.view(second)
    readout(second, "4 tokens (rows 2 to 5) look at, the sum")
    assert [second.locator(".adjustment input").nth(position).input_value() for position in range(2)] == ["0.5", "3"]
    assert second.locator(".choices select").nth(2).input_value() == "0"
    # a click into the map ends the selection
    second.locator(".zoom canvas").first.click()
    readout(second, ") looks at")
    # and what is drawn can be saved
    with second.expect_download() as waiting:
        second.get_by_role("button", name="save the map as PNG").click()
    assert Path(waiting.value.path()).read_bytes()[:4] == b"\x89PNG"
    assert "temperature-0_5-largest-3" in waiting.value.suggested_filename
    second.locator(".adjustment input").first.fill("1")
    second.locator(".adjustment input").nth(1).fill("0")
    second.keyboard.press("Enter")
    second.wait_for_timeout(400)
    assert "temperature" not in second.evaluate("location.hash")
    # every digit of a temperature is read again
    second.locator(".adjustment input").first.fill("0.3333333")
    second.keyboard.press("Enter")
    second.wait_for_timeout(400)
    repeated = window.open(second.evaluate("location.href"), size=size)
    wait.view(repeated)
    assert repeated.locator(".adjustment input").first.input_value() == "0.3333333"
