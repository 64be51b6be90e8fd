from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import Any

import pytest
import torch
from torch import Tensor

from attent.alignment import forced_decoding as forced_decoding_module
from attent.alignment.aligner import all_selectors, extract_links
from attent.alignment.forced_decoding import AttentionSelector, forced_batches, source_attention
from attent.attention.capture.watch import watch
from attent.errors import ArgumentError
from attent.models.model import EncoderDecoder
from attent.models.rnn import RNN
from attent.models.settings import RnnSettings, TransformerSettings
from attent.models.transformer import Transformer
from attent.ops import packed_linear
from attent.ops.packed_linear import WeightType
from attent.text.batches import ROW_MULTIPLE
from attent.text.tokenizer import BOS

SOURCES = [[4, 5, 6], [], [7, 8, 9, 10, 4], [5], [6, 4] * 9]
TARGETS = [[6, 7], [8], [], [4, 4, 4], [5, 9, 10] * 7]


def make_transformer(**options: Any) -> Transformer:
    settings = TransformerSettings(encoder_layers=1, decoder_layers=2, width=16, feed_forward=17, heads=2, **options)
    return Transformer(settings, 11, 11).eval()


def rnn(attention: str) -> RNN:
    return RNN(RnnSettings.model_validate({"attention": attention, "embedding_width": 5, "width": 6}), 11, 11).eval()


MODELS = {"transformer": make_transformer, "bahdanau": lambda: rnn("bahdanau"), "luong": lambda: rnn("luong")}


@pytest.mark.parametrize("name", MODELS)
def test_neither_neighbours_nor_order_change_more_than_the_last_bits(name: str) -> None:
    """On some processors the last bit of a product depends on the place of its row."""
    model = MODELS[name]()
    joint = source_attention(model, SOURCES, TARGETS)
    reordered = source_attention(model, SOURCES[::-1], TARGETS[::-1])[::-1]
    isolated = [source_attention(model, [source], [target])[0] for source, target in zip(SOURCES, TARGETS, strict=True)]
    torch.testing.assert_close(joint, reordered, rtol=0, atol=1e-6)
    torch.testing.assert_close(joint, isolated, rtol=0, atol=1e-6)


def forced_decoding(
    model: EncoderDecoder[Any], sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]
) -> Iterator[tuple[int, dict[str, Tensor]]]:
    """The attention of each pair without its padding, (H, Tq + 1, Tk) by the name of its layer."""
    for rows, attentions in forced_batches(model, sources, targets):
        for index, row in enumerate(rows.tolist()):
            steps, keys = len(targets[row]) + 1, len(sources[row])
            yield row, {name: weights[index, :, :steps, :keys] for name, weights in attentions.items()}


def test_every_layer_and_head_is_there_with_a_row_for_each_step() -> None:
    model = make_transformer()
    ((row, attentions),) = forced_decoding(model, SOURCES[:1], TARGETS[:1])
    assert (row, list(attentions)) == (0, [f"decoder.layers.{layer}.cross_attention" for layer in (0, 1)])
    assert {tuple(weights.shape) for weights in attentions.values()} == {(2, 3, 3)}
    with torch.no_grad(), watch(model) as captured:
        model.decode(model.encode(torch.tensor(SOURCES[:1]), torch.tensor([3])), torch.tensor([[BOS, 6, 7]]))
    for name, weights in attentions.items():
        torch.testing.assert_close(weights, captured[name].dense()[0])
    maps = source_attention(model, SOURCES, TARGETS)
    assert [tuple(single.shape) for single in maps] == [(2, 3), (1, 0), (0, 5), (3, 1), (21, 18)]
    first, last = attentions.values()
    torch.testing.assert_close(AttentionSelector(layer=0, head=1).of(attentions), first[1, :2])
    torch.testing.assert_close(AttentionSelector(head=0).of(attentions), last[0, :2])
    # what is told of the token read in stands a step later
    torch.testing.assert_close(AttentionSelector(about="read").of(attentions), last.mean(0)[1:])


@pytest.mark.parametrize("name", MODELS)
def test_the_selected_attention_is_that_of_the_whole_model(name: str) -> None:
    """A Transformer computes it alone, without padding of targets; links are the same, bit for bit."""
    model, random = MODELS[name](), Random(0)
    sources, targets = ([random.choices(range(4, 11), k=random.randrange(30)) for _ in range(40)] for _ in range(2))
    whole = dict(forced_decoding(model, sources, targets))
    assert len(whole) == sum(bool(source and target) for source, target in zip(sources, targets, strict=True))
    heads = [len(weights) for weights in next(iter(whole.values())).values()]
    for selector in all_selectors(heads):
        for row, weights in enumerate(source_attention(model, sources, targets, selector)):
            expected = selector.of(whole[row]) if row in whole else torch.zeros(len(targets[row]), len(sources[row]))
            torch.testing.assert_close(weights, expected, rtol=0, atol=1e-6)
            assert extract_links(weights[None])[0] == extract_links(expected[None])[0]


