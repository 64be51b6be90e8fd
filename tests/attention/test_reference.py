from __future__ import annotations

import pytest
import torch
from torch import Tensor

from attent.attention import AttentionMap, attend, prepare, reference
from attent.attention.normalizers import NORMALIZERS, TopK
from attent.attention.positions import Alibi
from attent.attention.scores import SCORES, Gaussian
from attent.errors import ImplementationError


def test_one_number_by_hand() -> None:
    query, key = torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0, 1.0], [0.0, 1.0]])
    value = torch.tensor([[10.0], [20.0]])
    # products 1·3 + 2·1 = 5 and 1·0 + 2·1 = 2, over √2: 3.535534 and 1.414214; the weights are σ(±2.121320) = 0.892958
    # and 0.107042; the context is 10·0.892958 + 20·0.107042 = 11.070419
    steps = reference.steps(*prepare(query, key, value))
    assert list(steps) == ["products", "scores", "weights", "output"]
    assert steps["products"].tolist() == [[[[5.0, 2.0]]]]
    torch.testing.assert_close(steps["scores"], torch.tensor([[[[3.535534, 1.414214]]]]))
    torch.testing.assert_close(steps["weights"], torch.tensor([[[[0.892958, 0.107042]]]]), rtol=0, atol=1e-6)
    torch.testing.assert_close(attend(query, key, value), torch.tensor([[11.070419]]), rtol=0, atol=1e-5)


def test_every_step_in_order() -> None:
    query, key, value = torch.randn(2, 3, 5, 2), torch.randn(2, 3, 7, 2), torch.randn(2, 3, 7, 11)
    bias = torch.randn(5, 7)
    arguments = {"soft_cap": 1.5, "bias": bias, "position": "alibi", "mask": "causal", "dropout": 0.4, "seed": 3}
    call, *tensors = prepare(query, key, value, score="dot", **arguments)
    steps = reference.steps(call, *tensors)
    assert list(steps) == ["scores", "capped", "biased", "masked", "weights", "dropped", "output"]
    scores = query @ key.mT
    capped = 1.5 * torch.tanh(scores / 1.5)
    biased = capped + bias + Alibi().bias(call.pairs())
    masked = biased.masked_fill(torch.ones(5, 7).triu(3).bool(), -torch.inf)
    expected = {"scores": scores, "capped": capped, "biased": biased, "masked": masked, "weights": masked.softmax(-1)}
    for name, tensor in expected.items():
        torch.testing.assert_close(steps[name], tensor)
    stays = steps["dropped"] != 0
    assert 0 < stays.sum() < (steps["weights"] != 0).sum()
    torch.testing.assert_close(steps["dropped"], steps["weights"] * stays / 0.6)
    torch.testing.assert_close(steps["output"], steps["dropped"] @ value)
    torch.testing.assert_close(reference.run(call, *tensors), steps["output"])


def test_gaussian_softmax_is_the_regression_of_nadaraya_and_watson() -> None:
    x, y = torch.tensor([[0.0], [1.0], [3.0]]), torch.tensor([[2.0], [4.0], [-1.0]])
    # at 1 with σ = 2: kernels e^{−1/8}, 1, e^{−4/8}: (0.882497·2 + 4 − 0.606531) / (0.882497 + 1 + 0.606531) = 5.158463
    # / 2.489028
    output = attend(torch.tensor([[1.0]]), x, y, score=Gaussian(2.0))
    torch.testing.assert_close(output, torch.tensor([[2.072481]]), rtol=0, atol=1e-5)


def test_a_normalizer_meets_a_nan_of_one_row_alone() -> None:
    query, key, value = torch.randn(2, 3, 2), torch.randn(2, 5, 2), torch.randn(2, 5, 7)
    spoilt = key.clone()
    spoilt[0] = torch.nan
    for name in NORMALIZERS:
        normalizer = TopK(2) if name == "top_k" else name
        expected = attend(query, key, value, normalizer=normalizer, implementation="reference")
        output = attend(query, spoilt, value, normalizer=normalizer, implementation="reference")
        assert torch.equal(output[1], expected[1])


@pytest.mark.parametrize(
    ("name", "normalizer", "implementation"),
    [
        ("scaled_dot", "softmax", "reference"),
        ("scaled_dot", "softmax", "tiled"),
        ("additive", "softmax", "tiled"),
        ("gaussian", "sigmoid", "reference"),
        ("gated", TopK(2), "tiled"),
    ],
)
def test_gradients_of_gradients(
    name: str, normalizer: str | TopK, implementation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("attent.attention.backends.bands.TILE", 12)
    score = SCORES[name].for_widths(2, 2, 1).double()
    leaves = [torch.randn(1, 1, n, 2, dtype=torch.float64, requires_grad=True) for n in (2, 3, 3)]

    def context(*tensors: Tensor) -> Tensor:
        return attend(*tensors, score=score, normalizer=normalizer, implementation=implementation)

    assert torch.autograd.gradcheck(context, leaves)
    assert torch.autograd.gradgradcheck(context, leaves)


@pytest.mark.parametrize("implementation", ["reference", "tiled", "sdpa", "dense"])
def test_a_row_of_the_lowest_bias_gives_hidden_keys_no_weight(implementation: str) -> None:
    query, key, value = (torch.randn(1, 2, length, 8) for length in (5, 7, 7))
    bias = torch.zeros(5, 7)
    bias[2] = torch.finfo(torch.float32).min
    visible = torch.arange(7) < 4
    try:
        output = attend(query, key, value, bias=bias, mask=visible.expand(5, 7), implementation=implementation)
    except ImplementationError as reason:
        pytest.skip(str(reason))
    torch.testing.assert_close(output[:, :, 2], value[:, :, :4].mean(2))
    if implementation in ("reference", "tiled"):
        weights = AttentionMap.of(prepare(query, key, value, bias=bias, mask=visible.expand(5, 7)))[0, :, 2]
        torch.testing.assert_close(weights, torch.tensor([0.25] * 4 + [0.0] * 3).expand(2, 7))
