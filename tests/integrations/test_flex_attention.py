"""Against PyTorch's own eager FlexAttention, which has no gradients on a CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.attention import flex_attention as torch_flex
from torch.nn.attention.flex_attention import AuxRequest, BlockMask

import attent
from attent.attention import prepare
from attent.attention.attend import run as run_call
from attent.attention.backends import bands, tiled
from attent.attention.call import Prepared
from attent.errors import ArgumentError, DeviceError, DTypeError, ShapeError

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


def make_inputs(heads: int = H, batch: int = B) -> list[Tensor]:
    shapes = (B, H, T, D), (batch, heads, T, D), (batch, heads, T, 5)
    return [torch.randn(shape, requires_grad=True) for shape in shapes]


def block_mask(name: str) -> BlockMask | None:
    mask_mod = MASK_MODS[name]
    return None if mask_mod is None else attent.create_block_mask(mask_mod, B, H, T, T, BLOCK_SIZE=16)


SCORES_AND_MASKS = [
    *(("ALiBi", mask) for mask in MASK_MODS),
    *((score, "documents") for score in SCORE_MODS if score != "ALiBi"),
    ("none", "none"),
    ("soft cap", "none"),
]


@pytest.mark.parametrize(
    ("score", "mask", "has_many_tiles"),
    [*((*pair, True) for pair in SCORES_AND_MASKS), *((*pair, False) for pair in SCORES_AND_MASKS[::4])],
)
def test_it_is_pytorchs(score: str, mask: str, has_many_tiles: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if has_many_tiles:
        for name, numbers in (("TILE", 2 * B * H * T), ("WHOLE", 1), ("LEAST", 64)):
            monkeypatch.setattr(bands, name, numbers)
    tensors, arguments = make_inputs(), (SCORE_MODS[score], block_mask(mask), 0.3)
    context, (lse, maximum) = attent.flex_attention(
        *tensors, *arguments, return_aux=AuxRequest(lse=True, max_scores=True)
    )
    detached = [tensor.detach() for tensor in tensors]
    reference, (their_lse, _) = torch_flex.flex_attention(*detached, *arguments, return_aux=AuxRequest(lse=True))
    with torch.no_grad():
        torch.testing.assert_close(attent.flex_attention(*tensors, *arguments), reference)
    torch.testing.assert_close(context, reference)
    torch.testing.assert_close(lse, their_lse)
    assert bool((maximum <= lse).all())


def test_grouped_heads_and_one_sequence_of_keys_are_pytorchs() -> None:
    tensors = [tensor.detach() for tensor in make_inputs(heads=2, batch=1)]
    arguments: dict[str, Any] = {"block_mask": block_mask("causal"), "enable_gqa": True}
    context = attent.flex_attention(*tensors, SCORE_MODS["ALiBi"], **arguments)
    torch.testing.assert_close(context, torch_flex.flex_attention(*tensors, SCORE_MODS["ALiBi"], **arguments))


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
    for name, numbers in (("TILE", 20), ("WHOLE", 1), ("LEAST", 1)):
        monkeypatch.setattr(bands, name, numbers)
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
    for gradient in torch.autograd.grad(context.sum(), [*tensors, table], materialize_grads=True):
        assert not bool(gradient.any())
    empty = attent.flex_attention(*(tensor[:, :, :0] for tensor in tensors), SCORE_MODS["ALiBi"])
    assert empty.shape == (B, H, 0, 5)


def test_the_weights_as_a_map() -> None:
    tensors = make_inputs()
    context, weights = attent.flex_attention(*tensors, SCORE_MODS["ALiBi"], block_mask("causal"), return_map=True)
    torch.testing.assert_close(weights.dense() @ tensors[2], context)
    dense = weights.dense().detach()
    torch.testing.assert_close(weights.detach().entropy(), -(dense * dense.clamp(min=1e-30).log()).sum(-1))


def test_nothing_of_a_hidden_block_reaches_the_result() -> None:
    query, key, value = (tensor.detach() for tensor in make_inputs())
    key[:, :, 64:], value[:, :, 64:] = torch.nan, torch.nan
    blocks = attent.create_block_mask(lambda b, h, i, j: j < 64, None, None, T, T, BLOCK_SIZE=16)
    assert bool(attent.flex_attention(query, key, value, SCORE_MODS["ALiBi"], blocks).isfinite().all())


def test_its_memory_is_linear(largest: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    length = 512
    monkeypatch.setattr(bands, "TILE", 2**12)
    tensors = [torch.randn(1, 2, length, 4, requires_grad=True) for _ in range(3)]
    slopes = SLOPES.clone().requires_grad_()
    blocks = attent.create_block_mask(lambda b, h, i, j: i >= j, None, None, length, length)
    with largest:
        context, lse = attent.flex_attention(
            *tensors, lambda s, b, h, i, j: s + slopes[h] * (j - i), blocks, return_lse=True
        )
        torch.autograd.grad(context.sum() + lse.sum(), [*tensors, slopes])
    # float32, a quarter of all pairs
    assert largest.bytes <= length**2


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
    both_names: dict[str, Any] = {"return_lse": True, "return_aux": AuxRequest(lse=True)}
    nested = torch.nested.nested_tensor([torch.randn(size, H, D) for size in (3, 2)], layout=torch.jagged).transpose(
        1, 2
    )
    for tensors, options, error, message in (
        ((query, key[:, :2], value[:, :2]), {}, ShapeError, "enable_gqa"),
        ((query[:, :, :9], key, value), {"block_mask": blocks}, ShapeError, "create one of this size"),
        ((query[:1], key[:1], value[:1]), {"block_mask": blocks}, ShapeError, "B = 2"),
        ((query[0], key, value), {}, ShapeError, r"\(B, H, T, D\)"),
        ((query, key, value), both_names, ArgumentError, "old name"),
        ((query, key, value), {"score_mod": lambda s, b, h, i, j: i >= j}, ArgumentError, "floating-point score"),
        ((query, key, value), {"block_mask": blocks.to("meta")}, DeviceError, "block_mask must be on"),
        ((query, key.half(), value.half()), {}, DTypeError, "dtype"),
        ((nested, nested, nested), {}, ArgumentError, "nested"),
    ):
        with pytest.raises(error, match=message):
            attent.flex_attention(*tensors, **options)
