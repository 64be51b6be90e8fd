from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from attent.attention import attend, explain
from attent.attention.attend import IMPLEMENTATIONS
from attent.attention.backends import bands
from attent.attention.capture.watch import watch
from attent.attention.maps.attention_map import AttentionMap
from attent.attention.masks import Causal, Padding, Window
from attent.attention.multihead import MultiHeadAttention
from attent.attention.positions import Rotary
from attent.attention.scores import SCORES, Additive, Cosine
from attent.errors import ImplementationError, UnknownNameError

dice = torch.Generator().manual_seed(1)
QUERY, KEY, VALUE = (torch.randn(2, 3, *shape, generator=dice) for shape in ((5, 4), (7, 4), (7, 11)))
DOT = [name for name in IMPLEMENTATIONS if name not in ("dense", "tanh")]
SOFTMAX = "its normalizer is softmax, not Sparsemax"


def test_contexts_have_the_callers_axes_and_type() -> None:
    lengths = torch.tensor([6, 3])
    four = attend(QUERY[:, :1], KEY[:, :1], VALUE[:, :1], mask="causal", lengths=lengths, bias=torch.ones(1, 7))
    assert four.shape == (2, 1, 5, 11)
    torch.testing.assert_close(attend(QUERY[:, 0], KEY[:, 0], VALUE[:, 0], mask="causal", lengths=lengths), four[:, 0])
    single = attend(QUERY[1, 0], KEY[1, 0], VALUE[1, 0], mask="causal", lengths=lengths[1:])
    torch.testing.assert_close(single, four[1, 0])
    for dtype in (torch.float64, torch.float32, torch.bfloat16, torch.float16):
        for implementation in DOT:
            assert attend(QUERY.to(dtype), KEY.to(dtype), VALUE.to(dtype), implementation=implementation).dtype == dtype


def test_one_number_by_hand() -> None:
    # one key twice as good in the exponent's unit: weights 1/(1 + e^{−ln 3}) = 3/4 and 1/4; 3/4·8 + 1/4·4 = 7
    query, key, value = torch.tensor([[1.0]]), torch.tensor([[3.0], [1.0]]).log(), torch.tensor([[8.0], [4.0]])
    for implementation in DOT:
        assert attend(query, key, value, score="dot", implementation=implementation).item() == pytest.approx(7.0)


def test_a_map_is_made_once_for_whoever_wants_it(monkeypatch: pytest.MonkeyPatch) -> None:
    class Model(torch.nn.Module):
        def forward(self) -> AttentionMap:
            return attend(QUERY, KEY, VALUE, return_map=True)[1]

    maps, model, of = [], Model(), AttentionMap.of
    monkeypatch.setattr(AttentionMap, "of", lambda prepared: maps.append(of(prepared)) or maps[-1])
    attend(QUERY, KEY, VALUE)
    assert not maps
    assert model() is maps[0]
    with watch(model) as captured:
        model()
    assert len(maps) == 2
    assert torch.equal(captured[""].dense(), maps[0].dense())


def test_explain_says_which_runs_and_why_not_the_others() -> None:
    # of a type in which the extension's presence makes no difference
    explanation = explain(QUERY.double(), KEY.double(), VALUE.double())
    assert explanation.chosen == "sdpa"
    first, tanh = "sdpa takes precedence", "score ScaledDot has no tanh form"
    short = "it supports float32, bfloat16 and float16, not torch.float64"
    assert explanation.reasons == {"dense": short, "tanh": tanh, "reference": first, "tiled": first}
    explanation = explain(QUERY, KEY, VALUE, normalizer="sparsemax")
    reasons = {"dense": SOFTMAX, "sdpa": SOFTMAX, "tanh": tanh, "tiled": "reference takes precedence"}
    lines = ["reference runs", *(f"{name} does not: {reason}" for name, reason in reasons.items())]
    assert str(explanation) == "\n".join(lines)
    assert explain(QUERY, KEY, VALUE, implementation="tiled").chosen == "tiled"


def test_long_tables_go_to_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bands, "TILE", 25)
    explanation = explain(QUERY, KEY, VALUE, normalizer="sparsemax")
    assert explanation.chosen == "tiled"
    assert explanation.reasons["reference"] == "it would hold the whole table of scores, which tiles do not"
    # asked for by name it runs all the same
    expected = attend(QUERY, KEY, VALUE, normalizer="sparsemax", implementation="reference")
    torch.testing.assert_close(attend(QUERY, KEY, VALUE, normalizer="sparsemax"), expected)


