from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import attent
from attent.attention.maps.attention_map import AttentionMap
from attent.errors import ArgumentError, ShapeError
from attent.tasks.translation.translator import Translator
from attent.views.build_scene import SceneLabels, build_scene, forward_passes, kinds, patch_names, select_pass
from attent.views.scene import PRODUCED, READ, Picture


def seen_of(layers: int = 2, length: int = 5, batch: int = 1) -> attent.watch:
    layer = nn.TransformerEncoderLayer(12, 3, 16, batch_first=True)
    model = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False).eval()
    with torch.no_grad(), attent.watch(model) as captured:
        model(torch.randn(batch, length, 12))
    return captured


def test_a_models_layers_are_one_group() -> None:
    captured = seen_of()
    scene = build_scene(captured, "abcde", title="an encoder")
    (group,) = scene.groups
    assert (group.name, group.title, group.about) == ("self", "self-attention", READ)
    assert [layer.name for layer in group.layers] == list(captured)
    torch.testing.assert_close(group.layers[1].rows(torch.arange(5)), captured["layers.1.self_attn"].dense()[0])
    assert scene.title == "an encoder"
    pictured = build_scene(captured, picture=Picture(np.zeros((4, 4, 1), np.uint8), (2, 2), "tokens"))
    assert pictured.texts["tokens"].labels[:2] == ("CLS", "patch 1,1")


def test_an_encoder_decoder_written_by_steps() -> None:
    model = nn.Transformer(12, 2, 2, 2, 16, batch_first=True).eval()
    with torch.no_grad(), attent.watch(model) as captured:
        memory = model.encoder(torch.randn(1, 4, 12))
        for length in (1, 2, 3):
            model.decoder(torch.randn(1, length, 12), memory)
    # without a cache the last call has all rows
    scene = build_scene(captured, "abcd", ["<s>", "x", "y", "z"])
    shapes = {group.name: group.shape for group in scene.groups}
    assert shapes == {"cross": (2, 3, 4), "encoder": (2, 4, 4), "decoder": (2, 3, 3)}
    assert scene.texts["target"].labels == ("x", "y", "z")
    assert scene.notes == ("The model ran 3 times; the last is shown.",)


def test_layers_of_different_sizes_are_groups_of_their_own() -> None:
    weights = torch.rand(3, 4).softmax(-1)
    (group,) = build_scene(weights).groups
    assert (group.name, group.shape, group.is_self_attention) == ("cross", (1, 3, 4), False)
    assert build_scene(weights).texts["source"].labels == ("0", "1", "2", "3")
    _, small = attent.attend(*torch.randn(3, 1, 2, 3, 4), return_map=True)
    _, large = attent.attend(*torch.randn(3, 1, 2, 5, 4), return_map=True)
    scene = build_scene({"blocks.0.attn": large, "blocks.1.attn": large, "blocks.2.attn": small}, "abcde")
    assert [(group.name, len(group.layers)) for group in scene.groups] == [("self-1", 2), ("self-2", 1)]
    assert [group.title for group in scene.groups] == ["self-attention (blocks.*.attn)"] * 2
    assert scene.texts[scene.groups[1].rows].labels == ("0", "1", "2")


@pytest.mark.parametrize("queries", [3, 4])
def test_an_alignment_of_two_texts_says_what_a_row_is_about(queries: int) -> None:
    weights, targets = torch.rand(queries, 4).softmax(-1), "wxyz"[:queries]
    scene = build_scene(weights, "abcd", targets, about="produced")
    (group,) = scene.groups
    assert (group.title, group.about) == ("cross-attention", PRODUCED)
    assert (scene.texts[group.rows].labels, scene.texts[group.columns].labels) == (tuple(targets), tuple("abcd"))
    assert build_scene(weights, "abcd", targets).groups[0].about == READ
    read = build_scene(weights, "abcd", ["<s>", *targets], about="read")
    assert read.texts[read.groups[0].rows].labels == ("<s>", *targets[:-1])


