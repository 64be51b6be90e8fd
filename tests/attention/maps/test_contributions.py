from __future__ import annotations

import pytest
import torch

from attent.attention.attend import attend
from attent.attention.maps import tiles as tile_stream
from attent.attention.maps.attention_map import AttentionMap
from attent.attention.maps.contributions import HeadOutputs
from attent.attention.masks.causal import Causal
from attent.attention.weightings.gaussian_window import GaussianWindow
from attent.errors import ArgumentError

QUERY, KEY, VALUE = torch.randn(2, 6, 5, 4), torch.randn(2, 3, 7, 4), torch.randn(2, 3, 7, 3)


def grouped_map(**options: object) -> AttentionMap:
    """The map of six query heads that share three key heads, with its values and a projection to two features."""
    _, weights = attend(QUERY, KEY, VALUE, return_map=True, **options)  # pyright: ignore[reportArgumentType, reportCallIssue]
    weights.outputs = HeadOutputs(lambda: VALUE, projection=lambda: torch.ones(2, 18))
    return weights


def test_heads_that_share_values() -> None:
    # the projection sums a head's features into two outputs
    norms = VALUE.sum(-1).abs() * 2**0.5
    weights = grouped_map()
    torch.testing.assert_close(weights.norms().dense(), weights.dense() * norms.repeat_interleave(2, 1)[:, :, None])


def test_a_weighting_of_the_call_stays() -> None:
    window = GaussianWindow(torch.tensor([[0.0, 1.0, 2.0, 3.0, 4.0]]), 1.5)
    weights, plain = grouped_map(weighting=window), grouped_map()
    ratio = weights.dense() / plain.dense()
    torch.testing.assert_close(weights.norms().dense(), plain.norms().dense() * ratio)


@pytest.mark.parametrize("score", ["scaled_dot", "cosine"])
def test_gradients_by_tiles_are_those_of_all_pairs(score: str, monkeypatch: pytest.MonkeyPatch) -> None:
    weights, gradient = grouped_map(score=score, mask=Causal()), torch.randn(2, 6, 5, 3)
    expected = weights.dense() * (gradient @ VALUE.repeat_interleave(2, 1).mT)
    monkeypatch.setattr(tile_stream, "CPU_TILE", 7)
    monkeypatch.setattr(tile_stream, "GPU_TILE", 7)
    monkeypatch.setattr(tile_stream, "MIN_ROWS", 2)
    derived = weights.gradients(gradient)
    torch.testing.assert_close(derived.dense(), expected)
    torch.testing.assert_close(derived.received(), expected.sum(-2))
    # a hidden pair has 0, which is more than a negative number
    assert torch.equal(derived.argmax(), expected.argmax(-1))
    torch.testing.assert_close(derived.pooled(1, 7, "max")[:, :, 0], expected.amax(-2))
    torch.testing.assert_close(derived.keep()[..., 2, :], expected[..., 2, :])


def test_a_map_alone_knows_no_projection() -> None:
    weights = grouped_map()
    weights.outputs = HeadOutputs(lambda: VALUE)
    with pytest.raises(ArgumentError, match=r"^norms need the output projection, which attent\.watch finds in a"):
        weights.norms()
