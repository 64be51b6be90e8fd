from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

import attent
from attent.errors import ArgumentError, ShapeError
from attent.views.scene import LayerGroup, LayerWeights, Picture, Scene, Text

WEIGHTS = torch.rand(3, 2, 5).softmax(-1)
TEXTS = {"target": Text(("x", "y")), "source": Text(tuple("abcde"))}


def make_scene(weights: object = WEIGHTS, **changed: object) -> Scene:
    layers = (LayerWeights("decoder.0", weights),)
    group = LayerGroup("cross", "cross-attention", "target", "source", layers, "the token produced")
    return Scene("a title", changed.pop("texts", TEXTS), changed.pop("groups", (group,)), **changed)


def test_a_layer_of_a_map_and_one_of_its_numbers_are_alike() -> None:
    query, key, value = torch.randn(2, 3, 5, 7), torch.randn(2, 3, 11, 7), torch.randn(2, 3, 11, 7)
    _, weights = attent.attend(query, key, value, return_map=True)
    lazy, dense = LayerWeights("a", weights, sequence=1), LayerWeights("a", weights.dense(), sequence=1)
    assert lazy.shape == dense.shape == (3, 5, 11)
    assert lazy.is_distribution
    assert dense.is_distribution
    torch.testing.assert_close(lazy.rows(torch.tensor([4, 1])), dense.rows(torch.tensor([4, 1])))
    torch.testing.assert_close(lazy.rows(torch.tensor([4])), weights.dense()[1][:, [4]])
    # a tensor may have fewer axes
    assert [LayerWeights("a", tensor).shape for tensor in (WEIGHTS, WEIGHTS[0])] == [(3, 2, 5), (1, 2, 5)]
    assert not LayerWeights("a", WEIGHTS + 1).is_distribution


def test_what_is_described_is_json() -> None:
    described = json.loads(json.dumps(make_scene(notes=("One.",)).describe()))
    group = described["groups"][0]
    names = {"name": "cross", "title": "cross-attention", "rows": "target", "columns": "source", "base": "cross"}
    sizes = {"layers": ["decoder.0"], "heads": 3, "height": 2, "width": 5}
    kinds = {"distribution": True, "itself": True, "causal": False, "measure": "weights"}
    assert group == names | sizes | kinds | {"about": "the token produced"}
    assert described["texts"]["target"] == {"labels": ["x", "y"], "direction": "ltr"}
    assert described["notes"] == ["One."]
    assert described["picture"] is None
    right, left = (("القط", "جلس", "."),), (("the", "cat", "القط"), (".", "1"), (), ("猫",))
    assert {Text(labels).direction for labels in right} == {"rtl"}
    assert {Text(labels).direction for labels in left} == {"ltr"}


def test_labels_are_left_out_and_rows_sum_to_one_again() -> None:
    weights = torch.tensor([[[0.5, 0.2, 0.3, 0.0], [1.0, 0.0, 0.0, 0.0], [0.1, 0.1, 0.4, 0.4]]])
    texts = {"target": Text(("x", "y", "</s>")), "source": Text(("<s>", "a", "b", "</s>"))}
    group = LayerGroup("cross", "cross-attention", "target", "source", (LayerWeights("decoder.0", weights),))
    layers = (LayerWeights("decoder.0", 3 * weights),)
    norms = LayerGroup("cross.norms", "norms", "target", "source", layers, measure="norms", base="cross")
    scene = make_scene(texts=texts, groups=(replace(group, measures=(norms,)),), notes=("One.",)).without()
    assert {name: text.labels for name, text in scene.texts.items()} == {"target": ("x", "y"), "source": ("a", "b")}
    (only,) = scene.groups
    rows, norm_rows = (part.layers[0].rows(torch.arange(2)) for part in (only, *only.measures))
    torch.testing.assert_close(rows, torch.tensor([[[0.4, 0.6], [0.0, 0.0]]]))
    torch.testing.assert_close(norm_rows, torch.tensor([[[0.6, 0.9], [0.0, 0.0]]]))
    # the last row and the last column may be of different tokens now
    assert not only.is_self_attention
    note = "Without </s>, <s>; the weights left in a row are divided by their sum."
    assert scene.notes == ("One.", note)
    assert note in scene.describe()["notes"]
    # there is nothing to leave out, or nothing else
    assert scene.without() is scene
    with pytest.raises(ArgumentError, match="no token is left without x, y"):
        scene.without(("x", "y"))


def test_what_is_no_distribution_is_not_divided_and_a_picture_keeps_its_patches() -> None:
    weights, pixels = torch.rand(3, 5, 5) + 1, np.zeros((4, 8, 1), np.uint8)
    group = LayerGroup("self", "self-attention", "tokens", "tokens", (LayerWeights("a", weights),))
    texts = {"tokens": Text(("CLS", *"abcd"))}
    scene = make_scene(texts=texts, groups=(group,), picture=Picture(pixels, (2, 2))).without(())
    torch.testing.assert_close(scene.groups[0].layers[0].rows(torch.arange(4)), weights[:, 1:, 1:])
    assert scene.notes == ("Without CLS.",)
    assert scene.picture is not None
    assert scene.picture.before == 0
    assert scene.groups[0].is_self_attention


def test_what_does_not_fit() -> None:
    with pytest.raises(ShapeError, match="cross-attention has 2 rows, got 1 labels"):
        make_scene(texts={**TEXTS, "target": Text(("x",))})
    with pytest.raises(ArgumentError, match="a text 'source' that does not exist"):
        make_scene(texts={"target": TEXTS["target"]})
    with pytest.raises(ArgumentError, match="unique names"):
        make_scene(groups=make_scene().groups * 2)
    with pytest.raises(ArgumentError, match="no group 'self'; there are cross"):
        make_scene().group("self")
    with pytest.raises(ArgumentError, match="has no layer"):
        LayerGroup("a", "a", "target", "source", ())
    with pytest.raises(ShapeError, match="of one shape"):
        LayerGroup("a", "a", "target", "source", (LayerWeights("1", WEIGHTS), LayerWeights("2", WEIGHTS[:2])))
    pixels = np.zeros((4, 8, 1), np.uint8)
    scene = make_scene(picture=Picture(pixels, (2, 2), "source"))
    assert scene.describe()["picture"] == {"grid": [2, 2], "text": "source", "before": 1, "height": 4, "width": 8}
    with pytest.raises(ShapeError, match="2 x 3 patches behind 1 places"):
        make_scene(picture=Picture(pixels, (2, 3), "source"))
    with pytest.raises(ShapeError, match="must be"):
        Picture(pixels[..., 0], (2, 2), "source")
