"""The compiled dense attention, at each width of registers, against the formula in float64."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from attent.attention import attend, explain, prepare
from attent.attention.backends import dense
from attent.attention.masks import Causal, Padding, PerHead, Window
from attent.attention.scores import Cosine
from attent.attention.weightings import GaussianWindow
from attent.ops import native
from attent.ops.dropout import keep_mask

pytestmark = pytest.mark.needs_native
B, H, TQ, TK = 2, 6, 37, 41
DTYPES = [torch.float32, torch.bfloat16, torch.float16]
dice = torch.Generator().manual_seed(4)
BIAS = torch.randn(1, H, TQ, TK, generator=dice)
BIAS[..., 3] = -torch.inf
CASES: dict[str, dict[str, Any]] = {
    "nothing": {},
    "causal": {"mask": "causal"},
    "lengths": {"lengths": torch.tensor([41, 0]), "query_start": 0},
    "a window of each sequence": {"mask": Window(3, 1), "query_start": torch.tensor([-9, 5])},
    "by head": {"mask": PerHead([Causal(), Window(2, 0), Window(0, 1)] * 2) & Padding(torch.tensor([5, 13]))},
    "a bias": {"bias": BIAS, "mask": "causal"},
    "a bias of keys": {"bias": BIAS[:, :1, :1]},
    "a bias of queries": {"bias": BIAS[:, :1, :, :1]},
    "a table": {"mask": torch.rand(B, 1, TQ, TK, generator=dice) < 0.2},
    "dot": {"score": "dot"},
    "dropout": {"dropout": 0.3, "seed": 5, "mask": "causal"},
    "dropout, its seed in a tensor": {"dropout": 0.6, "seed": torch.tensor([2**31 - 2])},
}
# of (G, D, Dv)
WIDTHS = [(6, 32, 32), (3, 5, 7), (1, 33, 16)]


@pytest.fixture(params=[0, 1, 2])
def width(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param > native.simd_level():
        pytest.skip("this processor has no such registers")
    monkeypatch.setattr(native, "simd_level", lambda: request.param)


class Steps(TorchDispatchMode):
    """The operators that PyTorch runs meanwhile."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, function: Any, types: Any, arguments: Any = (), named: Any = None) -> Any:
        self.names.append(str(function))
        return function(*arguments, **(named or {}))


def make_inputs(
    groups: int, key_width: int, value_width: int, dtype: torch.dtype = torch.float32, *, queries: int = TQ
) -> list[Tensor]:
    """As a projection has them: the heads of a token beside each other."""
    shapes = (B, queries, H, key_width), (B, TK, groups, key_width), (B, TK, groups, value_width)
    return [torch.randn(shape).to(dtype).transpose(1, 2).requires_grad_() for shape in shapes]


def outcome(tensors: list[Tensor], implementation: str, **arguments: Any) -> list[Tensor]:
    context = attend(*tensors, implementation=implementation, **arguments)
    return [context, *torch.autograd.grad(context.double().sin().sum(), tensors)]


def check_errors(tensors: list[Tensor], *, slack: float = 0.0, **arguments: Any) -> None:
    """Check that the largest errors are at most three times the formula's in the same dtype."""
    exact = [tensor.detach().double().requires_grad_() for tensor in tensors]
    inputs = (tensors, "dense"), (tensors, "reference"), (exact, "reference")
    three = [outcome(sample, implementation, **arguments) for sample, implementation in inputs]
    for actual, plain, right in zip(*three, strict=True):
        assert actual.dtype == tensors[0].dtype
        assert (actual - right).abs().max() <= 3 * (plain - right).abs().max() + slack


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("widths", WIDTHS, ids=str)
@pytest.mark.usefixtures("width")
def test_it_is_the_formula(name: str, widths: tuple[int, int, int]) -> None:
    tensors = make_inputs(*widths)
    exact = [tensor.detach().double().requires_grad_() for tensor in tensors]
    for actual, right in zip(
        outcome(tensors, "dense", **CASES[name]), outcome(exact, "reference", **CASES[name]), strict=True
    ):
        torch.testing.assert_close(actual.double(), right, atol=2e-5, rtol=2e-5)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("queries", [8, 16, 37])
