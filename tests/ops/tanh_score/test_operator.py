from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad

from attent.attention import attend
from attent.attention.backends.tanh import fused_scores
from attent.attention.base import LoweredSide
from attent.attention.scores import Additive
from attent.ops import native
from attent.ops import tanh_score as eager
from attent.ops.tanh_score import operator


def make_inputs(dtype: torch.dtype = torch.float64, directions: int = 2) -> tuple[Tensor, ...]:
    shapes = ((1, 2, 4, 3), (1, 2, 3, 3), (directions, 3))
    return tuple(torch.randn(shape, dtype=dtype, requires_grad=True) for shape in shapes)


@pytest.mark.parametrize("directions", [1, 2])
def test_derivatives_of_every_order(directions: int) -> None:
    inputs = make_inputs(directions=directions)
    scores = torch.ops.attent.tanh_scores
    assert torch.autograd.gradcheck(scores, inputs)
    assert torch.autograd.gradgradcheck(scores, inputs)
    first = torch.autograd.grad(scores(*inputs).sin().sum(), inputs, create_graph=True)
    second = torch.autograd.grad(sum(gradient.sum() for gradient in first), inputs[0], create_graph=True)[0]
    third = torch.autograd.grad(second.sum(), inputs[1])[0]
    assert third.isfinite().all()
    assert third.any()


def test_a_second_derivative_by_rows_is_that_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    def second() -> Tensor:
        torch.manual_seed(3)
        inputs = make_inputs()
        first = torch.autograd.grad(torch.ops.attent.tanh_scores(*inputs).square().sum(), inputs, create_graph=True)
        return torch.autograd.grad(first[0].square().sum(), inputs[1])[0]

    expected = second()
    monkeypatch.setattr(eager, "CHUNK", 1)
    torch.testing.assert_close(second(), expected)


@pytest.mark.no_cover
# PyTorch's own, of any operator
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
@pytest.mark.parametrize(
    "checks",
    [
        ("test_schema", "test_autograd_registration", "test_faketensor"),
        pytest.param("test_aot_dispatch_dynamic", marks=pytest.mark.slow),
    ],
)
def test_pytorch_accepts_the_operators(checks: Any) -> None:
    inputs = make_inputs(torch.float32)
    torch.library.opcheck(torch.ops.attent.tanh_scores.default, inputs, test_utils=checks)
    with_gradient = (*inputs, torch.randn(1, 2, 4, 3))
    torch.library.opcheck(torch.ops.attent.tanh_gradients.default, with_gradient, test_utils=checks)


@pytest.mark.filterwarnings("ignore:.torch.jit")  # PyTorch's own forward mode
def test_forward_mode_takes_the_plain_formula() -> None:
    query, key, value = (torch.randn(1, 1, length, 4, dtype=torch.float64) for length in (3, 5, 5))
    score, tangent = Additive(4, 4, 6).double(), torch.randn(1, 1, 3, 4, dtype=torch.float64)
    by_tanh, by_formula = (partial(attend, score=score, implementation=name) for name in ("tanh", "reference"))
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(query, tangent)
        result = [forward_ad.unpack_dual(way(dual, key, value)).tangent for way in (by_tanh, by_formula)]
    assert result[0].any()
    torch.testing.assert_close(*result)
    through = torch.func.jvp(lambda tensor: by_tanh(tensor, key, value), (query,), (tangent,))[1]
    torch.testing.assert_close(through, result[1])


@pytest.mark.parametrize("bias", [True, False])
def test_it_is_the_scores_own_formula(bias: bool) -> None:
    score = Additive(3, 5, 7, heads=2, bias=bias, v=bias)
    query, key = LoweredSide(torch.randn(3, 2, 11, 7)), LoweredSide(torch.randn(3, 2, 13, 7))
    torch.testing.assert_close(fused_scores(score, query, key), score.score_lowered(query, key))


@pytest.mark.needs_native
def test_float32_on_a_cpu_goes_to_the_extension_if_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*tensors: Tensor) -> Tensor:
        raise AssertionError("not this one")

    inputs = [tensor.detach() for tensor in make_inputs(torch.float32)]
    with monkeypatch.context() as patch:
        patch.setattr(eager, "scores", broken)
        compiled = torch.ops.attent.tanh_scores(*inputs)
    monkeypatch.setattr(operator, "native_scores", broken)
    monkeypatch.setattr(native, "library", lambda: None)
    torch.testing.assert_close(torch.ops.attent.tanh_scores(*inputs), compiled)


@pytest.mark.slow
def test_compiled_graphs_hold_it_whole() -> None:
    score = Additive(4, 4, 6)
    query, key, value = (torch.randn(2, 1, length, 4, requires_grad=True) for length in (3, 5, 5))

    def loss(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return attend(query, key, value, score=score, mask="causal", implementation="tanh").square().sum()

    whole = torch.compile(loss, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(whole(query, key, value), loss(query, key, value))
    leaves = (query, key, value, *score.parameters())
    torch.testing.assert_close(*(torch.autograd.grad(way(query, key, value), leaves) for way in (whole, loss)))
