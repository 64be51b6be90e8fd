"""The compiled dense attention, at each width of registers, against the formula in float64."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from attent.attention import attend, explain, prepare
from attent.attention.backends import dense
from attent.attention.base import Pairs, Position
from attent.attention.masks import Causal, Documents, Padding, PerHead, Window
from attent.attention.positions import Alibi, RelativeBias
from attent.attention.scores import Cosine
from attent.attention.weightings import GaussianWindow
from attent.ops import native
from attent.ops.dropout import keep_mask
from attent.ops.eligibility import can_run_operator

pytestmark = pytest.mark.needs_native
B, H, TQ, TK = 2, 6, 37, 41
DTYPES = [torch.float32, torch.bfloat16, torch.float16]
dice = torch.Generator().manual_seed(4)


def relative_bias(heads: int = H) -> RelativeBias:
    position = RelativeBias(heads, 10, 29)
    nn.init.normal_(position.table, generator=dice)
    return position


class Shared(Position):
    """One vector for all heads, which may hide the keys that stand far behind the query."""

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
    """A bias that learns."""
    bias = torch.randn(shape, generator=dice)
    return bias.masked_fill(torch.rand(shape, generator=dice) < hidden, -torch.inf).requires_grad_()


CASES: dict[str, dict[str, Any]] = {
    "nothing": {},
    "causal": {"mask": "causal"},
    "lengths": {"lengths": torch.tensor([41, 0]), "query_start": 0},
    "a window of each sequence": {"mask": Window(3, 1), "query_start": torch.tensor([-9, 5])},
    "by head": {"mask": PerHead([Causal(), Window(2, 0), Window(0, 1)] * 2) & Padding(torch.tensor([5, 13]))},
    "a bias": {"bias": table(1, H, TQ, TK, hidden=0.1).detach(), "mask": "causal"},
    "a bias of keys": {"bias": table(1, 1, 1, TK, hidden=0.1).detach()},
    "a bias of queries": {"bias": table(1, 1, TQ, 1).detach()},
    "a mask without ranges": {"mask": torch.rand(B, 1, TQ, TK, generator=dice) < 0.2},
    "dot": {"score": "dot"},
    "dropout": {"dropout": 0.3, "seed": 5, "mask": "causal"},
    "dropout, its seed in a tensor": {"dropout": 0.6, "seed": torch.tensor([2**31 - 2])},
}
TERMS: dict[str, dict[str, Any]] = {
    "a soft cap": {"soft_cap": 1.5},
    "a soft cap, causal": {"soft_cap": 0.7, "mask": "causal", "dropout": 0.2, "seed": 3},
    "alibi": {"position": Alibi(), "mask": "causal"},
    "a relative bias": {"position": relative_bias()},
    "within a window": {"position": relative_bias(), "mask": Window(9, 2), "query_start": torch.tensor([3, 3])},
    "offsets that heads share": {"position": Shared(80), "query_start": 7, "dropout": 0.2, "seed": 3},
    "a table": {"bias": table(B, H, TQ, TK)},
    "a table that hides pairs": {"bias": table(B, H, TQ, TK, hidden=0.3), "mask": "causal"},
    "a table of heads": {"bias": table(1, H, TQ, TK), "mask": "causal"},
    "a table of sequences": {"bias": table(B, 1, TQ, TK, hidden=0.1), "lengths": torch.tensor([19, 41])},
    "one table": {"bias": table(1, 1, TQ, TK), "mask": Window(7, 0)},
    "a number a key": {"bias": table(B, 1, 1, TK, hidden=0.1), "mask": "causal"},
    "a number a key and head": {"bias": table(1, H, 1, TK)},
    "a number a query": {"bias": table(1, H, TQ, 1)},
    "a table and a mask": {"bias": table(1, H, TQ, TK), "mask": torch.rand(B, 1, TQ, TK, generator=dice) < 0.3},
    "everything": {"bias": table(1, H, TQ, TK, hidden=0.1), "position": relative_bias(), "soft_cap": 2.0}
    | {"mask": "causal"},
}
# of (G, D, Dv)
WIDTHS = [(6, 32, 32), (3, 5, 7), (1, 33, 16)]
LONG: dict[str, dict[str, Any]] = {
    "all": {},
    "causal": {"mask": "causal"},
    "a window": {"mask": Window(70, 3)},
    "lengths": {"lengths": torch.tensor([590, 0]), "query_start": 0},
    "dropout": {"dropout": 0.3, "seed": 4},
    "a constant bias": {"bias": table(1, 4, 1, 600).detach(), "mask": "causal"},
    "a soft cap": {"soft_cap": 1.5, "mask": "causal"},
    "a relative bias": {"position": relative_bias(4), "mask": "causal"},
    "offsets that heads share": {"position": Shared(700)},
    "a table": {"bias": table(1, 4, 150, 600, hidden=0.1), "mask": Window(200, 40)},
    "one table": {"bias": table(1, 1, 150, 600)},
    "a number a key": {"bias": table(1, 1, 1, 600)},
}


@pytest.fixture(params=[0, 1, 2])
def level(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    if request.param > native.simd_level():
        pytest.skip("this processor has no such registers")
    monkeypatch.setattr(native, "simd_level", lambda: request.param)
    return request.param


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


def long_ones(dtype: torch.dtype = torch.float32) -> list[Tensor]:
    """Queries of several strips, and keys of several tiles."""
    shapes = (B, 150, 4, 24), (B, 600, 2, 24), (B, 600, 2, 20)
    return [torch.randn(shape).to(dtype).transpose(1, 2).requires_grad_() for shape in shapes]


def converted(arguments: dict[str, Any], dtype: torch.dtype) -> dict[str, Any]:
    """The arguments with copies, in a type, of the position and of a bias that learns."""
    changed = {}
    if "position" in arguments:
        changed["position"] = copy.deepcopy(arguments["position"]).to(dtype)
    if "bias" in arguments and arguments["bias"].requires_grad:
        changed["bias"] = arguments["bias"].detach().to(dtype).requires_grad_()
    return arguments | changed


def outcome(
    tensors: list[Tensor], implementation: str, dtype: torch.dtype = torch.float32, **arguments: Any
) -> list[Tensor]:
    """The context and the gradients of the tensors, of a bias that learns and of the position's parameters."""
    leaves, arguments = [tensor.detach().to(dtype).requires_grad_() for tensor in tensors], converted(arguments, dtype)
    context = attend(*leaves, implementation=implementation, **arguments)
    leaves += [bias for bias in (arguments.get("bias"),) if bias is not None and bias.requires_grad]
    leaves += arguments["position"].parameters() if "position" in arguments else []
    return [context, *torch.autograd.grad(context.double().sin().sum(), leaves)]