@pytest.mark.parametrize("kind", [tuple, list])
def test_a_tensor_for_each_layer(kind: type) -> None:
    layers = kind(torch.rand(2, 3, 5, 5).softmax(-1) for _ in range(2))
    scene = build_scene(layers, "abcde", sequence=1)
    assert [(group.name, group.shape, len(group.layers)) for group in scene.groups] == [("self", (3, 5, 5), 2)]
    torch.testing.assert_close(scene.groups[0].layers[1].rows(torch.arange(5)), layers[1][1])
    assert scene.texts["tokens"].labels == tuple("abcde")
    (cross,) = build_scene(kind(layer[:, :, :4] for layer in layers)).groups
    assert (cross.name, cross.shape) == ("cross", (3, 4, 5))


@pytest.mark.parametrize(
    ("maps", "culprit"),
    [
        (3, "int as 'attention'"),
        ("abc", "str as 'attention'"),
        ((None, None), "NoneType as 'layers.0'"),
        ({"a": [1]}, "list as 'a'"),
    ],
)
def test_what_is_not_attention_is_named(maps: object, culprit: str) -> None:
    with pytest.raises(ArgumentError, match=f"attention to show must be a map, .*, got {culprit}$"):
        build_scene(maps)


def test_one_sequence_of_a_batch() -> None:
    captured = seen_of(batch=3)
    scene = build_scene(captured, sequence=2)
    rows = scene.groups[0].layers[0].rows(torch.arange(5))
    torch.testing.assert_close(rows, captured["layers.0.self_attn"].dense()[2])
    with pytest.raises(ArgumentError, match="sequence must be from 0 to 2, got 3"):
        build_scene(captured, sequence=3)


def test_what_cannot_be_shown() -> None:
    model = nn.Linear(3, 3)
    with attent.watch(model) as captured:
        model(torch.randn(1, 3))
    for maps, message in (
        (captured, "no attention to show: Linear: nothing was seen"),
        ({}, "no map was given"),
        (torch.zeros(0, 0), "has 0 queries and 0 keys"),
    ):
        with pytest.raises(ArgumentError, match=message):
            build_scene(maps)
    with pytest.raises(ShapeError, match="must be"):
        build_scene(torch.zeros(3))
    with pytest.raises(ShapeError, match="there are 2 labels in tokens, and the maps have 5 places"):
        build_scene(seen_of(), "ab")


def weights(queries: int, keys: int, heads: int = 2) -> AttentionMap:
    query, key = torch.randn(1, heads, queries, 3), torch.randn(1, heads, keys, 3)
    return attent.attend(query, key, key, return_map=True)[1]


def named(*shapes: tuple[int, int]) -> dict[str, AttentionMap]:
    return {"a" if not number else f"a#{number + 1}": weights(*shape) for number, shape in enumerate(shapes)}


@pytest.mark.parametrize(
    ("calls", "joined"),
    [
        ([(3, 3), (1, 4), (1, 5)], [(5, 5)]),  # a cache grows
        ([(1, 7), (1, 7), (1, 7)], [(3, 7)]),  # another text is looked at, a step at a time
        ([(3, 3), (3, 3)], [(3, 3), (3, 3)]),  # read twice
        ([(3, 3), (4, 4)], [(3, 3), (4, 4)]),  # written without a cache
        ([(3, 3), (1, 4), (3, 3), (1, 4), (1, 5)], [(4, 4), (5, 5)]),  # written twice
    ],
)
def test_calls_that_continue_one_another_are_one(calls: list[tuple[int, int]], joined: list[tuple[int, int]]) -> None:
    assert [result.shape[2:] for result in forward_passes(named(*calls))["a"]] == joined


def test_one_pass_is_chosen_whose_rows_are_those_of_the_calls() -> None:
    maps = named((3, 3), (1, 4), (5, 5))
    passes = forward_passes(maps)
    first, last = select_pass(passes, 0)["a"], select_pass(passes, -1)["a"]
    torch.testing.assert_close(first.dense()[:, :, :3, :3], maps["a"].dense())
    torch.testing.assert_close(first.dense()[:, :, 3:], maps["a#2"].dense())
    assert last.shape[2:] == (5, 5)
    with pytest.raises(ArgumentError, match="a ran 2 times, numbered from 0, got 2"):
        select_pass(passes, 2)
    # a sharp in a name is no call
    assert list(forward_passes({"a#2": weights(2, 2), "b": weights(2, 2)})) == ["a#2", "b"]