def test_no_layer_beyond_the_selected_one_is_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    model = make_transformer()
    expected = source_attention(model, SOURCES, TARGETS, AttentionSelector(layer=0))
    monkeypatch.setattr(model.decoder.layers[0].cross_attention, "value_projection", None)
    monkeypatch.setattr(model.decoder.layers[1], "self_attention", None)
    monkeypatch.setattr(model, "to_logits", None)
    assert all(map(torch.equal, source_attention(model, SOURCES, TARGETS, AttentionSelector(layer=0)), expected))


@pytest.mark.parametrize("name", ["transformer", "luong"])
def test_threads_share_a_model(name: str) -> None:
    model = MODELS[name]()
    expected = source_attention(model, SOURCES, TARGETS)
    with ThreadPoolExecutor(4) as pool:
        for weights in pool.map(lambda _: source_attention(model, SOURCES, TARGETS), range(8)):
            torch.testing.assert_close(weights, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", ["transformer", "bahdanau"])
def test_long_pairs_are_computed_some_rows_at_a_time(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = MODELS[name]()
    expected = source_attention(model, SOURCES, TARGETS)
    monkeypatch.setattr(forced_decoding_module, "MAX_WEIGHTS", 1000)
    sizes = list[int]()
    of_layer = AttentionSelector.of_layer
    monkeypatch.setattr(
        AttentionSelector, "of_layer", lambda self, weights: sizes.append(weights.numel()) or of_layer(self, weights)
    )
    torch.testing.assert_close(source_attention(model, SOURCES, TARGETS), expected, rtol=0, atol=1e-6)
    assert len(sizes) > 1 and max(sizes) <= 1000


def test_a_pair_that_fills_a_batch_is_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    model, sizes = make_transformer(), list[int]()
    encode = Transformer.encode
    monkeypatch.setattr(
        Transformer, "encode", lambda self, source, lengths: sizes.append(len(source)) or encode(self, source, lengths)
    )
    source_attention(model, [[5] * 2049, [5, 6]], [[4] * 3, [4]])
    assert sorted(sizes) == [1, ROW_MULTIPLE]


def test_in_fewer_bits_attention_is_that_of_the_modules() -> None:
    model = make_transformer()
    before = list(forced_decoding(model, SOURCES, TARGETS))
    packed_linear.set_kind(model, WeightType.INT8)
    assert model.source_attention_layers == 0
    for (_, actual), (_, expected) in zip(forced_decoding(model, SOURCES, TARGETS), before, strict=True):
        assert all(torch.equal(actual[name], weights) for name, weights in expected.items())


def read(model: EncoderDecoder[Any], tokens: list[int]) -> Tensor:
    ((_, attentions),) = forced_decoding(model, [[4, 5, 6, 7]], [tokens])
    return next(iter(attentions.values())).mean(0)


@pytest.mark.parametrize(("name", "knows"), [("bahdanau", False), ("luong", True), ("transformer", True)])
def test_bahdanaus_row_cannot_be_about_the_token_read_in(name: str, knows: bool) -> None:
    # step 2 reads the second token: what it looks at is already fixed in Bahdanau's decoder
    model = MODELS[name]()
    first, second = read(model, [5, 6, 7, 8]), read(model, [5, 10, 7, 8])
    torch.testing.assert_close(first[:2], second[:2])
    assert torch.equal(first[2], second[2]) is not knows
    assert not torch.allclose(first[3], second[3], atol=1e-7)


def test_a_layer_head_or_attention_that_is_not_there() -> None:
    with pytest.raises(ArgumentError, match="head must be from 0 to 1, got -1"):
        source_attention(make_transformer(), SOURCES, TARGETS, AttentionSelector(layer=0, head=-1))
    with pytest.raises(ArgumentError, match="without attention to the source has no alignment"):
        source_attention(rnn("none"), SOURCES, TARGETS)


def test_padding_does_not_outgrow_learnt_positions() -> None:
    model = make_transformer(position="learned", maximum_length=21)
    (weights,) = source_attention(model, [[4] * 21], [[5] * 20])
    assert weights.shape == (20, 21)