def check_errors(tensors: list[Tensor], *, slack: float = 0.0, **arguments: Any) -> None:
    """Check that the largest errors are at most three times the formula's in the same dtype."""
    dtype = tensors[0].dtype
    ways = ("dense", dtype), ("reference", dtype), ("reference", torch.float64)
    three = [outcome(tensors, *way, **converted(arguments, dtype)) for way in ways]
    for actual, plain, right in zip(*three, strict=True):
        assert actual.dtype == dtype
        assert (actual - right).abs().max() <= 3 * (plain - right).abs().max() + slack


@pytest.mark.parametrize("name", [*CASES, *TERMS])
def test_it_is_the_formula(name: str, level: int) -> None:
    arguments = (CASES | TERMS)[name]
    tensors = make_inputs(*WIDTHS[([*CASES, *TERMS].index(name) + level) % 3])
    exact = outcome(tensors, "reference", torch.float64, **arguments)
    atol, rtol = (1e-4, 3e-5) if name in TERMS else (2e-5, 2e-5)
    for actual, right in zip(outcome(tensors, "dense", **arguments), exact, strict=True):
        torch.testing.assert_close(actual.double(), right, atol=atol, rtol=rtol)


@pytest.mark.parametrize("dtype", DTYPES)
def test_errors_are_at_most_three_times_the_formulas(dtype: torch.dtype, level: int) -> None:
    queries = (8, 16, 37)[(DTYPES.index(dtype) + level) % 3]
    check_errors(make_inputs(3, 24, 24, dtype, queries=queries), mask="causal", dropout=0.2, seed=1)


