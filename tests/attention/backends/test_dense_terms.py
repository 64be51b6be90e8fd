"""Soft cap, biases and their gradients in the compiled dense attention, against the formula in float64."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from attent.attention import attend, explain, prepare
from attent.attention.backends import dense
from attent.attention.base import Pairs, Position
from attent.attention.masks import Window
from attent.attention.positions import Alibi, RelativeBias
from attent.ops import native

pytestmark = pytest.mark.needs_native
B, H, TQ, TK = 2, 6, 37, 41
dice = torch.Generator().manual_seed(6)


def relative_bias(heads: int = H) -> RelativeBias:
    position = RelativeBias(heads, 10, 29)
    nn.init.normal_(position.table, generator=dice)
    return position


class Shared(Position):
    """One vector for all heads, which hides the keys that stand far behind the query."""

    biases = True

    def __init__(self, limit: int) -> None:
        super().__init__()
        self.most, self.numbers = limit, nn.Parameter(torch.randn(2 * limit + 1, generator=dice))

    def bias(self, pairs: Pairs) -> Tensor:
        query, key = pairs.broadcast_positions()
        return self.numbers[key - query + self.most]

    def bias_by_offset(self, offsets: Tensor) -> Tensor:
        return self.numbers[offsets + self.most][None]


def table(*shape: int, hidden: float = 0.0) -> Tensor:
    bias = torch.randn(shape, generator=dice)
    return bias.masked_fill(torch.rand(shape, generator=dice) < hidden, -torch.inf)


TERMS: dict[str, dict[str, Any]] = {
    "a soft cap": {"soft_cap": 1.5},
    "a soft cap, causal": {"soft_cap": 0.7, "mask": "causal", "dropout": 0.2, "seed": 3},
    "alibi": {"position": Alibi(), "mask": "causal"},
    "a relative bias": {"position": relative_bias()},
    "a relative bias within a window": {
        "position": relative_bias(),
        "mask": Window(9, 2),
        "query_start": torch.tensor([3, 3]),
    },
    "offsets that heads share": {"position": Shared(80), "query_start": 7, "dropout": 0.2, "seed": 3},
    "a table": {"bias": table(B, H, TQ, TK)},
    "a table that hides pairs": {"bias": table(B, H, TQ, TK, hidden=0.3), "mask": "causal"},
    "a table of heads": {"bias": table(1, H, TQ, TK), "mask": "causal"},
    "a table of sequences": {"bias": table(B, 1, TQ, TK, hidden=0.1), "lengths": torch.tensor([19, 41])},
    "one table": {"bias": table(1, 1, TQ, TK), "mask": Window(7, 0)},
    "a number a key": {"bias": table(B, 1, 1, TK, hidden=0.1), "mask": "causal"},
    "a number a key and head": {"bias": table(1, H, 1, TK)},
    "a number a query": {"bias": table(1, H, TQ, 1)},
    "a table and a mask without ranges": {
        "bias": table(1, H, TQ, TK),
        "mask": torch.rand(B, 1, TQ, TK, generator=dice) < 0.3,
    },
    "everything": {
        "bias": table(1, H, TQ, TK, hidden=0.1),
        "position": relative_bias(),
        "soft_cap": 2.0,
        "mask": "causal",
    },
}
WIDTHS = [(6, 16, 16), (3, 5, 7), (1, 33, 16)]


@pytest.fixture(params=[0, 1, 2])
def width(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param > native.simd_level():
        pytest.skip("this processor has no such registers")
    monkeypatch.setattr(native, "simd_level", lambda: request.param)


def make_inputs(
    groups: int = H,
    width: int = 16,
    value_width: int = 16,
    *,
    heads: int = H,
    queries: int = TQ,
    keys: int = TK,
    dtype: Any = torch.float32,
) -> list[Tensor]:
    shapes = (B, queries, heads, width), (B, keys, groups, width), (B, keys, groups, value_width)
    return [torch.randn(shape).to(dtype).transpose(1, 2).requires_grad_() for shape in shapes]


def outcome(
    tensors: list[Tensor], implementation: str, *, dtype: Any = torch.float32, **arguments: Any
) -> list[Tensor]:
    """Return the context and the gradients of the tensors, of the bias and of the position's parameters."""
    leaves = [tensor.detach().to(dtype).requires_grad_() for tensor in tensors]
    if "bias" in arguments:
        arguments["bias"] = arguments["bias"].to(dtype).requires_grad_()
        leaves.append(arguments["bias"])
    if "position" in arguments:
        arguments["position"] = copy.deepcopy(arguments["position"]).to(dtype)
        leaves += arguments["position"].parameters()
    context = attend(*leaves[:3], implementation=implementation, **arguments)
    return [context, *torch.autograd.grad(context.double().sin().sum(), leaves)]


