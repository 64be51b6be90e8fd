from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from torch import nn

import attent
from attent.attention.capture.watch import watch
from attent.views.build_scene import build_scene
from attent.views.pages.page import frame


class Formatter:
    """IPython's, as far as an extension knows it."""

    def __init__(self) -> None:
        self.kinds: dict[type, Any] = {}

    def for_type(self, kind: type, function: Any) -> None:
        self.kinds[kind] = function


def test_the_extension_says_how_maps_are_shown() -> None:
    formatter = Formatter()
    display = SimpleNamespace(formatters={"text/html": formatter})
    attent.load_ipython_extension(SimpleNamespace(display_formatter=display))
    assert set(formatter.kinds) == {attent.AttentionMap, watch, type(build_scene(torch.ones(1, 1)))}


def test_maps_and_what_was_seen_are_frames() -> None:
    query = torch.randn(1, 2, 3, 5)
    _, weights = attent.attend(query, query, query, return_map=True)
    model = nn.MultiheadAttention(8, 2).eval()
    with torch.no_grad(), attent.watch(model) as captured:
        model(*torch.randn(3, 4, 1, 8))
    for displayed in (weights, captured, build_scene(weights)):
        assert frame(displayed).startswith("<iframe srcdoc=")
    # what is no page is printed as ever
    with attent.watch(nn.Linear(2, 2)) as captured:
        pass
    assert frame(captured) is None
