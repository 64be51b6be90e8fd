from __future__ import annotations

import math

import pytest
import torch

from attent.errors import ArgumentError
from attent.tasks.translation.translator import Translator
from attent.views.build_scene import build_scene
from attent.views.pages.budget import BASE64_FACTOR, EXACT_SHARE, MEBIBYTE, NO_ROOM, fit_measures, plan_page
from attent.views.scene import Scene


def scene(length: int, layers: int = 1, heads: int = 1) -> Scene:
    # a view of one number takes no memory
    weights = torch.ones(1, 1, 1).expand(heads, length, length)
    return build_scene({f"layers.{layer}": weights for layer in range(layers)})


def test_every_number_is_held_while_there_is_room() -> None:
    assert plan_page(scene(13, 6, 12), 8 * MEBIBYTE).numbers == "float32"
    assert plan_page(scene(13, 6, 12), 8 * MEBIBYTE).is_full
    half = plan_page(scene(128, 12, 12), 8 * MEBIBYTE)
    assert half.is_full
    assert half.numbers == "float16"


def test_longer_texts_are_pooled_beside_their_largest_weights() -> None:
    long = scene(512, 12, 12)
    plan = plan_page(long, 8 * MEBIBYTE)
    assert not plan.is_full
    assert plan.level(long.groups[0]) == 2
    assert plan.top >= 5
    # what each takes, if nothing shrank at all
    assert 144 * 128 * 128 + 156 * 1024 * plan.top * 4 < 8 * MEBIBYTE


def test_what_is_too_long_for_single_weights_is_pooled_alone() -> None:
    assert plan_page(scene(2048, 12, 12), 2 * MEBIBYTE).top == 0
    assert plan_page(scene(40_000), 8 * MEBIBYTE).top > 0


def test_what_would_take_too_long_is_refused() -> None:
    with pytest.raises(
        ArgumentError, match=r"12 layers of 12 heads, 100,000 x 100,000 each, are too many weights.*attent explore"
    ):
        plan_page(scene(100_000, 12, 12), 8 * MEBIBYTE)


def test_measures_beside_weights_take_no_exactness_from_them(translator: Translator) -> None:
    scene = build_scene(translator.map("abcdefgh" * 4, "65432165"))
    assert [group.name for group in scene.all_groups[:2]] == ["cross", "cross.norms"]
    assert fit_measures(scene, 8 * MEBIBYTE) is scene
    weights = sum(len(group.layers) * math.prod(group.shape) for group in scene.groups)
    # room for the weights in full precision, and none for as many norms
    fitted = fit_measures(scene, 1.2 * weights * 4 * BASE64_FACTOR / EXACT_SHARE)
    assert [group.name for group in fitted.all_groups] == [group.name for group in scene.groups]
    assert fitted.notes == (NO_ROOM,)