@pytest.mark.parametrize("name", TERMS)
@pytest.mark.parametrize("widths", WIDTHS, ids=str)
@pytest.mark.usefixtures("width")
def test_it_is_the_formula(name: str, widths: tuple[int, int, int]) -> None:
    tensors = make_inputs(*widths)
    exact = outcome(tensors, "reference", dtype=torch.float64, **TERMS[name])
    for actual, right in zip(outcome(tensors, "dense", **TERMS[name]), exact, strict=True):
        torch.testing.assert_close(actual.double(), right, atol=1e-4, rtol=3e-5)


LONG_TERMS: dict[str, dict[str, Any]] = {
    "a soft cap": {"soft_cap": 1.5, "mask": "causal"},
    "a relative bias": {"position": relative_bias(4), "mask": "causal"},
    "offsets that heads share": {"position": Shared(700)},
    "a table": {"bias": table(1, 4, 150, 600, hidden=0.1), "mask": Window(200, 40)},
    "one table": {"bias": table(1, 1, 150, 600)},
    "a number a key": {"bias": table(1, 1, 1, 600)},
}


def long_ones(dtype: Any = torch.float32) -> list[Tensor]:
    """Queries of several strips, and keys of two tiles."""
    return make_inputs(2, 24, 20, heads=4, queries=150, keys=600, dtype=dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", LONG_TERMS)
@pytest.mark.usefixtures("width")
def test_errors_are_at_most_three_times_the_formulas(name: str, dtype: torch.dtype) -> None:
    tensors, arguments = long_ones(dtype), LONG_TERMS[name]
    three = (
        outcome(tensors, "dense", dtype=dtype, **arguments),
        outcome(tensors, "reference", dtype=dtype, **arguments),
        outcome([tensor.double() for tensor in tensors], "reference", dtype=torch.float64, **rounded(arguments, dtype)),
    )
    for actual, plain, right in zip(*three, strict=True):
        assert actual.dtype == dtype
        assert (actual - right).abs().max() <= 3 * (plain - right).abs().max()


def rounded(arguments: dict[str, Any], dtype: torch.dtype) -> dict[str, Any]:
    """Return arguments whose numbers are rounded to a type."""
    arguments = dict(arguments)
    if "bias" in arguments:
        arguments["bias"] = arguments["bias"].to(dtype)
    if "position" in arguments:
        arguments["position"] = copy.deepcopy(arguments["position"]).to(dtype)
    return arguments


@pytest.mark.parametrize("name", LONG_TERMS)
@pytest.mark.usefixtures("width")
def test_threads_change_no_bit(name: str) -> None:
    tensors = long_ones()
    right = outcome(tensors, "dense", **LONG_TERMS[name])
    try:
        for threads in (2, 5):
            torch.set_num_threads(threads)
            assert all(map(torch.equal, outcome(tensors, "dense", **LONG_TERMS[name]), right))
    finally:
        torch.set_num_threads(1)


@pytest.mark.usefixtures("width")
def test_neither_padding_nor_neighbours_change_a_bit() -> None:
    query, key, value = (tensor.detach() for tensor in long_ones())
    position, bias = relative_bias(4), table(B, 4, 150, 600, hidden=0.2)
    arguments = {"position": position, "soft_cap": 3.0, "mask": "causal", "query_start": 450, "implementation": "dense"}
    whole = attend(query, key, value, bias=bias, lengths=torch.tensor([590, 257]), **arguments)
    pad = [nn.functional.pad(tensor, (0, 0, 0, 300), value=torch.nan) for tensor in (key, value)]
    longer = nn.functional.pad(bias, (0, 300), value=torch.nan)
    padded = attend(query, *pad, bias=longer, lengths=torch.tensor([590, 257]), **arguments)
    assert torch.equal(whole, padded)
    single = attend(query[:1], key[:1], value[:1], bias=bias[:1], lengths=torch.tensor([590]), **arguments)
    assert torch.equal(whole[:1], single)


@pytest.mark.usefixtures("width")
def test_pairs_that_a_bias_hides_have_no_gradient_and_do_not_leak() -> None:
    bias = table(1, H, TQ, TK)
    # nobody sees key 5, and query 11 sees nothing
    bias[..., 5], bias[:, :, 11] = -torch.inf, -torch.inf
    for hidden in (0.0, torch.nan):
        query, key, value = make_inputs(3)
        with torch.no_grad():
            key[:, :, 5], value[:, :, 5] = hidden, hidden
        context, *gradients, dbias = outcome([query, key, value], "dense", bias=bias, mask=Window(None, 8))
        assert context[:, :, 11].count_nonzero() == 0
        assert all(gradient.isfinite().all() for gradient in (context, *gradients, dbias))
        assert dbias[..., 5].count_nonzero() == dbias[:, :, 11].count_nonzero() == 0
        assert dbias.count_nonzero()


@pytest.mark.parametrize("rows", [1, TQ])
@pytest.mark.usefixtures("width")
def test_the_lowest_numbers_of_a_bias_are_raised_and_have_no_gradient(rows: int) -> None:
    lowest = torch.finfo(torch.float32).min
    bias = table(1, H, rows, TK)
    # nothing higher; half the lowest and nothing higher; a single higher one
    bias[:, 0], bias[:, 1, ..., :5] = lowest, lowest
    bias[:, 1, ..., 5:], bias[:, 2, ..., 1:] = lowest / 2, lowest
    tensors = make_inputs(3)
    actual, right = (outcome(tensors, implementation, bias=bias) for implementation in ("dense", "reference"))
    torch.testing.assert_close(actual, right, atol=1e-4, rtol=3e-5)
    assert actual[-1][:, 0].count_nonzero() == actual[-1][:, 1, ..., :5].count_nonzero() == 0


@pytest.mark.usefixtures("width")
def test_offsets_may_hide_pairs() -> None:
    position = Shared(80)
    position.numbers.data[:75] = -torch.inf
    tensors = make_inputs(3)
    context, *gradients, dnumbers = outcome(tensors, "dense", position=position)
    with torch.no_grad():
        numbers = position.numbers.detach().masked_fill(position.numbers == -torch.inf, 0.0)
        position.numbers.copy_(numbers)
    # the query at p sees keys from p − 5 on
    right = outcome(tensors, "reference", position=position, mask=Window(5, None))
    torch.testing.assert_close([context, *gradients, dnumbers], right, atol=1e-4, rtol=1e-4)
    assert dnumbers[:75].count_nonzero() == 0


def test_capped_scores_are_as_exact_as_pytorchs() -> None:
    query = torch.cat([torch.logspace(-6, 3, 200), -torch.logspace(-6, 3, 200)])[:, None]
    # the weight of the first of two keys is sigmoid(capped − 0)
    for cap in (1.0, 30.0):
        key, value = torch.tensor([[1.0], [0.0]]), torch.tensor([[1.0], [-1.0]])
        output = attend(query, key, value, score="dot", soft_cap=cap, implementation="dense")
        right = (cap * torch.tanh(query.double() / cap) / 2).tanh()
        torch.testing.assert_close(output.double(), right, atol=2e-7, rtol=1e-6)


def test_second_derivatives() -> None:
    results = []
    tensors, position, bias = [tensor[:, :, :5] for tensor in make_inputs(3, 4, 4)], relative_bias(), table(1, H, 5, 5)
    for implementation, dtype in (("dense", torch.float32), ("reference", torch.float64)):
        leaves = [tensor.detach().to(dtype).requires_grad_() for tensor in (*tensors, bias)]
        own = copy.deepcopy(position).to(dtype)
        context = attend(
            *leaves[:3], bias=leaves[3], position=own, soft_cap=2.0, mask="causal", implementation=implementation
        )
        leaves += own.parameters()
        first = torch.autograd.grad(context.sin().sum(), leaves, create_graph=True)
        results.append(torch.autograd.grad(sum(tensor.square().sum() for tensor in first), leaves))
    for actual, right in zip(*results, strict=True):
        torch.testing.assert_close(actual.double(), right, atol=2e-4, rtol=2e-4)


def test_auto_takes_it() -> None:
    tensors = make_inputs()
    for arguments in TERMS.values():
        assert explain(*tensors, **arguments).chosen == "dense"
    for bias in (table(1, H, TQ, TK), table(B, 1, 1, TK)):
        assert explain(*tensors, bias=bias.requires_grad_()).chosen == "dense"


def test_why_not() -> None:
    tensors = make_inputs()
    reason = dense.unsupported(prepare(*tensors, position="alibi", query_start=torch.tensor([3, 4])).call)
    assert reason == "the bias that Alibi adds depends on more than offsets, or on the sequence"


def test_one_number_by_hand() -> None:
    # weights of e^0 and e^{ln 3}: 1/4 · 8 + 3/4 · 4 = 5, whose derivative by the second bias is 3/4 · (4 − 5)
    query, key, value = torch.tensor([[1.0]]), torch.zeros(2, 1), torch.tensor([[8.0], [4.0]])
    bias = torch.tensor([[1.0, 3.0]]).log().requires_grad_()
    context = attend(query, key, value, bias=bias, implementation="dense")
    assert context.item() == pytest.approx(5.0)
    assert torch.autograd.grad(context.sum(), bias)[0].flatten().tolist() == pytest.approx([0.75, -0.75])
