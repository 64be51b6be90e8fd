from __future__ import annotations

import torch

from attent.attention.base import LoweredSide
from attent.attention.cache import KeyValueCache
from attent.attention.multihead import MultiHeadAttention
from attent.attention.scores import Gaussian


def cache_of(length: int) -> KeyValueCache:
    side = LoweredSide(torch.randn(2, 3, length, 5), torch.randn(2, 3, length), torch.randn(2, 3, 1, 5))
    return KeyValueCache(side, torch.randn(2, 3, length, 7))


def test_appending_lays_keys_and_values_behind_and_changes_nothing() -> None:
    first, second = cache_of(11), cache_of(2)
    combined = first.append(second.key, second.value)
    assert (first.length, second.length, combined.length) == (11, 2, 13)
    assert torch.equal(combined.key.features[:, :, :11], first.key.features)
    assert torch.equal(combined.key.features[:, :, 11:], second.key.features)
    assert torch.equal(combined.key.bias, torch.cat((first.key.bias, second.key.bias), 2))
    assert torch.equal(combined.value, torch.cat((first.value, second.value), 2))
    assert combined.key.center is first.key.center


def test_a_cache_without_keys_takes_the_origin_of_the_first() -> None:
    attention = MultiHeadAttention(4, 2, score=Gaussian())
    features = torch.randn(3, 5, 4) + 7
    cache = attention.remember(features, attention.remember(features[:, :0]))
    torch.testing.assert_close(attention.recall(features, cache), attention(features))


def test_selecting_takes_sequences_in_order() -> None:
    cache = cache_of(11)
    for rows in (torch.tensor([1, 1, 0]), torch.tensor([False, True])):
        chosen = cache.select(rows)
        assert torch.equal(chosen.value, cache.value[rows])
        for part, whole in zip(chosen.key, cache.key, strict=True):
            assert torch.equal(part, whole[rows])
    bare = KeyValueCache(LoweredSide(cache.key.features), cache.value).select(torch.tensor([1]))
    assert bare.key.bias is bare.key.center is None
    assert bare.length == 11


def test_lengths_in_a_cache_are_each_sequences_own() -> None:
    attention = MultiHeadAttention(4, 2, position="rotary").double()
    features, more = torch.randn(2, 6, 4).double(), torch.randn(2, 1, 4).double()
    lengths = torch.tensor([5, 3])
    written = features.clone()
    for index, length in enumerate(lengths):
        written[index, length] = more[index, 0]
    output = attention.recall(more, attention.remember(written), lengths=lengths + 1)
    for index, length in enumerate(lengths):
        single = attention(torch.cat((features[index : index + 1, :length], more[index : index + 1]), 1))
        torch.testing.assert_close(output[index], single[0, -1:])


def test_keys_are_remembered_exactly_where_lowering_would_round() -> None:
    attention = MultiHeadAttention(8, 2, score="additive", key_value_heads=1).bfloat16()
    features = torch.randn(3, 5, 8).bfloat16()
    cache = attention.remember(features)
    assert cache.key.features.dtype == torch.float32
    assert cache.value.dtype == torch.bfloat16
    # one key side for each head, and values to go with it
    assert cache.key.features.shape[1] == cache.value.shape[1] == 2
    assert torch.equal(attention.recall(features, cache), attention(features))
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(attention.recall(features, attention.remember(features)), attention(features))
