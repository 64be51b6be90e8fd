from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from attent.attention import attend, prepare
from attent.attention.backends import sdpa, select
from attent.attention.base import DotScore, LoweredSide
from attent.attention.masks import Causal
from attent.attention.positions import Alibi, Rotary
from attent.attention.scores import Additive, Cosine, Gaussian, General, ScaledDot

dice = torch.Generator().manual_seed(1)
QUERY, KEY, VALUE = (torch.randn(2, 3, *shape, generator=dice) for shape in ((5, 4), (7, 4), (7, 11)))


def test_why_not() -> None:
    for arguments, reason in (
        ({"score": Additive(4, 4, 5)}, "score Additive has no dot form"),
        ({"score": lambda query, key: query @ key.mT}, "score Own has no dot form"),
        ({"normalizer": "sparsemax"}, "its normalizer is softmax, not Sparsemax"),
        ({"soft_cap": 2.0}, "it has no soft cap"),
        ({"dropout": 0.5, "seed": 1}, "its dropout is not a function of (seed, b, h, i, j)"),
        ({"position": Alibi()}, "it has no position bias, which Alibi adds"),
        ({"bias": torch.zeros(5, 7).double()}, "it would round the bias from torch.float64 to torch.float32"),
        ({}, None),
        ({"position": Rotary()}, None),
        ({"bias": torch.zeros(5, 7), "mask": "causal"}, None),
    ):
        assert sdpa.unsupported(prepare(QUERY, KEY, VALUE, **arguments).call) == reason
    # in 16 bits it takes what lowering does not round
    tensors = [tensor.bfloat16() for tensor in (QUERY, KEY, VALUE)]
    reason = "the lowered form of Cosine would be rounded to torch.bfloat16"
    assert sdpa.unsupported(prepare(*tensors, score=Cosine()).call) == reason
    assert sdpa.unsupported(prepare(*tensors, score="dot").call) is None


@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize(
    ("start", "score"),
    [
        (None, ScaledDot()),
        (0, Gaussian(0.7)),
        (1, General(4, 4, heads=3)),
        (6, Cosine(0.2)),
        (9, Gaussian(0.7)),
        (-2, ScaledDot()),
        (torch.tensor([1, 4]), Gaussian(0.7)),
    ],
    ids=str,
)
def test_causal_by_position_wherever_the_queries_stand(start: Any, score: Any, swapped: bool) -> None:
    query, key, value = (KEY, QUERY, QUERY) if swapped else (QUERY, KEY, VALUE)
    arguments: dict[str, Any] = {"score": score, "mask": "causal", "query_start": start}
    expected = attend(query.double(), key.double(), value.double(), **arguments, implementation="reference")
    output = attend(query, key, value, **arguments, implementation="sdpa")
    torch.testing.assert_close(output.double(), expected, rtol=1e-5, atol=1e-5)


def test_a_causal_call_needs_no_table(monkeypatch: pytest.MonkeyPatch) -> None:
    requests: list[tuple[bool, bool]] = []
    original = F.scaled_dot_product_attention

    def recording(*tensors: Tensor, attn_mask: Any, is_causal: bool, scale: float) -> Tensor:
        requests.append((attn_mask is not None, is_causal))
        return original(*tensors, attn_mask=attn_mask, is_causal=is_causal, scale=scale)

    monkeypatch.setattr(F, "scaled_dot_product_attention", recording)
    attend(KEY, KEY, KEY, mask="causal", implementation="sdpa")
    attend(QUERY[:, :, :1], KEY, VALUE, mask="causal", implementation="sdpa")
    attend(QUERY, KEY, VALUE, mask=Causal(), implementation="sdpa")
    assert requests == [(False, True), (False, False), (True, False)]


def test_keys_behind_the_last_query_cannot_leak() -> None:
    spoilt = KEY.clone()
    spoilt[:, :, 5:] = torch.nan
    arguments: dict[str, Any] = {"score": Gaussian(), "mask": "causal", "query_start": 0, "implementation": "sdpa"}
    assert torch.equal(attend(QUERY, spoilt, VALUE, **arguments), attend(QUERY, KEY, VALUE, **arguments))


def test_a_key_bias_keeps_its_gradient() -> None:
    leaves = [tensor.double().requires_grad_() for tensor in (QUERY, KEY, VALUE)]
    score = Gaussian(torch.nn.Parameter(torch.rand(4).double() + 0.5))
    actual, expected = (
        torch.autograd.grad(attend(*leaves, score=score, implementation=name).square().sum(), [*leaves, score.sigma])
        for name in ("sdpa", "reference")
    )
    torch.testing.assert_close(actual, expected)


class Biased(DotScore):
    """Half the product, plus each side's first feature."""

    def scale(self, width: int) -> float:
        return 0.5

    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        return self.score_lowered(self.lower_query(query), self.lower_key(key))

    def lower_query(self, query: Tensor, center: Tensor | None = None) -> LoweredSide:
        return LoweredSide(query, query[..., 0])

    def lower_key(self, key: Tensor, center: Tensor | None = None) -> LoweredSide:
        return LoweredSide(key, key[..., 0])


def test_biases_stand_beside_the_scale() -> None:
    output = attend(QUERY, KEY, VALUE, score=Biased(), implementation="sdpa")
    torch.testing.assert_close(output, (QUERY @ KEY.mT / 2 + KEY[..., None, :, 0]).softmax(-1) @ VALUE)


@pytest.mark.parametrize("keys", [7, select.SIXTEEN_BIT_GRADIENTS])
@pytest.mark.parametrize("has_bias", [False, True])
def test_gradients_in_16_bits_are_those_in_32_rounded_once(keys: int, has_bias: bool) -> None:
    sides = QUERY, KEY[:, :, :1].expand(2, 3, keys, 4) + 1, VALUE[:, :, :1].expand(2, 3, keys, 11)
    results = []
    bias = torch.linspace(-1, 1, 7).bfloat16().repeat(keys // 7 + 1)[None, :keys] if has_bias else None
    for dtype in (torch.bfloat16, torch.float64):
        leaves = [tensor.bfloat16().to(dtype).requires_grad_() for tensor in sides]
        context = attend(*leaves, bias=None if bias is None else bias.to(dtype), implementation="sdpa")
        assert context.dtype == dtype
        gradients = torch.autograd.grad(context.square().sum(), leaves)
        results.append([tensor.double() for tensor in (context, *gradients)])
    torch.testing.assert_close(results[0][0], results[1][0], atol=2e-2, rtol=2e-2)
    torch.testing.assert_close(results[0][1:], results[1][1:], atol=3e-2, rtol=3e-2)
