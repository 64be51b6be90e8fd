from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from attent.attention import watch as module
from attent.attention.map import AttentionMap
from attent.attention.multihead import MultiHeadAttention
from attent.attention.watch import watch


class Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = MultiHeadAttention(6, 3), MultiHeadAttention(6, 2, normaliser="sigmoid", dropout=0.5)

    def forward(self, features: Tensor) -> Tensor:
        return self.second(self.first(self.first(features)), features[:, :3])


def test_every_call_is_collected_in_order_by_its_path() -> None:
    model = Twice()
    with watch(model) as seen:
        model(torch.randn(2, 5, 6))
    assert list(seen) == ["first", "first#2", "second"]
    assert len(seen) == 3
    assert seen["second"].shape == (2, 2, 5, 3)
    assert repr(seen) == "watch(first: (2, 3, 5, 5), first#2: (2, 3, 5, 5), second: (2, 2, 5, 3))"
    model.first(torch.randn(2, 5, 6))
    assert len(seen) == 3


def test_a_third_and_fourth_call_are_counted_on() -> None:
    attention = MultiHeadAttention(6, 3)
    with watch(nn.Sequential(attention, attention)) as seen:
        for _ in range(4):
            attention(torch.randn(1, 2, 6))
    assert list(seen) == ["0", "0#2", "0#3", "0#4"]


def test_the_maps_are_the_softmax_weights() -> None:
    attention, features = MultiHeadAttention(6, 3), torch.randn(2, 5, 6)
    query, key, value = (
        projection(features).unflatten(-1, (3, 2)).transpose(1, 2)
        for projection in (attention.query_projection, attention.key_projection, attention.value_projection)
    )
    with watch(attention) as seen:
        output = attention(features)
    weights = seen[""].dense()
    torch.testing.assert_close(weights, (query @ key.mT / 2**0.5).softmax(-1))
    merged = (weights @ value).transpose(1, 2).flatten(2)
    torch.testing.assert_close(merged @ attention.output.weight.T + attention.output.bias, output)
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 3, 5))


def test_maps_are_detached_and_the_model_is_as_before() -> None:
    model, features = Twice().eval(), torch.randn(2, 5, 6, requires_grad=True)
    expected = model(features)
    with watch(model) as seen:
        found = model(features)
    assert torch.equal(found, expected)
    found.sum().backward()
    assert features.grad is not None
    assert not any(weights.dense().requires_grad for weights in seen.values())


def test_only_the_watched_part_is_seen_by_each_watcher() -> None:
    model, other = Twice(), MultiHeadAttention(6, 1)
    with watch(model) as outer, watch(model.first) as inner:
        model(other(torch.randn(2, 5, 6)))
        assert module.watched()
    assert list(outer) == ["first", "first#2", "second"]
    assert list(inner) == ["", "#2"]
    assert isinstance(inner["#2"], AttentionMap)
    assert not module.watched()
    assert outer == outer
    assert outer != inner
    assert len({outer, inner, outer}) == 2


def test_it_ends_with_an_error_too() -> None:
    def fail(model: nn.Module) -> None:
        with watch(model):
            model(torch.randn(2, 5, 7))

    with pytest.raises(ValueError, match="features must be"):
        fail(MultiHeadAttention(6, 3))
    assert not module.watched()


def test_nobody_watching_no_map_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(AttentionMap, "of")
    MultiHeadAttention(6, 3)(torch.randn(2, 5, 6))