def test_by_name_it_runs_or_raises_with_its_reason() -> None:
    for call in (attend, explain):
        with pytest.raises(ImplementationError, match=f"^implementation 'sdpa' cannot serve this call: {SOFTMAX}$"):
            call(QUERY, KEY, VALUE, normalizer="sparsemax", implementation="sdpa")
        with pytest.raises(UnknownNameError, match=r"^unknown implementation 'tile'; did you mean 'tiled'\?"):
            call(QUERY, KEY, VALUE, implementation="tile")


def test_autocast_gives_the_inputs_type_and_exact_scores() -> None:
    query, key, value = QUERY.bfloat16(), KEY.bfloat16(), VALUE.bfloat16()
    expected = attend(query, key, value, score=Cosine(0.1), return_map=True)
    with torch.autocast("cpu", torch.bfloat16):
        context, weights = attend(query, key, value, score=Cosine(0.1), return_map=True)
        assert torch.equal(weights.dense(), expected[1].dense())
        assert attend(QUERY, key, VALUE).dtype == torch.bfloat16
    assert context.dtype == torch.bfloat16
    assert weights.dense().dtype == torch.float32
    assert torch.equal(context, expected[0])


DTYPES = (torch.float32, torch.bfloat16, torch.float16)
TRIED = [
    (name, ("reference", "tiled")[(number + order) % 2], dtype)
    for number, name in enumerate(SCORES)
    for order, dtype in enumerate(DTYPES)
]
TRIED += [
    (name, "sdpa", dtype)
    for name, part in SCORES.items()
    for dtype in DTYPES
    if part.form == "dot" and (part.lowers_exactly or dtype == torch.float32)
]