@pytest.mark.usefixtures("width")
def test_errors_are_at_most_three_times_the_formulas(dtype: torch.dtype, queries: int) -> None:
    check_errors(make_inputs(3, 24, 24, dtype, queries=queries), mask="causal", dropout=0.2, seed=1)


@pytest.mark.usefixtures("width")
def test_weights_dropped_are_those_of_the_hash() -> None:
    query, key, _ = make_inputs(1, 8, 8)
    identity = torch.eye(TK).expand(B, 1, TK, TK)
    weights = attend(query, key, identity, dropout=0.4, seed=7, implementation="dense")
    call = prepare(query, key, identity).call
    assert torch.equal(
        weights != 0, keep_mask(torch.arange(call.queries), torch.arange(call.keys), call.heads, B, 0.4, 7)
    )


@pytest.mark.parametrize(
    "arguments", [{"lengths": torch.tensor([29, 17])}, {"mask": torch.arange(TK) != 5}, {"mask": Window(0, 0)}], ids=str
)
def test_what_nobody_sees_does_not_leak(arguments: dict[str, Any]) -> None:
    tensors = make_inputs(2, 16, 16)
    if isinstance(arguments.get("mask"), Tensor):
        arguments = {"mask": arguments["mask"].expand(TQ, TK)}
    call = prepare(*tensors, **arguments, query_start=2).call
    hidden = ~call.allowed(call.pairs()).any(-2).expand(B, -1, TK)[:, :1, :, None]
    spoilt = [tensors[0], *(tensor.detach().masked_fill(hidden, torch.nan).requires_grad_() for tensor in tensors[1:])]
    arguments = {**arguments, "query_start": 2}
    assert hidden.any()
    for actual, right in zip(
        outcome(spoilt, "dense", **arguments), outcome(tensors, "dense", **arguments), strict=True
    ):
        assert torch.equal(actual, right)


def test_a_query_that_sees_nothing_gives_zeros() -> None:
    tensors, nobody = make_inputs(3, 16, 8), torch.ones(TQ, TK, dtype=torch.bool)
    nobody[11] = False
    for arguments in ({"mask": nobody}, {"mask": Causal(), "query_start": -12}):
        context, dquery, *_ = outcome(tensors, "dense", **arguments)
        assert context[:, :, 11].count_nonzero() == dquery[:, :, 11].count_nonzero() == 0
        assert context[:, :, 12].count_nonzero()
    assert all(part.count_nonzero() == 0 for part in outcome(tensors, "dense", lengths=torch.tensor([0, 0])))


def test_nan_is_not_hidden() -> None:
    query, key, value = make_inputs(3, 16, 8)
    spoilt = query.detach().clone()
    spoilt[0, 1, 4, 3] = torch.nan
    context = attend(spoilt, key, value, implementation="dense")
    assert context[0, 1, 4].isnan().all()
    assert context.isnan().sum() == 8


@pytest.mark.parametrize("dtype", DTYPES)
def test_heads_are_split_and_merged_without_moving_a_number(dtype: torch.dtype) -> None:
    bases = [torch.randn(B, TK, H * 8).to(dtype).requires_grad_() for _ in range(3)]
    heads = [base.unflatten(-1, (H, 8)).transpose(1, 2) for base in bases]
    context = attend(*heads, implementation="dense")
    assert context.transpose(1, 2).is_contiguous()
    gradients = torch.autograd.grad(context.sum(), heads)
    assert all(gradient.transpose(1, 2).is_contiguous() for gradient in gradients)
    # any other order serves too
    second = [head.contiguous().mT.contiguous().mT for head in heads]
    assert torch.equal(attend(*second, implementation="dense"), context)