def dtype_of_long(name: str, level: int) -> torch.dtype:
    """Each type for each case at some level, but for float16 where a term learns."""
    dtypes = DTYPES if {"bias", "position"}.isdisjoint(LONG[name]) else DTYPES[:2]
    return dtypes[([*LONG].index(name) + level) % len(dtypes)]


@pytest.mark.parametrize("name", LONG)
def test_tiles_are_as_exact_as_the_formula(name: str, level: int) -> None:
    check_errors(long_ones(dtype_of_long(name, level)), **LONG[name])


@pytest.mark.parametrize("name", LONG)
def test_threads_that_share_a_head_change_no_bit(name: str, level: int) -> None:
    tensors = long_ones(dtype := dtype_of_long(name, level))
    right = outcome(tensors, "dense", dtype, **LONG[name])
    try:
        for threads in (2, 5):
            torch.set_num_threads(threads)
            assert all(map(torch.equal, outcome(tensors, "dense", dtype, **LONG[name]), right))
    finally:
        torch.set_num_threads(1)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.usefixtures("level")
def test_padding_by_a_tile_and_neighbours_change_no_bit(dtype: torch.dtype) -> None:
    tensors = [tensor.detach() for tensor in long_ones(dtype)]
    longer = [nn.functional.pad(tensor, (0, 0, 0, 300), value=torch.nan) for tensor in tensors]
    arguments = {"lengths": torch.tensor([590, 257]), "query_start": 280, "mask": "causal", "implementation": "dense"}
    context = attend(*tensors, **arguments)
    assert torch.equal(attend(longer[0].nan_to_num(), *longer[1:], **arguments)[:, :, :150], context)
    # one query of one sequence by itself
    single = [tensors[0][:1, :, 120:121], *(tensor[:1] for tensor in tensors[1:])]
    arguments.update(lengths=torch.tensor([590]), query_start=400)
    assert torch.equal(attend(*single, **arguments), context[:1, :, 120:121])
    if dtype == torch.float32:
        bias = table(B, 4, 150, 600, hidden=0.2).detach()
        arguments |= {"position": relative_bias(4), "soft_cap": 3.0, "query_start": 450}
        lengths = torch.tensor([590, 257])
        context = attend(*tensors, **arguments | {"bias": bias, "lengths": lengths})
        padded = nn.functional.pad(bias, (0, 300), value=torch.nan)
        assert torch.equal(attend(tensors[0], *longer[1:], **arguments | {"bias": padded, "lengths": lengths}), context)
        assert torch.equal(attend(*(tensor[:1] for tensor in tensors), bias=bias[:1], **arguments), context[:1])


@pytest.mark.usefixtures("level")
def test_weights_dropped_are_those_of_the_hash() -> None:
    query, key, _ = make_inputs(1, 8, 8)
    identity = torch.eye(TK).expand(B, 1, TK, TK)
    weights = attend(query, key, identity, dropout=0.4, seed=7, implementation="dense")
    assert torch.equal(weights != 0, keep_mask(torch.arange(TQ), torch.arange(TK), H, B, 0.4, 7))


@pytest.mark.parametrize(
    "arguments",
    [{"lengths": torch.tensor([29, 17])}, {"mask": (torch.arange(TK) != 5).expand(TQ, TK)}, {"mask": Window(0, 0)}],
    ids=str,
)
def test_what_nobody_sees_does_not_leak(arguments: dict[str, Any]) -> None:
    tensors, arguments = make_inputs(2, 16, 16), arguments | {"query_start": 2}
    call = prepare(*tensors, **arguments).call
    hidden = ~call.allowed(call.pairs()).any(-2).expand(B, -1, TK)[:, :1, :, None]
    assert hidden.any()
    spoilt = [tensors[0], *(tensor.detach().masked_fill(hidden, torch.nan) for tensor in tensors[1:])]
    assert all(map(torch.equal, outcome(spoilt, "dense", **arguments), outcome(tensors, "dense", **arguments)))