@pytest.mark.parametrize(("name", "implementation", "dtype"), TRIED, ids=str)
def test_errors_are_at_most_three_times_the_plain_formulas(
    name: str, implementation: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bands, "TILE", 2**13)
    score = SCORES[name].for_widths(16, 16, 2)
    exact = [torch.randn(2, 2, length, width).to(dtype).double() for length, width in ((31, 16), (37, 16), (37, 13))]
    ahead, above = torch.randn(2, 2, 31, 13).double(), torch.ones(31, 37).triu(7).bool()

    def plain(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return score(query, key).masked_fill(above, -torch.inf).softmax(-1) @ value

    def attend_causally(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return attend(query, key, value, score=score, mask="causal", implementation=implementation)

    def outcome(call: Callable[[Tensor, Tensor, Tensor], Tensor], dtype: torch.dtype) -> list[Tensor]:
        leaves = [tensor.to(dtype).requires_grad_() for tensor in exact]
        context = call(*leaves)
        gradients = torch.autograd.grad(
            context, [*leaves, *score.parameters()], ahead.to(dtype), materialize_grads=True
        )
        return [tensor.double() for tensor in (context.detach(), *gradients)]

    for right, textbook, actual in zip(
        outcome(plain, torch.float64), outcome(plain, dtype), outcome(attend_causally, dtype), strict=True
    ):
        assert (actual - right).abs().max() <= 3 * (textbook - right).abs().max()


# PyTorch's compiler itself imports what PyTorch has deprecated, hence the filters below
CALLS: dict[str, dict[str, Any]] = {
    "causal": {"mask": "causal"},
    "window_and_padding": {"mask": Causal() & Window(2, 0), "lengths": torch.tensor([7, 5])},
    "padding_sparsemax": {"mask": Padding(torch.tensor([7, 5])), "normalizer": "sparsemax"},
    "tiled_dropout": {"mask": "causal", "dropout": 0.3, "seed": torch.tensor([11]), "implementation": "tiled"},
    "formula_dropout": {"score": "cosine", "dropout": 0.3, "seed": 11},
    "rotary_bias_cap": {"position": Rotary(), "bias": torch.randn(5, 7, generator=dice), "soft_cap": 3.0},
    "alibi_gaussian": {"position": "alibi", "score": "gaussian", "normalizer": "entmax15"},
    "table": {"mask": torch.rand(5, 7, generator=dice) < 0.7},
}


def check_compiled(arguments: dict[str, Any], backend: str) -> None:
    """Forward and backward in one graph, and the numbers of the eager call."""
    torch.compiler.reset()

    def context_and_gradients(call: Any) -> list[Tensor]:
        leaves = [tensor.clone().requires_grad_() for tensor in (QUERY, KEY, VALUE)]
        context = call(*leaves)
        return [context.detach(), *torch.autograd.grad(context.square().sum(), leaves)]

    def plain(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return attend(query, key, value, **arguments)

    torch.testing.assert_close(
        context_and_gradients(torch.compile(plain, fullgraph=True, backend=backend)),
        context_and_gradients(plain),
        rtol=1e-4,
        atol=1e-5,
    )


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:`torch.jit")
@pytest.mark.parametrize("name", CALLS)
def test_it_compiles(name: str) -> None:
    check_compiled(CALLS[name], "inductor" if name in ("causal", "formula_dropout") else "aot_eager")


@pytest.mark.filterwarnings("ignore:.torch.jit")  # PyTorch's own forward mode
@pytest.mark.parametrize("tile", [bands.TILE, 40])
def test_forward_mode_derivatives_whatever_auto_would_choose(tile: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bands, "TILE", tile)
    tensors = [QUERY.double(), KEY.double(), VALUE.double(), torch.randn(5, 7, dtype=torch.float64)]
    for index, tensor in enumerate(tensors):
        direction, step = torch.randn_like(tensor), 1e-6

        def context(sample: Tensor, index: int = index, **arguments: Any) -> Tensor:
            *three, bias = [sample if position == index else part for position, part in enumerate(tensors)]
            return attend(*three, bias=bias, **arguments)

        tangent = torch.func.jvp(context, (tensor,), (direction,))[1]
        around = [context(tensor + sign * step * direction, implementation="reference") for sign in (1, -1)]
        torch.testing.assert_close(tangent, (around[0] - around[1]) / (2 * step), atol=1e-7, rtol=1e-6)


class Attending(torch.nn.Module):
    def __init__(self, score: Any, arguments: dict[str, Any]) -> None:
        super().__init__()
        self.score, self.arguments = score, arguments

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return attend(query, key, value, score=self.score, **self.arguments)


EXPORTED = [
    ("scaled_dot", {"mask": "causal"}, False),
    ("scaled_dot", {"normalizer": "sparsemax", "position": "alibi"}, False),
    (Additive(4, 4, 6), {"mask": "causal"}, True),
    (lambda query, key: query @ key.mT, {}, True),
    pytest.param("scaled_dot", {}, True, marks=pytest.mark.slow),
    pytest.param("scaled_dot", {"mask": "causal"}, True, marks=pytest.mark.slow),
    pytest.param("scaled_dot", {"mask": "causal", "query_start": 0}, False, marks=pytest.mark.slow),
    pytest.param(Additive(4, 4, 6), {}, False, marks=pytest.mark.slow),
]


@pytest.mark.no_cover
@pytest.mark.parametrize(("score", "arguments", "gradients"), EXPORTED)
def test_it_is_exported_with_sizes_left_open(score: Any, arguments: dict[str, Any], gradients: bool) -> None:
    model, (batch, queries, keys) = Attending(score, arguments), map(torch.export.Dim, ("batch", "queries", "keys"))
    actual, reference = {0: batch, 2: queries}, {0: batch, 2: keys}
    with torch.set_grad_enabled(gradients):
        # not the sizes that are tried after
        program = torch.export.export(model, (QUERY, KEY, VALUE), dynamic_shapes=(actual, reference, reference))
    exported = program.module()
    for batch, queries, keys in ((5, 3, 11), (3, 130, 70)):
        sides = torch.randn(batch, 3, queries, 4), torch.randn(batch, 3, keys, 4), torch.randn(batch, 3, keys, 11)
        torch.testing.assert_close(exported(*sides), model(*sides), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", SCORES)
def test_the_meta_device_tells_shapes(name: str) -> None:
    with torch.device("meta"):
        query, key, value = (
            torch.randn(2, 3, length, width, requires_grad=True) for length, width in ((130, 4), (170, 4), (170, 11))
        )
        score = SCORES[name].for_widths(4, 4, 3)
        for implementation in ("auto", "reference", "tiled"):
            arguments = {"mask": Window(3, 0), "position": "alibi", "implementation": implementation}
            context = attend(query, key, value, score=score, **arguments)
            assert context.device.type == "meta"
            assert context.shape == (2, 3, 130, 11)
            assert torch.autograd.grad(context.sum(), query)[0].shape == query.shape
        heads = MultiHeadAttention(12, 3, score="additive")
        assert heads(torch.randn(2, 130, 12, requires_grad=True), mask="causal").shape == (2, 130, 12)


@pytest.mark.filterwarnings("ignore:The .grad attribute")  # PyTorch's own, while it compiles
def test_ones_own_score_may_be_a_compiled_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bands, "TILE", 200)

    def score(query: Tensor, key: Tensor) -> Tensor:
        return -(query[..., :, None, :] - key[..., None, :, :]).abs().sum(-1)

    outcomes = []
    for way in (score, torch.compile(score, backend="aot_eager")):
        query = QUERY.clone().requires_grad_()
        context = attend(query, KEY, VALUE, score=way, implementation="tiled")
        outcomes.append((context, *torch.autograd.grad(context.square().sum(), query)))
    torch.testing.assert_close(*outcomes)
