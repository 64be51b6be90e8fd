from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from attent.attention import attend, explain
from attent.attention.backends import bands
from attent.attention.masks import Causal, Documents, Padding, Window
from attent.attention.positions import Alibi
from attent.attention.scores import Additive, Concat
from attent.ops import native

SCORES = {"additive": Additive(5, 5, 7), "additive by head": Additive(5, 5, 7, heads=3), "concat": Concat(5, 5, 7)}
CASES: list[dict[str, Any]] = [
    {},
    {"mask": "causal"},
    {"mask": Window(3, 1)},
    {"mask": Documents(torch.tensor([[0, 0, 1, 1, 1, 2, 2, 2, 2, 3, 3]])) & Causal(), "square": True},
    {"lengths": torch.tensor([13, 4])},
    {"mask": Padding(torch.tensor([13, 0])), "normalizer": "sparsemax"},
    {"soft_cap": 2.0, "normalizer": "sigmoid"},
    {"position": Alibi(), "mask": "causal", "dropout": 0.3, "seed": 5},
    {"bias": torch.linspace(-2, 1, 13)[None], "normalizer": "entmax15"},
]


def outcome(dtype: torch.dtype, score: Any, case: dict[str, Any], implementation: str) -> list[Tensor]:
    torch.manual_seed(7)
    case = dict(case)
    keys = 11 if case.pop("square", False) else 13
    tensors = [torch.randn(2, 3, length, 5).to(dtype).requires_grad_() for length in (11, keys, keys)]
    score = score.to(dtype)
    bias = {"bias": case["bias"].to(dtype)} if "bias" in case else {}
    context = attend(*tensors, score=score, **(case | bias), implementation=implementation)
    return [context.detach(), *torch.autograd.grad(context.square().sum(), [*tensors, *score.parameters()])]


@pytest.mark.parametrize("name", SCORES)
@pytest.mark.parametrize("number", range(len(CASES)))
def test_it_is_the_formula(name: str, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    position = number + [*SCORES].index(name)
    if position % 2:
        monkeypatch.setattr(native, "library", lambda: None)
    elif native.library() is None:
        pytest.skip("no extension: attent was installed without a compiler")
    score, case = SCORES[name], CASES[number]
    exact = outcome(torch.float64, score, case, "reference")
    plain = outcome(torch.float32, score, case, "reference")
    # in one tile or several, with the extension and without
    monkeypatch.setattr(bands, "TILE", (200, bands.TILE)[(position + (name == "concat")) % 2])
    for actual, baseline, right in zip(outcome(torch.float32, score, case, "tanh"), plain, exact, strict=True):
        allowed = 3 * (baseline.double() - right).abs().max() + 2e-6 * right.abs().max() + 1e-6
        assert (actual.double() - right).abs().max() <= allowed


def test_keys_that_came_lowered_from_a_cache_serve() -> None:
    score = Additive(5, 5, 7, heads=3)
    query, key, value = (torch.randn(2, 3, length, 5) for length in (1, 13, 13))
    lowered = score.lower_key(key)
    output = attend(query, lowered, value, score=score, implementation="tanh")  # pyright: ignore[reportCallIssue]
    torch.testing.assert_close(output, attend(query, key, value, score=score, implementation="reference"))


def test_in_16_bits_scores_stay_in_32() -> None:
    score, tensors = Additive(5, 5, 7), [torch.randn(2, 3, length, 5).bfloat16() for length in (11, 13, 13)]
    assert explain(*tensors, score=score).chosen == "tanh"
    assert explain(*tensors, score="gaussian").reasons["tanh"] == "score Gaussian has no tanh form"
    output = attend(*tensors, score=score.bfloat16(), implementation="tanh")
    assert output.dtype == torch.bfloat16
    torch.testing.assert_close(output, attend(*tensors, score=score, implementation="reference"), atol=1e-2, rtol=1e-2)
