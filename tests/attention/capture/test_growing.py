"""The maps of a decoder's steps share the keys of its cache, show what each step saw, and have statistics."""

from __future__ import annotations

import gc
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import attent
from attent.attention.capture.growing import Beginning
from attent.errors import ArgumentError, StaleMapError

PROMPT, STEPS, HEADS, WIDTH = 40, 25, 2, 8


class Decoder(nn.Module):
    """Self-attention with a cache, by attend or PyTorch's function."""

    def __init__(self, *, is_pytorchs: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.projection = nn.Linear(HEADS * WIDTH, 3 * HEADS * WIDTH)
        self.is_pytorchs, self.cache = is_pytorchs, list[Tensor]()

    def forward(self, features: Tensor) -> Tensor:
        new = self.projection(features).unflatten(-1, (3, HEADS, WIDTH)).permute(2, 0, 3, 1, 4)
        query, *pair = (4 * new[0], new[1].contiguous(), new[2].contiguous())
        if self.cache:
            pair = [torch.cat([old, own], dim=-2) for old, own in zip(self.cache, pair, strict=True)]
        self.cache = pair
        key, value = self.cache
        if self.is_pytorchs:
            return F.scaled_dot_product_attention(query, key, value, is_causal=query.shape[2] > 1)
        return attent.attend(query, key, value, mask="causal")


def storages() -> int:
    """The bytes of all storages of tensors."""
    gc.collect()
    tensors = [item for item in gc.get_objects() if type(item) is Tensor]
    return sum({part.data_ptr(): part.nbytes() for part in (tensor.untyped_storage() for tensor in tensors)}.values())


@torch.no_grad()
def written(decoder: Decoder) -> tuple[attent.watch, Tensor]:
    """The watch of a prompt and steps, and the weights of all rows by the formula."""
    torch.manual_seed(1)
    features = torch.randn(1, PROMPT + STEPS, HEADS * WIDTH)
    with attent.watch(decoder) as seen:
        for part in features.split([PROMPT, *[1] * STEPS], dim=1):
            decoder(part)
    query, key, _ = decoder.projection(features).unflatten(-1, (3, HEADS, WIDTH)).permute(2, 0, 3, 1, 4)
    scores = 4 * query @ key.mT / WIDTH**0.5
    return seen, scores.masked_fill(torch.ones_like(scores).triu(1).bool(), -torch.inf).softmax(-1)


@pytest.mark.parametrize("is_pytorchs", [False, True])
def test_the_steps_of_a_cache_share_its_keys(is_pytorchs: bool) -> None:
    decoder = Decoder(is_pytorchs=is_pytorchs)
    before = storages()
    seen, expected = written(decoder)
    length = PROMPT + STEPS
    # keys and values of the end, queries of each step; without sharing it would be a triangle of keys
    held, cache = storages() - before - expected.nbytes, 2 * 4 * HEADS * WIDTH * length
    assert held < 4 * cache < 2 * 4 * HEADS * WIDTH * STEPS * PROMPT
    assert len(seen) == 1 + STEPS
    torch.testing.assert_close(seen.concatenated("").dense(), expected, atol=1e-6, rtol=0.0)
    for step in (2, STEPS + 1):
        own = seen[f"#{step}"]
        assert own.shape == (1, HEADS, 1, PROMPT + step - 1)
        torch.testing.assert_close(own.dense()[0, :, 0], expected[0, :, PROMPT + step - 2, : PROMPT + step - 1])
        assert own.outputs is not None
        assert own.outputs.value().shape[-2] == PROMPT + step - 1


def test_statistics_of_each_token_written() -> None:
    seen, expected = written(Decoder(is_pytorchs=False))
    (statistics,) = seen.token_statistics(PROMPT).values()
    rows = expected[:, :, PROMPT - 1 :]
    positions = torch.arange(PROMPT + STEPS)
    gaps = (positions[PROMPT - 1 :, None] - positions).abs()
    torch.testing.assert_close(statistics.entropy, torch.special.entr(rows).sum(-1), atol=1e-5, rtol=0.0)
    torch.testing.assert_close(statistics.distance, (rows * gaps).sum(-1), atol=1e-4, rtol=0.0)
    torch.testing.assert_close(statistics.first, rows[..., 0], atol=1e-6, rtol=0.0)
    torch.testing.assert_close(statistics.prompt, rows[..., :PROMPT].sum(-1), atol=1e-5, rtol=0.0)
    assert not statistics.sink.any()
    for wrong in (0, PROMPT + STEPS + 1):
        with pytest.raises(ArgumentError, match=f"prompt must be from 1 to the {PROMPT + STEPS} rows of , got {wrong}"):
            seen.token_statistics(wrong)


def test_what_a_sink_takes_is_told_of_each_token() -> None:
    query, key, sink = torch.randn(1, HEADS, 5, WIDTH), torch.randn(1, HEADS, 5, WIDTH), torch.tensor([0.5, -1.0])
    model = nn.Identity()
    model.forward = lambda features: attent.attend(features, key, key, mask="causal", sink=sink)
    with attent.watch(model) as seen:
        model(query)
    (statistics,) = seen.token_statistics(2).values()
    rows = seen[""].dense()[:, :, 1:]
    torch.testing.assert_close(statistics.sink, 1 - rows.sum(-1), atol=1e-6, rtol=0.0)
    assert (statistics.sink > 0.01).all()
    torch.testing.assert_close(statistics.entropy, torch.special.entr(rows).sum(-1), atol=1e-5, rtol=0.0)


def test_a_cache_that_is_reordered_is_kept_apart() -> None:
    decoder = Decoder(is_pytorchs=True)
    torch.manual_seed(2)
    features = torch.randn(2, 6, HEADS * WIDTH)
    with torch.no_grad(), attent.watch(decoder) as seen:
        decoder(features[:, :5])
        kept = decoder.cache[0].clone()
        decoder.cache = [part.flip(0) for part in decoder.cache]
        decoder(features[:, 5:])
    assert torch.equal(seen[""].key.features, kept)
    assert torch.equal(seen["#2"].key.features[:, :, :5], kept.flip(0))


def test_a_cache_that_is_overwritten_is_stale() -> None:
    decoder = Decoder(is_pytorchs=True)
    with torch.no_grad(), attent.watch(decoder) as seen:
        decoder(torch.randn(1, 4, HEADS * WIDTH))
        decoder(torch.randn(1, 1, HEADS * WIDTH))
        decoder.cache[0].zero_()
    with pytest.raises(StaleMapError):
        seen[""].dense()


def test_two_continuations_of_one_beginning() -> None:
    tensor, ends = torch.randn(1, 2, 3, 4), torch.randn(2, 1, 2, 1, 4)
    model: Any = nn.Identity()
    with attent.watch(model):
        beginning = Beginning(tensor)
        both = [torch.cat([tensor, end], -2) for end in ends]
        others = [Beginning(part) for part in both]
        torch.cat((tensor, tensor), 1)
    assert torch.equal(beginning.get(), tensor)
    assert all(torch.equal(other.get(), part) for other, part in zip(others, both, strict=True))
