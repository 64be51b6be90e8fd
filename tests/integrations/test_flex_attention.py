"""Against PyTorch's own eager FlexAttention, which has no gradients on a CPU, and the dense formula in float64."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.attention import flex_attention as torch_flex
from torch.nn.attention.flex_attention import AuxRequest, BlockMask
from torch.utils._python_dispatch import TorchDispatchMode

import attent
from attent.attention import prepare
from attent.attention.attend import run as run_call
from attent.attention.backends import bands, tiled
from attent.attention.call import Prepared
from attent.errors import ArgumentError, DeviceError, ShapeError

B, H, T, D = 2, 4, 70, 8
SLOPES = torch.linspace(0.1, 1.0, H)
TABLE = torch.randn(H, 2 * T)
DOCUMENTS = torch.tensor([0] * 20 + [1] * 37 + [2] * 13)

Mod = Callable[..., Tensor]

SCORE_MODS: dict[str, Mod | None] = {
    "none": None,
    "soft cap": lambda s, b, h, i, j: 2 * torch.tanh(s / 2),
    "ALiBi": lambda s, b, h, i, j: s + SLOPES[h] * (j - i),
    "relative bias": lambda s, b, h, i, j: s + TABLE[h, i - j + T],
    "hidden by the score": lambda s, b, h, i, j: torch.where((i >= j) & (i > 3), s, -float("inf")),
    "of the sequence": lambda s, b, h, i, j: s * (b + 1),
}
MASK_MODS: dict[str, Mod | None] = {
    "none": None,
    "causal": lambda b, h, i, j: i >= j,
    "sliding window": lambda b, h, i, j: (i >= j) & (i - j < 16),
    "documents": lambda b, h, i, j: DOCUMENTS[i] == DOCUMENTS[j],
    "prefix": lambda b, h, i, j: (i >= j) | (j < 20),
    "dilated": lambda b, h, i, j: (i - j) % 3 == 0,
    "empty rows": lambda b, h, i, j: (i >= j) & (i > 9 * h + b),
}


@pytest.fixture(autouse=True)
def _eager(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_flex, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", True)


@pytest.fixture(params=["one tile", "many tiles"])
def tile(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "many tiles":
        monkeypatch.setattr(bands, "TILE", 2 * B * H * T)
        monkeypatch.setattr(bands, "WHOLE", 1)
        monkeypatch.setattr("attent.attention.backends.bands.LEAST", 64)


def make_inputs(dtype: torch.dtype = torch.float32, heads: int = H, batch: int = B) -> list[Tensor]:
    shapes = (B, H, T, D), (batch, heads, T, D), (batch, heads, T, 5)
    return [torch.randn(shape).to(dtype).requires_grad_() for shape in shapes]


def block_mask(name: str) -> BlockMask | None:
    mask_mod = MASK_MODS[name]
    return None if mask_mod is None else attent.create_block_mask(mask_mod, B, H, T, T, BLOCK_SIZE=16)


def dense(query: Tensor, key: Tensor, value: Tensor, score_mod: Mod | None, mask_mod: Mod | None) -> Tensor:
    """The formula, with a mod that also takes indices that broadcast."""
    b, h, i, j = torch.meshgrid(*(torch.arange(size) for size in (B, H, T, T)), indexing="ij")
    scores = query @ key.mT / D**0.5
    scores = scores if score_mod is None else score_mod(scores, b, h, i, j)
    if mask_mod is not None:
        scores = scores.masked_fill(~mask_mod(b, h, i, j), -torch.inf)
    hidden = scores == -torch.inf
    weights = scores.masked_fill(hidden, torch.finfo(scores.dtype).min).softmax(-1).masked_fill(hidden, 0.0)
    return weights @ value


def gradients(context: Tensor, tensors: list[Tensor]) -> list[Tensor]:
    return list(torch.autograd.grad(context.sin().sum(), tensors, retain_graph=True))


PAIRS = [*itertools.product(SCORE_MODS, MASK_MODS)]


@pytest.mark.parametrize(
    ("tile", "score", "mask"),
    [*(("many tiles", *pair) for pair in PAIRS), *(("one tile", *pair) for pair in PAIRS[::4])],
    indirect=["tile"],
)
@pytest.mark.usefixtures("tile")
def test_it_is_pytorchs_with_gradients(score: str, mask: str) -> None:
    tensors, blocks = make_inputs(), block_mask(mask)
    context, (lse, maximum) = attent.flex_attention(
        *tensors, SCORE_MODS[score], blocks, return_aux=AuxRequest(lse=True, max_scores=True)
    )
    reference, (their_lse, _) = torch_flex.flex_attention(
        *(t.detach() for t in tensors), SCORE_MODS[score], blocks, return_aux=AuxRequest(lse=True)
    )
    torch.testing.assert_close(context, reference)
    torch.testing.assert_close(lse, their_lse)
    assert bool((maximum <= lse).all())
    exact = [tensor.detach().double().requires_grad_() for tensor in tensors]
    right = gradients(dense(*exact, SCORE_MODS[score], MASK_MODS[mask]), exact)
    for actual, want in zip(gradients(context, tensors), right, strict=True):
        torch.testing.assert_close(actual.double(), want, atol=2e-5, rtol=1e-4)
    with torch.no_grad():
        torch.testing.assert_close(attent.flex_attention(*tensors, SCORE_MODS[score], blocks), reference)


@pytest.mark.usefixtures("tile")
def test_a_grouped_head_a_scale_and_one_sequence_of_keys() -> None:
    tensors, blocks = make_inputs(heads=2, batch=1), block_mask("causal")
    arguments: dict[str, Any] = {"block_mask": blocks, "scale": 0.3, "enable_gqa": True}
    context = attent.flex_attention(*tensors, SCORE_MODS["ALiBi"], **arguments)
    torch.testing.assert_close(
        context, torch_flex.flex_attention(*(t.detach() for t in tensors), SCORE_MODS["ALiBi"], **arguments)
    )
    query, key, value = (tensor.detach().double().requires_grad_() for tensor in tensors)
    sides = [tensor.repeat_interleave(2, 1).expand(B, -1, -1, -1) for tensor in (key, value)]
    right = dense(query * 0.3 * D**0.5, *sides, SCORE_MODS["ALiBi"], MASK_MODS["causal"])
    for actual, want in zip(gradients(context, tensors), gradients(right, [query, key, value]), strict=True):
        torch.testing.assert_close(actual.double(), want, atol=2e-5, rtol=1e-4)


GLOBAL = torch.randn(H, requires_grad=True)


class Slopes(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.slopes = nn.Parameter(torch.randn(H))

    def forward(self, s: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return s + self.slopes[h] * (i - j)


def captures() -> dict[str, tuple[Mod, list[Tensor]]]:
    """Functions of the score by the kind of what they capture, and the leaves."""
    leaf, table, module = torch.randn(H, requires_grad=True), torch.randn(H, 2 * T, requires_grad=True), Slopes()
    computed = (leaf[:, None] * table).tanh()
    first, second = computed.split([T, T], -1)

    def with_argument(slopes: Tensor, s: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return s * slopes[h]

    def nested(s: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        def inner(s: Tensor) -> Tensor:
            return s + leaf[h] * first[h, i]

        return inner(s)

    return {
        "leaf": (lambda s, b, h, i, j: s + table[h, i - j + T], [table]),
        "global": (lambda s, b, h, i, j: s * GLOBAL[h], [GLOBAL]),
        "partial": (partial(with_argument, leaf), [leaf]),
        "parameter": (lambda s, b, h, i, j: module(s, b, h, i, j), [module.slopes]),
        "module itself": (module.forward, [module.slopes]),
        "computed before": (lambda s, b, h, i, j: s + computed[h, i - j + T], [leaf, table]),
        "computed, and its leaf too": (lambda s, b, h, i, j: s * leaf[h] + computed[h, i], [leaf, table]),
        "two outputs of one function": (lambda s, b, h, i, j: s + first[h, i] * second[h, j], [leaf, table]),
        "nested": (nested, [leaf, table]),
        "in a list": (lambda s, b, h, i, j, saved=[computed]: s + saved[0][h, j], [leaf, table]),
    }


@pytest.mark.parametrize("kind", captures())
@pytest.mark.usefixtures("tile")
def test_captured_tensors_get_their_gradients(kind: str) -> None:
    torch.manual_seed(0)
    score_mod, leaves = captures()[kind]
    tensors = make_inputs()
    context = attent.flex_attention(*tensors, score_mod, block_mask("causal"))
    right = dense(*tensors, score_mod, MASK_MODS["causal"])
    torch.testing.assert_close(context, right)
    for actual, want in zip(gradients(context, tensors + leaves), gradients(right, tensors + leaves), strict=True):
        torch.testing.assert_close(actual, want, atol=1e-4, rtol=1e-4)


def test_a_gradient_that_would_be_lost_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bands, "TILE", 2 * B * H * T)
    table = torch.randn(3, requires_grad=True).exp()

    def score_mod(score: Tensor) -> Tensor:
        with torch._C.DisableTorchFunction():
            return score * table.sum()

    with pytest.raises(ArgumentError, match="whose gradient would be lost"):
        attent.flex_attention(*make_inputs(), lambda s, b, h, i, j: score_mod(s))


@pytest.mark.slow
def test_derivatives_by_differences(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, numbers in (("TILE", 20), ("WHOLE", 1)):
        monkeypatch.setattr(f"attent.attention.backends.bands.{name}", numbers)
    monkeypatch.setattr("attent.attention.backends.bands.LEAST", 1)
    table = torch.randn(2, 10, dtype=torch.float64, requires_grad=True)
    tensors = [torch.randn(1, 2, 5, 2, dtype=torch.float64, requires_grad=True) for _ in range(3)]
    blocks = attent.create_block_mask(lambda b, h, i, j: (i >= j) & (i > 1), None, None, 5, 5, BLOCK_SIZE=2)

    def compute(query: Tensor, key: Tensor, value: Tensor, table: Tensor) -> tuple[Tensor, Tensor]:
        context, lse = attent.flex_attention(
            query, key, value, lambda s, b, h, i, j: 3 * torch.tanh(s + table[h, i - j + 5]), blocks, return_lse=True
        )
        return context, lse[:, :, 2:]

    assert tiled.choose(prepare(*tensors)).name == "row_tiles"
    assert torch.autograd.gradcheck(compute, (*tensors, table))
    assert torch.autograd.gradgradcheck(lambda *inputs: compute(*inputs)[0], (*tensors, table))


@pytest.mark.needs_native
@pytest.mark.parametrize(
    ("score", "mask", "implementation"),
    [
        ("none", "none", "auto"),
        ("none", "sliding window", "dense"),
        ("none", "documents", "dense"),
        ("none", "dilated", "tiled"),
        ("ALiBi", "causal", "dense"),
    ],
)
def test_a_mask_that_is_one_range_of_keys_goes_to_dense_attention(
    score: str, mask: str, implementation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests: list[str] = []

    def run(prepared: Prepared, implementation: str) -> Tensor:
        requests.append(implementation)
        return run_call(prepared, implementation)

    monkeypatch.setattr("attent.integrations.flex_attention.run", run)
    attent.flex_attention(*make_inputs(), SCORE_MODS[score], block_mask(mask))
    assert requests == [implementation]


def test_queries_without_any_key() -> None:
    tensors, table = make_inputs(), torch.zeros(H, requires_grad=True)
    blocks = attent.create_block_mask(lambda b, h, i, j: i < 0, None, None, T, T)
    context, lse = attent.flex_attention(*tensors, lambda s, b, h, i, j: s + table[h], blocks, return_lse=True)
    assert not bool(context.any())
    assert bool((lse == -torch.inf).all())
    assert not any(
        bool(gradient.any())
        for gradient in torch.autograd.grad(context.sum(), [*tensors, table], materialize_grads=True)
    )
    empty = attent.flex_attention(*(tensor[:, :, :0] for tensor in tensors), SCORE_MODS["ALiBi"])
    assert empty.shape == (B, H, 0, 5)


def test_the_weights_as_a_map() -> None:
    tensors = make_inputs()
    context, weights = attent.flex_attention(*tensors, SCORE_MODS["ALiBi"], block_mask("causal"), return_map=True)
    torch.testing.assert_close(weights.dense() @ tensors[2], context)
    torch.testing.assert_close(
        weights.detach().entropy(), -(weights.dense() * weights.dense().clamp(min=1e-30).log()).sum(-1).detach()
    )


def test_nothing_of_a_hidden_block_reaches_the_result() -> None:
    query, key, value = (tensor.detach() for tensor in make_inputs())
    key[:, :, 64:], value[:, :, 64:] = torch.nan, torch.nan
    blocks = attent.create_block_mask(lambda b, h, i, j: j < 64, None, None, T, T, BLOCK_SIZE=16)
    assert bool(attent.flex_attention(query, key, value, SCORE_MODS["ALiBi"], blocks).isfinite().all())


class Largest(TorchDispatchMode):
    """The most numbers that a tensor of its own has which PyTorch makes meanwhile."""

    numbers = 0

    def __torch_dispatch__(self, function: Any, types: Any, arguments: Any = (), named: Any = None) -> Any:
        result = function(*arguments, **(named or {}))
        for tensor in torch.utils._pytree.tree_leaves(result):
            if isinstance(tensor, Tensor):
                self.numbers = max(self.numbers, tensor.untyped_storage().nbytes() // tensor.element_size())
        return result


def test_its_memory_is_linear(monkeypatch: pytest.MonkeyPatch) -> None:
    length = 1024
    monkeypatch.setattr(bands, "TILE", 2**13)
    tensors = [torch.randn(1, 2, length, 4, requires_grad=True) for _ in range(3)]
    slopes = SLOPES.clone().requires_grad_()
    blocks = attent.create_block_mask(lambda b, h, i, j: i >= j, None, None, length, length)
    with Largest() as largest:
        context, lse = attent.flex_attention(
            *tensors, lambda s, b, h, i, j: s + slopes[h] * (j - i), blocks, return_lse=True
        )
        torch.autograd.grad(context.sum() + lse.sum(), [*tensors, slopes])
    assert largest.numbers <= length**2 // 8


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
def test_it_runs_beside_compiled_code() -> None:
    tensors, blocks = make_inputs(), block_mask("causal")

    def block(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return attent.flex_attention(query, key, value, SCORE_MODS["ALiBi"], blocks) * 2

    compiled: Any = torch.compile(block, backend="eager")
    torch.testing.assert_close(compiled(*tensors), block(*tensors))


def test_what_does_not_fit_is_refused() -> None:
    query, key, value = make_inputs()
    blocks = block_mask("causal")
    assert blocks is not None
    with pytest.raises(ShapeError, match="enable_gqa"):
        attent.flex_attention(query, key[:, :2], value[:, :2])
    with pytest.raises(ShapeError, match="create one of this size"):
        attent.flex_attention(query[:, :, :9], key, value, block_mask=blocks)
    with pytest.raises(ShapeError, match="B = 2"):
        attent.flex_attention(query[:1], key[:1], value[:1], block_mask=blocks)
    with pytest.raises(ShapeError, match=r"\(B, H, T, D\)"):
        attent.flex_attention(query[0], key, value)
    with pytest.raises(ArgumentError, match="old name"):
        attent.flex_attention(query, key, value, return_lse=True, return_aux=AuxRequest(lse=True))
    with pytest.raises(ArgumentError, match="floating-point score"):
        attent.flex_attention(query, key, value, lambda s, b, h, i, j: i >= j)
    with pytest.raises(DeviceError, match="block_mask must be on"):
        attent.flex_attention(query, key, value, block_mask=blocks.to("meta"))
