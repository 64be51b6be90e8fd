"""torch.compile captures every call of attend in one graph, with our operators where the library computes it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from attent.attention import attend, explain, masks
from attent.attention.backends import bands
from attent.attention.masks import Causal, Documents, Padding, Prefix, Table, Window
from attent.attention.multihead import MultiHeadAttention
from attent.attention.normalizers import NORMALIZERS, TopK
from attent.attention.positions import Alibi, RelativeBias, Rotary
from attent.attention.scores import SCORES
from attent.attention.weightings import GaussianWindow
from attent.ops import native
from attent.ops.dense_attention import is_compiled

pytestmark = [
    pytest.mark.skipif(not is_compiled(), reason="no extension: attent was installed without a compiler"),
    pytest.mark.no_cover,
    # PyTorch's compiler itself imports what PyTorch has deprecated
    pytest.mark.filterwarnings("ignore:.torch.jit"),
]

# the width is even for rotary's sake, the other sizes are primes
B, H, TQ, TK, D, DV = 2, 3, 5, 7, 4, 11
dice = torch.Generator().manual_seed(0)


def drawn(*shape: int) -> Tensor:
    return torch.randn(shape, generator=dice)


DOCUMENTS = torch.tensor([[0, 0, 1, 1, 1, 2, -1], [0, 1, 1, 1, 2, 2, 2]])
CHOICES = torch.tensor([[0, 2], [1, 1], [-1, -1], [6, 3], [4, 0]])
MASKS: dict[str, Any] = {
    "none": None,
    "around": masks.Around(3 + 2 * drawn(B, TQ), 2),
    "causal": Causal(),
    "documents": Documents(DOCUMENTS),
    "excluded": masks.Excluded(CHOICES),
    "padding": Padding(torch.tensor([5, 3])),
    "per_head": masks.PerHead([Causal(), Window(1, 0), Padding(torch.tensor([6, 2]))]),
    "prefix": Prefix(torch.tensor([3, 0])),
    "selected": masks.Selected(CHOICES),
    "table": Table(drawn(B, H, TQ, TK) < 0.3),
    "window": Window(2, 1),
    "joined": (Causal() | Prefix(2)) & Documents(DOCUMENTS),
    "nothing": Table(torch.zeros(TQ, 1, dtype=torch.bool)),
}
POSITIONS: dict[str, Callable[[], Any]] = {"rotary": Rotary, "alibi": Alibi, "relative_bias": lambda: RelativeBias(H)}
PLAIN: dict[str, dict[str, Any]] = {
    "bias": {"bias": drawn(B, 1, TQ, TK).masked_fill(drawn(B, 1, TQ, TK) > 1, -torch.inf)},
    "one bias for all keys": {"bias": drawn(B, 1, TQ, 1), "mask": "causal"},
    "soft cap": {"soft_cap": 1.5},
    "sink": {"sink": drawn(H), "mask": "causal"},
    "dropout": {"dropout": 0.3, "seed": 5},
    "seed of a tensor": {"dropout": 0.3, "seed": torch.tensor([5]), "mask": "causal"},
    "lengths": {"lengths": torch.tensor([7, 4]), "query_start": 0, "mask": "causal"},
    "everything": {
        "bias": drawn(1, H, TQ, TK), "soft_cap": 3.0, "sink": drawn(H), "dropout": 0.2, "seed": 7,
        "position": Alibi(), "mask": Causal() & Padding(torch.tensor([6, 3])),
    },
}  # fmt: skip


def score(name: str) -> nn.Module:
    torch.manual_seed(1)
    module = SCORES[name].for_widths(D, D, H)
    for parameter in module.parameters():
        nn.init.normal_(parameter)
    return module


def context_and_gradients(call: Any, leaves: list[Tensor]) -> list[Tensor]:
    context = call(*leaves[:3])
    upstream = torch.randn(context.shape, generator=torch.Generator().manual_seed(9)).to(context.dtype)
    gradients = torch.autograd.grad(context, leaves, upstream, allow_unused=True, materialize_grads=True)
    return [context.detach(), *gradients]


def check(
    compile_whole: Any,
    backend: str = "aot_eager",
    *,
    dtype: torch.dtype = torch.float32,
    groups: int = H,
    **arguments: Any,
) -> None:
    """Compare contexts and gradients with those of the eager call, and the operators in the graph with its backend."""
    shapes = (B, H, TQ, D), (B, groups, TK, D), (B, groups, TK, DV)
    leaves = [(2 * drawn(*shape)).to(dtype).requires_grad_() for shape in shapes]
    leaves += [p for part in arguments.values() if isinstance(part, nn.Module) for p in part.parameters()]
    leaves += [arguments[name].requires_grad_() for name in ("bias", "sink") if isinstance(arguments.get(name), Tensor)]

    def call(*tensors: Tensor) -> Tensor:
        return attend(*tensors, **arguments)

    compiled, operators = compile_whole(call, backend)
    torch.testing.assert_close(
        context_and_gradients(compiled, leaves), context_and_gradients(call, leaves), rtol=1e-4, atol=1e-5
    )
    ours = {"dense": ["attent.dense_attention.default"], "tanh": ["attent.tanh_scores.default"]}
    assert operators() == [ours.get(explain(*leaves[:3], **arguments).chosen, [])]


def test_a_plain_form_under_softmax_is_our_operator(compile_whole: Any) -> None:
    check(compile_whole, **PLAIN["everything"])


@pytest.mark.slow
@pytest.mark.parametrize("name", PLAIN)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_every_option_of_a_plain_form(name: str, dtype: torch.dtype, compile_whole: Any) -> None:
    check(compile_whole, dtype=dtype, groups=1, **PLAIN[name])


@pytest.mark.slow
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("name", ["scaled_dot", "additive", "gated"])
def test_every_mask(name: str, mask: str, compile_whole: Any) -> None:
    check(compile_whole, score=score(name), mask=MASKS[mask])


@pytest.mark.slow
@pytest.mark.parametrize("name", SCORES)
@pytest.mark.parametrize("mask", ["none", "causal"])
def test_every_score(name: str, mask: str, compile_whole: Any) -> None:
    check(compile_whole, score=score(name), mask=MASKS[mask])


@pytest.mark.slow
@pytest.mark.parametrize("name", NORMALIZERS)
@pytest.mark.parametrize("scored", ["scaled_dot", "additive"])
def test_every_normalizer(name: str, scored: str, compile_whole: Any) -> None:
    normalizer = TopK(3) if name == "top_k" else NORMALIZERS[name]()
    check(compile_whole, score=score(scored), normalizer=normalizer, mask=MASKS["padding"])


@pytest.mark.slow
@pytest.mark.parametrize("name", POSITIONS)
@pytest.mark.parametrize("scored", ["scaled_dot", "additive", "gated"])
def test_every_position(name: str, scored: str, compile_whole: Any) -> None:
    check(compile_whole, score=score(scored), position=POSITIONS[name](), mask="causal", query_start=torch.tensor([2]))


@pytest.mark.slow
def test_a_weighting_and_sequences_with_positions_of_their_own(compile_whole: Any) -> None:
    check(compile_whole, weighting=GaussianWindow(3 + drawn(B, TQ), 2.0), mask="causal")
    check(compile_whole, position="alibi", query_start=torch.tensor([2, 0]))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["seed of a tensor", "everything"])
def test_inductor_calls_the_operator(name: str, compile_whole: Any) -> None:
    check(compile_whole, "inductor", **PLAIN[name])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["additive", "gated"])
def test_tiles_of_a_large_table(name: str, compile_whole: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bands, "TILE", 40)
    scored = score(name)
    leaves = [(2 * drawn(B, H, length, D)).requires_grad_() for length in (TQ, TK, TK)]

    def call(*tensors: Tensor) -> Tensor:
        return attend(*tensors, score=scored, mask="causal")

    compiled, operators = compile_whole(call)
    torch.testing.assert_close(
        context_and_gradients(compiled, leaves), context_and_gradients(call, leaves), rtol=1e-4, atol=1e-5
    )
    assert len(operators()) == 1


LENGTHWISE: dict[str, Callable[[int], dict[str, Any]]] = {
    "causal": lambda length: {"mask": "causal"},
    "alibi": lambda length: {"position": Alibi()},
    "lengths": lambda length: {"lengths": torch.tensor([length, length - 2])},
    "table": lambda length: {"mask": drawn(length, length) < 1.0},
    "dropout": lambda length: {"dropout": 0.2, "seed": torch.tensor([length])},
    "additive": lambda length: {"score": score("additive")},
    "cosine": lambda length: {"score": "cosine"},
}


def check_lengths(compile_whole: Any, name: str, dynamic: bool | None, graphs: int) -> None:
    """Compare calls of several lengths, and count the graphs."""
    compiled, operators = compile_whole(attend, dynamic=dynamic)
    for length in (9, 12, 31, 64):
        arguments = LENGTHWISE[name](length)
        leaves = [(2 * drawn(B, H, length, D)).requires_grad_() for _ in range(3)]
        results = [
            context_and_gradients(lambda *tensors, call=call: call(*tensors, **arguments), leaves)  # noqa: B023
            for call in (compiled, attend)
        ]
        torch.testing.assert_close(*results, rtol=1e-4, atol=1e-5)
    expected = {"additive": ["attent.tanh_scores.default"], "cosine": []}
    assert operators() == [expected.get(name, ["attent.dense_attention.default"])] * graphs


def test_one_graph_serves_every_length(compile_whole: Any) -> None:
    check_lengths(compile_whole, "causal", True, 1)


@pytest.mark.slow
@pytest.mark.parametrize("name", LENGTHWISE)
@pytest.mark.parametrize(("dynamic", "graphs"), [(True, 1), (None, 2)])
def test_one_graph_serves_every_length_of_a_form(
    name: str, dynamic: bool | None, graphs: int, compile_whole: Any
) -> None:
    check_lengths(compile_whole, name, dynamic, graphs)


@pytest.mark.slow
def test_marked_axes_stay_open(compile_whole: Any) -> None:
    compiled, operators = compile_whole(attend)
    for length in (9, 12, 31):
        tensors = [drawn(B, H, length, D) for _ in range(3)]
        for tensor in tensors:
            torch._dynamo.mark_dynamic(tensor, 2)
        torch.testing.assert_close(compiled(*tensors, mask="causal"), attend(*tensors, mask="causal"))
    assert operators() == [["attent.dense_attention.default"]]


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"position": "alibi", "key_value_heads": 2}, {"score": "additive"}], ids=str)
@pytest.mark.parametrize("is_half", [False, True], ids=["float32", "autocast"])
def test_modules_in_training_are_whole_graphs(options: dict[str, Any], is_half: bool, compile_whole: Any) -> None:
    attention = MultiHeadAttention(16, 4, dropout=0.2, sink="score" not in options, **options)
    features, lengths = 3 * torch.randn(2, 7, 16), torch.tensor([7, 4])

    def context(features: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=is_half):
            return attention(features, mask="causal", lengths=lengths)

    compiled, operators = compile_whole(context)
    results = []
    for call in (compiled, context):
        torch.manual_seed(4)
        output = call(features)
        results.append([output, *torch.autograd.grad(output.float().square().sum(), list(attention.parameters()))])
    assert results[0][0].dtype == (torch.bfloat16 if is_half else torch.float32)
    torch.testing.assert_close(*results, rtol=1e-4, atol=1e-5)
    assert operators() == [[f"attent.{'tanh_scores' if 'score' in options else 'dense_attention'}.default"]]


def test_without_the_library_pytorch_computes(compile_whole: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "library", lambda: None)
    tensors = [2 * drawn(B, H, TK, D) for _ in range(3)]
    compiled, operators = compile_whole(attend)
    torch.testing.assert_close(compiled(*tensors, mask="causal"), attend(*tensors, mask="causal"))
    assert operators() == [[]]


@pytest.mark.slow
def test_transforms_and_exported_graphs_hold_plain_operators(compile_whole: Any) -> None:
    tensors = [2 * drawn(B, H, TK, D) for _ in range(3)]
    compiled, operators = compile_whole(torch.func.vmap(attend))
    torch.testing.assert_close(compiled(*tensors), attend(*tensors))
    assert operators() == [[]]
    for options in ({}, {"sink": True, "position": "alibi"}, {"score": "additive"}):
        attention = MultiHeadAttention(8, 2, **options).eval()
        for strict in (False, True):
            exported = torch.export.export(attention, (drawn(2, 7, 8),), strict=strict)
            assert not [node for node in exported.graph.nodes if str(node.target).startswith("attent.")]
