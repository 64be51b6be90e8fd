from __future__ import annotations

import base64
import json
import math
import zlib

import numpy as np
import pytest
import torch

from attent.errors import ArgumentError
from attent.tasks.translation.translator import Translator
from attent.views.build_scene import build_scene
from attent.views.pages.budget import BASE64_FACTOR, EXACT_SHARE, MEBIBYTE, NO_ROOM, fit_measures, plan_page
from attent.views.pages.payload import build_payload, encode_bytes, pack_top, to_half
from attent.views.scene import Picture, Scene


def unpacked(text: str) -> bytes:
    return zlib.decompress(base64.b64decode(text))


def numbers(text: str, kind: type) -> np.ndarray:
    return np.frombuffer(unpacked(text), kind)


def test_a_small_scene_has_every_number() -> None:
    weights = torch.rand(2, 3, 5).softmax(-1)
    inside = build_payload(build_scene({"a.0": weights, "a.1": weights}), MEBIBYTE)
    about = json.loads(inside.description)["groups"][0]
    assert (about["numbers"], about["level"], about["note"]) == ("float32", 0, "")
    assert (numbers(inside.packs["0.1.map"], np.float32) == weights.numpy().ravel()).all()
    assert len(about["summary"]) == 2
    assert about["thumbnails"]["height"] == 3
    inside = build_payload(build_scene(torch.tensor([[torch.nan]])), MEBIBYTE)
    assert json.loads(inside.description)["notes"] == ["Rows of weights that are no numbers are drawn as zeros."]


def test_a_large_one_is_pooled_and_says_so() -> None:
    weights = torch.randn(4, 300, 300).mul(3).softmax(-1)
    inside = build_payload(build_scene({"a.0": weights}), MEBIBYTE // 4)
    about = json.loads(inside.description)["groups"][0]
    assert inside.size <= MEBIBYTE // 4
    step, saved = 2 ** about["level"], about["kept"][0]
    assert saved > 0
    assert f"the mean of each {step} × {step} weights" in about["note"]
    assert f"the {saved} largest weights of each row and column" in about["note"]
    assert "attent explore" in about["note"]
    codes = numbers(inside.packs["0.0.map"], np.uint8).reshape(4, -(-300 // step), -1)
    displayed = codes[1, 2, 3] / 255 * about["maps"]["tops"][0][1]
    exact = weights[1, 2 * step : 3 * step, 3 * step : 4 * step].mean().item()
    assert abs(displayed - exact) <= about["maps"]["tops"][0][1] / 255
    largest, middle = unpacked(inside.packs["0.0.rows"]), 5 * 300 * saved * 2
    positions, values = np.frombuffer(largest[:middle], np.uint16), np.frombuffer(largest[middle:], np.float16)
    top = weights[0, 0].topk(saved)
    assert positions[:saved].tolist() == top.indices.tolist()
    np.testing.assert_allclose(values[:saved], top.values.numpy(), rtol=1e-3)


def test_bytes_and_places_are_as_narrow_as_numbers_allow() -> None:
    codes, tops, signed = encode_bytes(np.array([[[0.0, 0.5]], [[0.02, 0.01]], [[0.0, 0.0]]]))
    assert codes.tolist() == [[[0, 255]], [[255, 128]], [[0, 0]]]
    assert tops == [0.5, 0.02, 0.0]
    assert not signed
    codes, tops, signed = encode_bytes(np.array([[[-2.0, 0.0, 1.0]]]))
    assert (codes.tolist(), tops, signed) == ([[[1, 128, 192]]], [2.0], True)
    positions, weights = np.array([[[3, 1]]]), np.array([[[0.5, 0.25]]])
    expected = np.array([3, 1], np.uint16).tobytes() + np.array([0.5, 0.25], np.float16).tobytes()
    assert unpacked(pack_top(positions, weights, 4)) == expected
    assert to_half(np.array([1e9, -1e9])).tolist() == [65504.0, -65504.0]
    assert len(unpacked(pack_top(positions, weights, 2**16 + 1))) == 12
    pixels = np.array([[[0.0], [1.0]]])
    inside = build_payload(build_scene(torch.ones(3, 3) / 3, picture=Picture(pixels, (1, 2), "tokens")), MEBIBYTE)
    assert numbers(inside.packs["picture"], np.uint8).tolist() == [0, 0, 0, 255, 255, 255]


def make_scene(length: int, layers: int = 1, heads: int = 1) -> Scene:
    # a view of one number takes no memory
    weights = torch.ones(1, 1, 1).expand(heads, length, length)
    return build_scene({f"layers.{layer}": weights for layer in range(layers)})


def test_every_number_is_held_while_there_is_room() -> None:
    assert plan_page(make_scene(13, 6, 12), 8 * MEBIBYTE).numbers == "float32"
    assert plan_page(make_scene(13, 6, 12), 8 * MEBIBYTE).is_full
    half = plan_page(make_scene(128, 12, 12), 8 * MEBIBYTE)
    assert half.is_full
    assert half.numbers == "float16"


def test_longer_texts_are_pooled_beside_their_largest_weights() -> None:
    long = make_scene(512, 12, 12)
    plan = plan_page(long, 8 * MEBIBYTE)
    assert not plan.is_full
    assert plan.level(long.groups[0]) == 2
    assert plan.top >= 5
    # what each takes, if nothing shrank at all
    assert 144 * 128 * 128 + 156 * 1024 * plan.top * 4 < 8 * MEBIBYTE


def test_what_is_too_long_for_single_weights_is_pooled_alone() -> None:
    assert plan_page(make_scene(2048, 12, 12), 2 * MEBIBYTE).top == 0
    assert plan_page(make_scene(40_000), 8 * MEBIBYTE).top > 0
    with pytest.raises(
        ArgumentError, match=r"12 layers of 12 heads, 100,000 x 100,000 each, are too many weights.*attent explore"
    ):
        plan_page(make_scene(100_000, 12, 12), 8 * MEBIBYTE)


def test_measures_beside_weights_take_no_exactness_from_them(translator: Translator) -> None:
    scene = build_scene(translator.map("abcdefgh" * 4, "65432165"))
    assert [group.name for group in scene.all_groups[:2]] == ["cross", "cross.norms"]
    assert fit_measures(scene, 8 * MEBIBYTE) is scene
    weights = sum(len(group.layers) * math.prod(group.shape) for group in scene.groups)
    # room for the weights in full precision, and none for as many norms
    fitted = fit_measures(scene, 1.2 * weights * 4 * BASE64_FACTOR / EXACT_SHARE)
    assert [group.name for group in fitted.all_groups] == [group.name for group in scene.groups]
    assert fitted.notes == (NO_ROOM,)
