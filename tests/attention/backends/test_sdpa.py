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


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
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
    ],
)
def test_why_not(arguments: dict[str, Any], reason: str | None) -> None:
    assert sdpa.unsupported(prepare(QUERY, KEY, VALUE, **arguments).call) == reason


def test_in_16_bits_it_takes_what_lowering_does_not_round() -> None:
    tensors = [tensor.bfloat16() for tensor in (QUERY, KEY, VALUE)]
    reason = "the lowered form of Cosine would be rounded to torch.bfloat16"
    assert sdpa.unsupported(prepare(*tensors, score=Cosine()).call) == reason
    assert sdpa.unsupported(prepare(*tensors, score="dot").call) is None


STARTS = [None, 0, 1, 6, 9, -2, torch.tensor([1, 4])]


@pytest.mark.parametrize(
    "score", [ScaledDot(), Gaussian(0.7), General(4, 4, heads=3), Cosine(0.2)], ids=lambda score: type(score).__name__
)
@pytest.mark.parametrize("start", STARTS, ids=str)
@pytest.mark.parametrize("swapped", [False, True])
def test_causal_by_position_wherever_the_queries_stand(score: Any, start: Any, swapped: bool) -> None:
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
    output = attend(QUERY, spoilt, VALUE, score=Gaussian(), mask="causal", query_start=0, implementation="sdpa")
    assert torch.equal(
        output, attend(QUERY, KEY, VALUE, score=Gaussian(), mask="causal", query_start=0, implementation="sdpa")
    )


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
@pytest.mark.parametrize("bias", [None, torch.linspace(-1, 1, 7).bfloat16()])
def test_gradients_in_16_bits_are_those_in_32_rounded_once(keys: int, bias: Tensor | None) -> None:
    tensors = [
        tensor.bfloat16().requires_grad_()
        for tensor in (QUERY, KEY[:, :, :1].expand(2, 3, keys, 4) + 1, VALUE[:, :, :1].expand(2, 3, keys, 11))
    ]
    exact = [tensor.detach().double().requires_grad_() for tensor in tensors]
    biases = (
        [None, None] if bias is None else [wide.repeat(keys // 7 + 1)[None, :keys] for wide in (bias, bias.double())]
    )
    results = [
        attend(*inputs, bias=b, implementation="sdpa") for inputs, b in zip((tensors, exact), biases, strict=True)
    ]
    assert results[0].dtype == torch.bfloat16
    torch.testing.assert_close(results[0].double(), results[1], atol=2e-2, rtol=2e-2)
    gradients = [
        torch.autograd.grad(result.square().sum(), inputs)
        for result, inputs in zip(results, (tensors, exact), strict=True)
    ]
    for actual, expected in zip(*gradients, strict=True):
        torch.testing.assert_close(actual.double(), expected, atol=3e-2, rtol=3e-2)