def test_norms_and_gradients_come_along_where_they_are_known(translator: Translator) -> None:
    scene = build_scene(translator.map("abc", "65", gradients=True))
    for group in scene.groups:
        assert [measure.name for measure in group.measures] == [f"{group.name}.norms", f"{group.name}.gradients"]
        for measure in group.measures:
            assert (measure.base, measure.shape, measure.rows) == (group.name, group.shape, group.rows)
            assert not measure.is_distribution
    layer = scene.group("cross.gradients").layers[0]
    assert bool((layer.rows(torch.arange(3)) < 0).any())
    assert scene.describe()["groups"][1]["measure"] == "norms"
    assert [group.name for group in build_scene(torch.rand(2, 3, 3).softmax(-1), "abc").all_groups] == ["self"]


def test_gradients_are_those_of_the_pass_that_is_shown() -> None:
    model = nn.ModuleDict({"self": attent.MultiHeadAttention(6, 2)})
    with attent.watch(model, gradients=True) as captured:
        outputs = [model["self"](torch.randn(1, 3, 6)) for _ in range(2)]
    gradients = captured.gradients(outputs[0].sum() + outputs[1].square().sum())
    for call, path in ((0, "self"), (1, "self#2")):
        (group,) = build_scene(captured, "abc", call=call, gradients=gradients).groups
        assert [measure.measure for measure in group.measures] == ["norms", "gradients"]
        torch.testing.assert_close(group.measures[1].layers[0].rows(torch.arange(3)), gradients[path].dense()[0])


@pytest.mark.parametrize(
    ("paths", "actual"),
    [
        (["encoder.layer.*.attention.self"], ["self"]),
        (["transformer.h.*.attn"], ["self"]),
        (["encoder.layers.*.self_attention", "decoder.layers.*.self_attention", "decoder.layers.*.cross_attention"], 3),
        ([f"model.{name}_attn" for name in ("encoder.0.self", "decoder.0.self", "decoder.0.encoder")], 3),
        ([f"{name}Attention" for name in ("encoder.0.Self", "decoder.0.Self", "decoder.0.EncDec")], 3),
        (["encoder.layers.*.self_attn", "decoder.layers.*.self_attn", "decoder.layers.*.multihead_attn"], 3),
        # the layers of a decoder alone, and a head that pools what an encoder of another name reads
        (["layers.*.self_attn", "layers.*.cross_attn"], ["decoder", "cross"]),
        (["reader.layers.*.self_attn", "cross"], ["self", "cross"]),
    ],
)
def test_a_path_says_what_attends_to_what(paths: list[str], actual: object) -> None:
    assert kinds(paths) == (["encoder", "decoder", "cross"] if actual == 3 else actual)


def test_text_that_is_read_has_no_further_label() -> None:
    for kind, spare in (("encoder", False), ("self", True)):
        labels = SceneLabels("abcd", None)
        labels.of_shape(kind, 3, 3)
        if spare:
            labels.check()
        else:
            with pytest.raises(ShapeError, match="there are 4 labels in tokens"):
                labels.check()


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
    labels = SceneLabels("ab", ["<s>", "x", "y"])
    assert labels.of_shape("cross", 2, 2) == ("target", "source", PRODUCED)
    assert labels.of_shape("decoder", 2, 2) == ("target", "given", PRODUCED)
    assert labels.of_shape("encoder", 2, 2) == ("source", "source", READ)
    texts = {name: text.labels for name, text in labels.texts.items()}
    assert texts == {"target": ("x", "y"), "source": ("a", "b"), "given": ("<s>", "x")}
    labels = SceneLabels(None, ["<s>", "x"])
    assert labels.of_shape("cross", 2, 3) == ("given", "source", READ)
    assert labels.texts["source"].labels == ("0", "1", "2")
    # a decoder alone
    assert SceneLabels("abc", None).of_shape("self", 2, 2) == ("tokens", "tokens", READ)
    # texts of one name are kept apart
    labels = SceneLabels(None, None)
    names = [labels.of_shape("self", length, length)[0] for length in (2, 3, 2)]
    assert names == ["tokens", "tokens-2", "tokens"]
    picture = Picture(np.zeros((2, 2, 3)), (1, 2), "tokens")
    assert patch_names(picture) == ["CLS", "patch 1,1", "patch 1,2"]
    assert SceneLabels(None, None, picture).of_shape("self", 3, 3) == ("tokens", "tokens", READ)