def test_only_what_is_wanted_is_differentiated() -> None:
    query, key, value = make_inputs(6, 8, 8)
    (gradient,) = torch.autograd.grad(attend(query, key.detach(), value.detach(), implementation="dense").sum(), query)
    (right,) = torch.autograd.grad(attend(query, key, value, implementation="reference").sum(), query)
    torch.testing.assert_close(gradient, right, atol=1e-5, rtol=1e-5)


def test_why_not(monkeypatch: pytest.MonkeyPatch) -> None:
    tensors = make_inputs(6, 8, 8)
    for arguments, reason in (
        ({"score": Cosine()}, "score Cosine is not the plain dot product"),
        ({"normalizer": "sparsemax"}, "its normalizer is softmax, not Sparsemax"),
        ({"weighting": GaussianWindow(torch.zeros(B, TQ), 2.0)}, "its weights are not multiplied after normalization"),
    ):
        assert dense.unsupported(prepare(*tensors, **arguments).call) == reason
    expected = "it supports float32, bfloat16 and float16, not torch.float64"
    assert dense.unsupported(prepare(*(tensor.double() for tensor in tensors)).call) == expected
    assert dense.unsupported(prepare(tensors[0][:, :, :0], *tensors[1:]).call) == "there is nothing to attend to"
    monkeypatch.setattr(native, "library", lambda: None)
    assert dense.unsupported(prepare(*tensors).call) == "its extension was not compiled when attent was installed"
    assert explain(*tensors).chosen == "sdpa"


def test_auto_takes_it_for_short_sequences() -> None:
    tensors = make_inputs(6, 32, 32)
    assert explain(*tensors).chosen == explain(*tensors, mask="causal", dropout=0.1, seed=1).chosen == "dense"


def test_what_follows_or_transforms_the_steps_goes_another_way() -> None:
    query, key, value = (tensor.detach() for tensor in make_inputs(6, 8, 8))
    right = attend(query, key, value, implementation="reference")
    with warnings.catch_warnings(action="ignore"):
        # PyTorch's own is slow under vmap, and traces say that they are on their way out
        mapped, traced = torch.func.vmap(attend)(query, key, value), torch.jit.trace(attend, (query, key, value))
    for actual in (
        mapped,
        traced(query, key, value),
        torch.compile(attend, backend="aot_eager", fullgraph=True)(query, key, value),
    ):
        torch.testing.assert_close(actual, right)
    with Steps() as steps:
        attend(query, key, value)
    assert any("scaled_dot_product" in name for name in steps.names)
    with torch.inference_mode():
        torch.testing.assert_close(attend(query, key, value), right)


LONG: dict[str, dict[str, Any]] = {
    "all": {},
    "causal": {"mask": "causal"},
    "a window": {"mask": Window(70, 3)},
    "lengths": {"lengths": torch.tensor([590, 0]), "query_start": 0},
    "dropout": {"dropout": 0.3, "seed": 4},
    "a bias": {"bias": torch.randn(1, 4, 1, 600, generator=dice), "mask": "causal"},
}


def long_ones(dtype: torch.dtype = torch.float32) -> list[Tensor]:
    """Queries of several strips, and keys of several tiles."""
    shapes = (B, 300, 4, 24), (B, 600, 2, 24), (B, 600, 2, 20)
    return [torch.randn(shape).to(dtype).transpose(1, 2).requires_grad_() for shape in shapes]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", LONG)
@pytest.mark.usefixtures("width")
def test_tiles_are_as_exact_as_the_formula(name: str, dtype: torch.dtype) -> None:
    check_errors(long_ones(dtype), **LONG[name])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", LONG)
@pytest.mark.usefixtures("width")
def test_threads_that_share_a_head_change_no_bit(name: str, dtype: torch.dtype) -> None:
    tensors = long_ones(dtype)
    right = outcome(tensors, "dense", **LONG[name])
    try:
        for threads in (2, 5):
            torch.set_num_threads(threads)
            assert all(map(torch.equal, outcome(tensors, "dense", **LONG[name]), right))
    finally:
        torch.set_num_threads(1)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.usefixtures("width")
