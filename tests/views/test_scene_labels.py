from __future__ import annotations

import numpy as np
import pytest

from attent.errors import ShapeError
from attent.views.build_scene import SceneLabels, kinds, patch_names
from attent.views.scene import PRODUCED, READ, Picture


@pytest.mark.parametrize(
    ("paths", "actual"),
    [
        (["encoder.layer.*.attention.self"], ["self"]),
        (["transformer.h.*.attn"], ["self"]),
        (["encoder.layers.*.self_attention", "decoder.layers.*.self_attention", "decoder.layers.*.cross_attention"], 3),
        ([f"model.{name}_attn" for name in ("encoder.0.self", "decoder.0.self", "decoder.0.encoder")], 3),
        ([f"{name}Attention" for name in ("encoder.0.Self", "decoder.0.Self", "decoder.0.EncDec")], 3),
        (["encoder.layers.*.self_attn", "decoder.layers.*.self_attn", "decoder.layers.*.multihead_attn"], 3),
    ],
)
def test_a_path_says_what_attends_to_what(paths: list[str], actual: object) -> None:
    assert kinds(paths) == (["encoder", "decoder", "cross"] if actual == 3 else actual)


def test_one_label_more_is_what_was_written_last() -> None:
    labels = SceneLabels("ab", ["<s>", "x", "y"])
    assert labels.of_shape("cross", 2, 2) == ("target", "source", PRODUCED)
    assert labels.of_shape("decoder", 2, 2) == ("target", "given", PRODUCED)
    assert labels.of_shape("encoder", 2, 2) == ("source", "source", READ)
    assert {name: text.labels for name, text in labels.texts.items()} == {
        "target": ("x", "y"),
        "source": ("a", "b"),
        "given": ("<s>", "x"),
    }


def test_as_many_labels_as_rows_are_what_was_read_in() -> None:
    labels = SceneLabels(None, ["<s>", "x"])
    assert labels.of_shape("cross", 2, 3) == ("given", "source", READ)
    assert labels.texts["source"].labels == ("0", "1", "2")
    # a decoder alone
    assert SceneLabels("abc", None).of_shape("self", 2, 2) == ("tokens", "tokens", READ)


def test_texts_of_one_name_are_kept_apart() -> None:
    labels = SceneLabels(None, None)
    assert labels.of_shape("self", 2, 2)[:2] == ("tokens", "tokens")
    assert labels.of_shape("self", 3, 3)[:2] == ("tokens-2", "tokens-2")
    assert labels.of_shape("self", 2, 2)[:2] == ("tokens", "tokens")


def test_labels_must_fit_somewhere() -> None:
    labels = SceneLabels("abcd", None)
    labels.of_shape("self", 2, 2)
    with pytest.raises(ShapeError, match="there are 4 labels in tokens, and the maps have 2 places"):
        labels.check()
    labels.of_shape("self", 4, 4)
    labels.check()
    labels = SceneLabels("a", None)
    labels.of_shape("self", 3, 3)
    with pytest.raises(ShapeError, match="there is 1 label in tokens, and the maps have 3 places"):
        labels.check()


def test_patches_have_names() -> None:
    picture = Picture(np.zeros((2, 2, 3)), (1, 2), "tokens")
    assert patch_names(picture) == ["CLS", "patch 1,1", "patch 1,2"]
    assert SceneLabels(None, None, picture).of_shape("self", 3, 3) == ("tokens", "tokens", READ)
