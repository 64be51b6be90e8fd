"""The page of a run in a browser, and what Python writes with the same run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from attent.attention import choices
from attent.attention.base import Normalizer
from attent.tasks.translation.stepwise import StepwiseDecoding
from attent.text.tokenizer import EOS

LAST = "decoder.layers.1.cross_attention"


def until(page: Any, holds: Callable[[], bool], name: str) -> None:
    """Wait until something holds."""
    for _ in range(300):
        if holds():
            return
        page.wait_for_timeout(50)
    raise AssertionError(f"{name} never came to be; the page says {page.locator('.status').all_inner_texts()}")


def written(translator: Any, text: str, prefix: tuple[int, ...] = ()) -> tuple[list[str], list[int]]:
    """The labels and the ids of what Python writes."""
    decoding = StepwiseDecoding(translator, text, prefix)
    return [step.chosen.piece for step in decoding], decoding.tokens


def weights_of(translator: Any, text: str) -> torch.Tensor:
    """The cross-attention of the last layer while Python writes, (H, Tq, Tk)."""
    pieces, tokens = written(translator, text)
    maps = translator.map_of_tokens(translator.read(text).ids, [*tokens, EOS], (*text,), (*pieces,), False)
    # an RNN has one attention
    return maps[LAST if LAST in maps else next(iter(maps))].weights[0]


def set_normalizer(model: nn.Module, normalizer: str | Normalizer) -> None:
    """Set the normalizer of every attention of a model."""
    part = choices.normalizer(normalizer)
    for module in model.modules():
        if isinstance(getattr(module, "normalizer", None), Normalizer):
            setattr(module, "normalizer", part)  # noqa: B010 - a module's type knows no such attribute


def shown(page: Any) -> list[str]:
    """The labels of the tokens that are written."""
    return page.locator(".written bdi").all_inner_texts()


def ended(page: Any, pieces: list[str]) -> None:
    """Wait until these tokens are written, and their maps are drawn."""
    until(page, lambda: shown(page) == [piece.replace(" ", "␣") for piece in pieces], f"{pieces}")
    until(page, lambda: not page.locator(".former").count(), "the view")
    page.wait_for_selector(".zoom canvas[data-complete='true']")


def cell(page: Any, row: int, column: int) -> float:
    """Select a cell of the matrix by the keyboard, and return its weight."""
    canvas, readout = page.locator(".zoom canvas").first, page.locator(".zoom .readout")
    canvas.focus()
    for key, count in (("PageUp", 9), ("Home", 1), ("ArrowDown", row), ("ArrowRight", column)):
        for _ in range(count):
            page.keyboard.press(key)
    page.locator(f".zoom .readout[data-row='{row}'][data-column='{column}']:not([data-value=''])").wait_for()
    value = float(readout.get_attribute("data-value"))
    page.keyboard.press("Enter")
    return value


def select_head(page: Any, layer: int, head: int) -> None:
    """Select a head by its thumbnail, and wait until its map is drawn."""
    page.click(f"button[aria-label='layer {layer}, head {head}']")
    page.wait_for_selector(".zoom canvas[data-complete='true']")