def test_padding_by_a_tile_and_neighbours_change_no_bit(dtype: torch.dtype) -> None:
    tensors = [tensor.detach() for tensor in long_ones(dtype)]
    longer = [nn.functional.pad(tensor, (0, 0, 0, 300), value=torch.nan) for tensor in tensors]
    arguments = {"lengths": torch.tensor([590, 257]), "query_start": 280, "mask": "causal", "implementation": "dense"}
    whole = attend(*tensors, **arguments)
    assert torch.equal(attend(longer[0].nan_to_num(), *longer[1:], **arguments)[:, :, :300], whole)
    # one query of one sequence by itself
    single = [tensors[0][:1, :, 120:121], *(tensor[:1] for tensor in tensors[1:])]
    arguments.update(lengths=torch.tensor([590]), query_start=400)
    assert torch.equal(attend(*single, **arguments), whole[:1, :, 120:121])


@pytest.mark.parametrize("dropout", [0.0, 0.3])
@pytest.mark.parametrize("size", [3.0, 300.0])
@pytest.mark.parametrize("keys", [TK, 600])
@pytest.mark.usefixtures("width")
def test_gradients_of_large_scores_are_the_formulas(keys: int, size: float, dropout: float) -> None:
    inputs = make_inputs(3, 24, 24) if keys == TK else long_ones()
    tensors = [
        tensor.detach().mul(size).requires_grad_() if number < 2 else tensor for number, tensor in enumerate(inputs)
    ]
    check_errors(tensors, slack=1e-6, mask="causal", dropout=dropout, seed=3)


@pytest.mark.parametrize("keys", [23, 300])
@pytest.mark.parametrize("dtype", DTYPES[1:])
@pytest.mark.usefixtures("width")
def test_of_keys_that_are_alike_a_query_has_a_gradient_of_what_rounding_leaves(dtype: torch.dtype, keys: int) -> None:
    query, key, value, gradient = (torch.randn(4, 1, *size).to(dtype) for size in ((4, 1), (1, 1), (keys, 5), (4, 5)))
    query, key = query.requires_grad_(), (key * 10).expand(-1, -1, keys, -1)
    bias = torch.randn(4, 1, 4, keys)
    dquery = torch.autograd.grad(attend(query, key, value, bias=bias, implementation="dense"), query, gradient)[
        0
    ].double()
    weights, dweights = (query.double() @ key.double().mT + bias).softmax(-1), gradient.double() @ value.double().mT
    means, context = (weights * dweights).sum(-1, keepdim=True), weights @ value.double()
    size = key.double().abs()
    bound = (weights * (dweights - means).abs()) @ size + weights @ size * (context * gradient).abs().sum(
        -1, keepdim=True
    )
    # float32's own rounding beside it
    assert (dquery.abs() <= torch.finfo(dtype).eps / 2 * bound + 3e-5).all()
    assert keys < 256 or dquery.abs().max() > 1e-4


@pytest.mark.usefixtures("width")
def test_float16_is_read_and_rounded_as_pytorch_does() -> None:
    # one key has the weight 1: the context is its value
    full = torch.arange(2**16).to(torch.uint16).view(torch.float16).view(-1, 1, 1, 64)
    query, key = torch.zeros(len(full), 1, 1, 8).half(), torch.zeros(len(full), 1, 2, 8).half()
    assert torch.equal(attend(query, key[:, :, :1], full, implementation="dense").nan_to_num(7.0), full.nan_to_num(7.0))
    # two keys have one half each: their mean lies between two numbers, halfway or not
    values = torch.cat([full, full.view(-1).roll(-7).view_as(full)], 2).nan_to_num(0.0, 0.0, 0.0)
    right = values.float().mean(2, keepdim=True).half()
    assert torch.equal(attend(query, key, values, implementation="dense"), right)