def test_a_query_that_sees_nothing_gives_zeros_and_nan_is_not_hidden() -> None:
    tensors, nobody = make_inputs(3, 16, 8), torch.ones(TQ, TK, dtype=torch.bool)
    nobody[11] = False
    for arguments in ({"mask": nobody}, {"mask": Causal(), "query_start": -12}):
        context, dquery, *_ = outcome(tensors, "dense", **arguments)
        assert context[:, :, 11].count_nonzero() == dquery[:, :, 11].count_nonzero() == 0
        assert context[:, :, 12].count_nonzero()
    assert all(part.count_nonzero() == 0 for part in outcome(tensors, "dense", lengths=torch.tensor([0, 0])))
    spoilt = tensors[0].detach().clone()
    spoilt[0, 1, 4, 3] = torch.nan
    context = attend(spoilt, *tensors[1:], implementation="dense")
    assert context[0, 1, 4].isnan().all()
    assert context.isnan().sum() == 8


@pytest.mark.parametrize("dtype", DTYPES)
def test_heads_are_split_and_merged_without_moving_a_number(dtype: torch.dtype) -> None:
    bases = [torch.randn(B, TK, H * 8).to(dtype).requires_grad_() for _ in range(3)]
    heads = [base.unflatten(-1, (H, 8)).transpose(1, 2) for base in bases]
    context = attend(*heads, implementation="dense")
    gradients = torch.autograd.grad(context.sum(), heads)
    assert all(tensor.transpose(1, 2).is_contiguous() for tensor in (context, *gradients))
    # any other order serves too
    second = [head.contiguous().mT.contiguous().mT for head in heads]
    assert torch.equal(attend(*second, implementation="dense"), context)


def test_only_what_is_wanted_is_differentiated() -> None:
    query, key, value = make_inputs(6, 8, 8)
    (gradient,) = torch.autograd.grad(attend(query, key.detach(), value.detach(), implementation="dense").sum(), query)
    (right,) = torch.autograd.grad(attend(query, key, value, implementation="reference").sum(), query)
    torch.testing.assert_close(gradient, right, atol=1e-5, rtol=1e-5)


def test_auto_takes_it_for_short_sequences_and_it_says_why_not(monkeypatch: pytest.MonkeyPatch) -> None:
    tensors = make_inputs(6, 32, 32)
    for arguments in (CASES | TERMS).values():
        assert explain(*tensors, **arguments).chosen == "dense"
    tensors = make_inputs(6, 8, 8)
    for arguments, reason in (
        ({"score": Cosine()}, "score Cosine is not the plain dot product"),
        ({"normalizer": "sparsemax"}, "its normalizer is softmax, not Sparsemax"),
        ({"weighting": GaussianWindow(torch.zeros(B, TQ), 2.0)}, "its weights are not multiplied after normalization"),
        (
            {"position": "alibi", "query_start": torch.tensor([3, 4])},
            "the bias that Alibi adds depends on more than offsets, or on the sequence",
        ),
    ):
        assert dense.unsupported(prepare(*tensors, **arguments).call) == reason
    expected = "it supports float32, bfloat16 and float16, not torch.float64"
    assert dense.unsupported(prepare(*(tensor.double() for tensor in tensors)).call) == expected
    assert dense.unsupported(prepare(tensors[0][:, :, :0], *tensors[1:]).call) == "there is nothing to attend to"
    monkeypatch.setattr(native, "library", lambda: None)
    assert dense.unsupported(prepare(*tensors).call) == "its extension was not compiled when attent was installed"
    assert explain(*tensors).chosen == "sdpa"


def test_what_follows_or_transforms_the_steps_goes_another_way() -> None:
    query, key, value = (tensor.detach() for tensor in make_inputs(6, 8, 8))
    right = attend(query, key, value, implementation="reference")
    with warnings.catch_warnings(action="ignore"):
        # PyTorch's own is slow under vmap, and traces say that they are on their way out
        mapped, traced = torch.func.vmap(attend)(query, key, value), torch.jit.trace(attend, (query, key, value))
    compiled = torch.compile(attend, backend="aot_eager", fullgraph=True)
    for actual in (mapped, traced(query, key, value), compiled(query, key, value)):
        torch.testing.assert_close(actual, right)
    with Steps() as steps:
        attend(query, key, value)
    assert any("scaled_dot_product" in name for name in steps.names)
    with torch.inference_mode():
        torch.testing.assert_close(attend(query, key, value), right)


@pytest.mark.parametrize("name", ["ranges", "documents", "offsets", "seed"])
def test_a_captured_graph_computes_the_same_by_the_operator(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments: dict[str, Any] = {
        "ranges": {"mask": Causal(), "sink": torch.randn(6)},
        "documents": {"mask": Documents(torch.arange(TK) // 3)},
        "offsets": {"position": Alibi(), "query_start": torch.tensor([2])},
        "seed": {"dropout": 0.3, "seed": 5},
    }[name]
    tensors = make_inputs(6, 8, 8)

    def results() -> list[Tensor]:
        context = attend(*tensors, **arguments)
        return [context, *torch.autograd.grad(context.square().sum(), tensors)]

    eager = results()
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    monkeypatch.setattr(dense, "DenseAttention", pytest.fail)
    assert can_run_operator()
    torch.testing.assert_close(results(), eager)


@pytest.mark.parametrize(
    ("keys", "size", "dropout"), [(TK, 3.0, 0.3), (TK, 300.0, 0.0), (600, 3.0, 0.0), (600, 300.0, 0.3)]
)
@pytest.mark.usefixtures("level")
def test_gradients_of_large_scores_are_the_formulas(keys: int, size: float, dropout: float) -> None:
    query, key, value = make_inputs(3, 24, 24) if keys == TK else long_ones()
    check_errors([query * size, key * size, value], slack=1e-6, mask="causal", dropout=dropout, seed=3)


@pytest.mark.parametrize("keys", [23, 300])
def test_of_keys_that_are_alike_a_query_has_a_gradient_of_what_rounding_leaves(keys: int, level: int) -> None:
    dtype = DTYPES[1:][(level + (keys == 23)) % 2]
    query, key, value, gradient = (torch.randn(4, 1, *size).to(dtype) for size in ((4, 1), (1, 1), (keys, 5), (4, 5)))
    query, key = query.requires_grad_(), (key * 10).expand(-1, -1, keys, -1)
    bias = torch.randn(4, 1, 4, keys)
    context = attend(query, key, value, bias=bias, implementation="dense")
    dquery = torch.autograd.grad(context, query, gradient)[0].double()
    weights, dweights = (query.double() @ key.double().mT + bias).softmax(-1), gradient.double() @ value.double().mT
    means, context = (weights * dweights).sum(-1, keepdim=True), weights @ value.double()
    size = key.double().abs()
    bound = (weights * (dweights - means).abs()) @ size
    bound = bound + weights @ size * (context * gradient).abs().sum(-1, keepdim=True)
    # float32's own rounding beside it
    assert (dquery.abs() <= torch.finfo(dtype).eps / 2 * bound + 3e-5).all()
    assert keys < 256 or dquery.abs().max() > 1e-4


@pytest.mark.usefixtures("level")
def test_float16_is_read_and_rounded_as_pytorch_does() -> None:
    # one key has the weight 1: the context is its value
    full = torch.arange(2**16).to(torch.uint16).view(torch.float16).view(-1, 1, 1, 64)
    query, key = torch.zeros(len(full), 1, 1, 8).half(), torch.zeros(len(full), 1, 2, 8).half()
    assert torch.equal(attend(query, key[:, :, :1], full, implementation="dense").nan_to_num(7.0), full.nan_to_num(7.0))
    # two keys have one half each: their mean lies between two numbers, halfway or not
    values = torch.cat([full, full.view(-1).roll(-7).view_as(full)], 2).nan_to_num(0.0, 0.0, 0.0)
    right = values.float().mean(2, keepdim=True).half()
    assert torch.equal(attend(query, key, values, implementation="dense"), right)


@pytest.mark.usefixtures("level")
def test_pairs_that_a_bias_hides_have_no_gradient_and_do_not_leak() -> None:
    bias = table(1, H, TQ, TK).detach()
    # nobody sees key 5, and query 11 sees nothing
    bias[..., 5], bias[:, :, 11] = -torch.inf, -torch.inf
    for hidden in (0.0, torch.nan):
        query, key, value = make_inputs(3, 16, 16)
        with torch.no_grad():
            key[:, :, 5], value[:, :, 5] = hidden, hidden
        arguments = {"bias": bias.requires_grad_(), "mask": Window(None, 8)}
        context, *gradients, dbias = outcome([query, key, value], "dense", **arguments)
        assert context[:, :, 11].count_nonzero() == 0
        assert all(gradient.isfinite().all() for gradient in (context, *gradients, dbias))
        assert dbias[..., 5].count_nonzero() == dbias[:, :, 11].count_nonzero() == 0
        assert dbias.count_nonzero()


@pytest.mark.parametrize("rows", [1, TQ])
@pytest.mark.usefixtures("level")
def test_the_lowest_numbers_of_a_bias_are_raised_and_have_no_gradient(rows: int) -> None:
    lowest = torch.finfo(torch.float32).min
    bias = table(1, H, rows, TK).detach()
    # nothing higher; half the lowest and nothing higher; a single higher one
    bias[:, 0], bias[:, 1, ..., :5] = lowest, lowest
    bias[:, 1, ..., 5:], bias[:, 2, ..., 1:] = lowest / 2, lowest
    tensors, bias = make_inputs(3, 16, 16), bias.requires_grad_()
    actual, right = (outcome(tensors, implementation, bias=bias) for implementation in ("dense", "reference"))
    torch.testing.assert_close(actual, right, atol=1e-4, rtol=3e-5)
    assert actual[-1][:, 0].count_nonzero() == actual[-1][:, 1, ..., :5].count_nonzero() == 0


@pytest.mark.usefixtures("level")
def test_offsets_may_hide_pairs() -> None:
    position, tensors = Shared(80), make_inputs(3, 16, 16)
    position.numbers.data[:75] = -torch.inf
    actual = outcome(tensors, "dense", position=position)
    position.numbers.data[:75] = 0.0
    # the query at p sees keys from p − 5 on
    right = outcome(tensors, "reference", position=position, mask=Window(5, None))
    torch.testing.assert_close(actual, right, atol=1e-4, rtol=1e-4)
    assert actual[-1][:75].count_nonzero() == 0


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
    tensors, position = [tensor[:, :, :5] for tensor in make_inputs(3, 4, 4)], relative_bias()
    tensors.append(table(1, H, 5, 5))
    for implementation, dtype in (("dense", torch.float32), ("reference", torch.float64)):
        leaves, own = [tensor.detach().to(dtype).requires_grad_() for tensor in tensors], copy.deepcopy(position)
        arguments = {"bias": leaves[3], "position": own.to(dtype), "soft_cap": 2.0, "mask": "causal"}
        context = attend(*leaves[:3], **arguments, implementation=implementation)
        leaves += own.parameters()
        first = torch.autograd.grad(context.sin().sum(), leaves, create_graph=True)
        results.append(torch.autograd.grad(sum(tensor.square().sum() for tensor in first), leaves))
    for actual, right in zip(*results, strict=True):
        torch.testing.assert_close(actual.double(), right, atol=2e-4, rtol=2e-4)


def test_one_number_by_hand() -> None:
    # weights of e^0 and e^{ln 3}: 1/4 · 8 + 3/4 · 4 = 5, whose derivative by the second bias is 3/4 · (4 − 5)
    query, key, value = torch.tensor([[1.0]]), torch.zeros(2, 1), torch.tensor([[8.0], [4.0]])
    bias = torch.tensor([[1.0, 3.0]]).log().requires_grad_()
    context = attend(query, key, value, bias=bias, implementation="dense")
    assert context.item() == pytest.approx(5.0)
    assert torch.autograd.grad(context.sum(), bias)[0].flatten().tolist() == pytest.approx([0.75, -0.75])
