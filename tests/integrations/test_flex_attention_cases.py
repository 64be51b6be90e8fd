"""The cases of PyTorch's own FlexAttention tests that make sense on a CPU, written anew, each forward and backward.

PyTorch's file is `test/inductor/test_flex_attention.py`; `test_flex_attention_newer_cases.py` names the commit that was
read, lists every test and gives the reason of each that is left out. Each case is held against the dense formula in
float64: the largest error of the context and of every gradient is at most three times that of the dense formula in
float32.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, and_masks, noop_mask, or_masks

import attent
from attent.attention.backends import row_tiles
from attent.errors import DTypeError

B, H, T, D = 2, 3, 67, 8
INFINITY = float("inf")
Mod = Callable[..., Tensor]


class Sizes(NamedTuple):
    batch: int = B
    heads: int = H
    queries: int = T
    keys: int = T
    key_batch: int = B
    key_heads: int = H
    width: int = D
    value_width: int = D


SIZES = Sizes()


def make_cases(dtype: torch.dtype, *, seed: int = 1) -> dict[str, tuple[Mod, list[Tensor]]]:
    """Functions of the score by name, and the captured leaves that get a gradient, in a type."""
    torch.manual_seed(seed)

    def leaf(*shape: int) -> Tensor:
        return torch.randn(shape).to(dtype).requires_grad_()

    scale, of_batch, of_token, of_head = leaf(H), leaf(B), leaf(T), leaf(H)
    pairs, transposed, per_head, relative = leaf(T, T), leaf(T, T), leaf(H, T, T), leaf(2 * T)
    positions, lengths = leaf(T, 3), torch.linspace(0.5, 2.0, H).to(dtype)
    index, which_sequence = torch.tensor(0), torch.randn(4, B, H, T).to(dtype)
    document, seen_by_all = torch.arange(T) // 23, torch.tensor([11, 29])
    starts = torch.tensor([0, 23, 46])

    def distance(s: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return (-(positions[i] - positions[j]).pow(2).sum(-1) / lengths[h]).exp() * s

    def composed(s: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return cases["causal the other way"][0](cases["relative bias by numbers"][0](s, b, h, i, j), b, h, i, j)

    def jagged(s: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        first, second = i - starts[document[i]], j - starts[document[j]]
        return torch.where((document[i] == document[j]) & (first >= second), s, -INFINITY)

    cases: dict[str, tuple[Mod, list[Tensor]]] = {
        "identity": (lambda s, b, h, i, j: s, []),
        "times two": (lambda s, b, h, i, j: s * 2, []),
        "squared": (lambda s, b, h, i, j: s * s, []),
        "causal": (lambda s, b, h, i, j: torch.where(i >= j, s, -INFINITY), []),
        "causal the other way": (lambda s, b, h, i, j: torch.where(i <= j, s, -INFINITY), []),
        "relative bias by numbers": (lambda s, b, h, i, j: s + (i - j), []),
        "relative bias and causal": (lambda s, b, h, i, j: torch.where(i >= j, s + (i - j), -INFINITY), []),
        "ALiBi": (lambda s, b, h, i, j: s + (j - i) * torch.exp2(-((h + 1) * 8.0 / H)), []),
        "sine of the cosine": (lambda s, b, h, i, j: torch.sin(torch.cos(s)) + torch.tan(b), []),
        "two branches": (lambda s, b, h, i, j: torch.cos(s) * torch.sin(s) + torch.tan(b), []),
        "SiLU": (lambda s, b, h, i, j: torch.nn.functional.silu(s), []),
        "composed": (composed, []),
        "odd keys hidden": (lambda s, b, h, i, j: torch.where(j % 2 == 0, s, -INFINITY), []),
        "hidden by the score": (lambda s, b, h, i, j: torch.where(s <= b + 0.5, s, -INFINITY), []),
        "division of indices": (lambda s, b, h, i, j: s - i // (1 + j), []),
        "documents": (lambda s, b, h, i, j: torch.where((i >= j) & (document[i] == document[j]), s, -INFINITY), []),
        "jagged": (jagged, []),
        "both ways by sequence": (
            lambda s, b, h, i, j: torch.where((i >= j) | ((i <= seen_by_all[b]) & (j <= seen_by_all[b])), s, -INFINITY),
            [],
        ),
        "NATTEN": (
            lambda s, b, h, i, j: torch.where(
                ((i // 8 - j // 8).abs() <= 2) & ((i % 8 - j % 8).abs() <= 2), s, -INFINITY
            ),
            [],
        ),
        "scale of the head": (lambda s, b, h, i, j: s * scale[h], [scale]),
        "bias of the head": (lambda s, b, h, i, j: s + of_head[h], [of_head]),
        "of every axis": (
            lambda s, b, h, i, j: s + of_token[i] + of_batch[b] + of_head[h],
            [of_token, of_batch, of_head],
        ),
        "of query and key": (lambda s, b, h, i, j: s + of_token[i] * of_token[j], [of_token]),
        "of the query, times": (lambda s, b, h, i, j: s * of_token[i], [of_token]),
        "one table": (lambda s, b, h, i, j: s + pairs[i, j], [pairs]),
        "one table, read twice": (lambda s, b, h, i, j: s + pairs[i][j], [pairs]),
        "one table, transposed": (lambda s, b, h, i, j: s + transposed[j, i], [transposed]),
        "a table of each head": (lambda s, b, h, i, j: s + per_head[h, j, i], [per_head]),
        "relative table": (lambda s, b, h, i, j: s + relative[(i - j) + T], [relative]),
        "of the sum of indices": (lambda s, b, h, i, j: s + relative[i + j], [relative]),
        "parts of a tensor": (lambda s, b, h, i, j: s + which_sequence[0][b, h][i], []),
        "a tensor as an index": (lambda s, b, h, i, j: s + which_sequence[index, b, h, i], []),
        "a zero of an index": (lambda s, b, h, i, j: s + which_sequence[index, b, h.new_zeros(h.shape), j], []),
        "a whole number captured": (lambda s, b, h, i, j: s + index + 1, []),
        "a reduction": (distance, [positions]),
    }
    return cases


MASK_MODS: dict[str, Mod] = {
    "all": noop_mask,
    "causal": lambda b, h, i, j: i >= j,
    "causal and a window": and_masks(lambda b, h, i, j: i >= j, lambda b, h, i, j: i - j <= 17),
    "before or after": or_masks(lambda b, h, i, j: i >= j, lambda b, h, i, j: i < j),
    "rows that see nothing": lambda b, h, i, j: i < 40,
    "some sequences": lambda b, h, i, j: (i >= j) & (b % 2 == 0),
    "none": and_masks(lambda b, h, i, j: i >= j, lambda b, h, i, j: i < j),
}


def inputs(sizes: Sizes, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    torch.manual_seed(0)
    shapes = (
        (sizes.batch, sizes.heads, sizes.queries, sizes.width),
        (sizes.key_batch, sizes.key_heads, sizes.keys, sizes.width),
        (sizes.key_batch, sizes.key_heads, sizes.keys, sizes.value_width),
    )
    return [torch.randn(shape).to(dtype).requires_grad_() for shape in shapes]


def dense(tensors: list[Tensor], score_mod: Mod | None, mask_mod: Mod | None) -> tuple[Tensor, Tensor]:
    """The formula, and the logarithm of the sum of a row's exponentials."""
    query, key, value = tensors
    (batch, heads), keys = query.shape[:2], key.shape[2]
    key, value = (side.repeat_interleave(heads // side.shape[1], 1).expand(batch, -1, -1, -1) for side in (key, value))
    indices = [torch.arange(size) for size in (batch, heads, query.shape[2], keys)]
    for_pairs = score_mod or (lambda s, b, h, i, j: s)
    allowed = mask_mod or noop_mask
    for axes in ((None, None, None, 0), (None, None, 0, None), (None, 0, None, None), (0, None, None, None)):
        for_pairs, allowed = torch.vmap(for_pairs, (0, *axes)), torch.vmap(allowed, axes)
    scores = for_pairs(query @ key.mT / query.shape[-1] ** 0.5, *indices).to(query.dtype)
    scores = scores.masked_fill(~allowed(*indices), -INFINITY)
    hidden = scores == -INFINITY
    weights = scores.masked_fill(hidden, torch.finfo(scores.dtype).min).softmax(-1).masked_fill(hidden, 0.0)
    return weights @ value, scores.logsumexp(-1)


def blocks_of(mask_mod: Mod, sizes: Sizes, block: int | tuple[int, int] = 16) -> BlockMask:
    return attent.create_block_mask(mask_mod, sizes.batch, sizes.heads, sizes.queries, sizes.keys, BLOCK_SIZE=block)


def outcome(context: Tensor, leaves: list[Tensor]) -> list[Tensor]:
    torch.manual_seed(2)
    upstream = torch.randn(context.shape, dtype=torch.float64).to(context.dtype)
    return [context, *torch.autograd.grad(context, leaves, upstream, materialize_grads=True)]


def check(
    score: str, mask_mod: Mod | None = None, sizes: Sizes = SIZES, block: int | tuple[int, int] = 16, **options: Any
) -> None:
    """Compare errors against float64, of context and gradients."""
    outcomes: list[list[Tensor]] = []
    for implementation, dtype in (("dense", torch.float64), ("dense", torch.float32), ("attent", torch.float32)):
        (score_mod, captured), tensors = make_cases(dtype)[score], inputs(sizes, dtype)
        if implementation == "dense":
            context, _ = dense(tensors, score_mod, mask_mod)
        else:
            blocks = None if mask_mod is None else blocks_of(mask_mod, sizes, block)
            context = attent.flex_attention(*tensors, score_mod, blocks, **options)
        outcomes.append(outcome(context, tensors + captured))
    for exact, plain, mine in zip(*outcomes, strict=True):
        right, floor = exact.detach(), 1e-6 * max(float(exact.detach().abs().max()), 1.0)
        errors = [float((tensor.detach().double() - right).abs().max()) for tensor in (plain, mine)]
        assert errors[1] <= 3 * max(errors[0], floor)


@pytest.fixture(params=["one tile", "many tiles"])
def tile(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "many tiles":
        monkeypatch.setattr(row_tiles, "TILE", 20 * B * H * T)
        monkeypatch.setattr(row_tiles, "WHOLE", 1)
        monkeypatch.setattr("attent.attention.backends.block_sparse.LEAST", 64)


@pytest.mark.parametrize("score", make_cases(torch.float32))
@pytest.mark.usefixtures("tile")
def test_score_mods(score: str) -> None:
    check(score)


@pytest.mark.parametrize("score", ["identity", "relative bias and causal", "of query and key"])
@pytest.mark.parametrize("mask", [name for name in MASK_MODS if name != "none"])
def test_block_masks(mask: str, score: str) -> None:
    check(score, MASK_MODS[mask])


@pytest.mark.parametrize("block", [4, 128, (8, 32), (32, 8)])
@pytest.mark.parametrize("score", ["times two", "ALiBi"])
def test_sizes_of_blocks(score: str, block: int | tuple[int, int]) -> None:
    check(score, MASK_MODS["causal"], block=block)


@pytest.mark.parametrize("score", ["squared", "relative bias and causal"])
@pytest.mark.parametrize(
    "sizes",
    [
        Sizes(queries=33),
        Sizes(keys=29),
        Sizes(queries=1),
        Sizes(queries=1, keys=1),
        Sizes(heads=6, key_heads=3),
        Sizes(heads=4, key_heads=1, key_batch=1),
        Sizes(batch=5, key_batch=1),
        Sizes(width=4, value_width=16),
        Sizes(width=16, value_width=4),
    ],
    ids=str,
)
def test_sizes_of_tensors(sizes: Sizes, score: str) -> None:
    # a block mask also lets one sequence of keys serve a batch
    check(score, noop_mask, sizes, enable_gqa=sizes.heads != sizes.key_heads)


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (0, 2, 1, 3), (2, 1, 0, 3), (1, 2, 0, 3)])
def test_tensors_that_lie_in_any_order(order: tuple[int, ...]) -> None:
    shape = [(B, H, T, D)[axis] for axis in order]
    tensors = [torch.randn(shape).permute([order.index(axis) for axis in range(4)]).requires_grad_() for _ in range(3)]
    score_mod, _ = make_cases(torch.float32)["ALiBi"]
    mine, right = (
        outcome(context, tensors)
        for context in (attent.flex_attention(*tensors, score_mod), dense(tensors, score_mod, None)[0])
    )
    for result, expected in zip(mine, right, strict=True):
        torch.testing.assert_close(result, expected, atol=1e-5, rtol=1e-4)


SLOW = [
    pytest.param(name, marks=pytest.mark.slow)
    for name in ("identity", "times two", "two branches", "scale of the head")
]


@pytest.mark.parametrize("score", ["causal", "squared", *SLOW])
def test_derivatives_by_differences(score: str) -> None:
    score_mod, _ = make_cases(torch.float64)[score]
    tensors = [torch.randn(1, H, 3, 2, dtype=torch.float64, requires_grad=True) for _ in range(3)]
    assert torch.autograd.gradcheck(lambda *sides: attent.flex_attention(*sides, score_mod, return_lse=True), tensors)


@pytest.mark.parametrize("score", ["identity", "causal", "of query and key"])
def test_the_logarithm_of_the_sum(score: str) -> None:
    tensors, (score_mod, _) = inputs(SIZES), make_cases(torch.float32)[score]
    context, lse = attent.flex_attention(*tensors, score_mod, return_lse=True)
    right, right_lse = dense(tensors, score_mod, None)
    assert lse.dtype == torch.float32
    torch.testing.assert_close(lse, right_lse)
    results = [outcome(values, tensors[:2]) for values in (lse + context.mean(-1), right_lse + right.mean(-1))]
    for result, expected in zip(*results, strict=True):
        torch.testing.assert_close(result, expected, atol=1e-5, rtol=1e-4)


def test_two_masks_joined_by_their_logarithms() -> None:
    tensors = inputs(SIZES)
    near, far = (
        and_masks(MASK_MODS["causal"], mod) for mod in (lambda b, h, i, j: i - j <= 17, lambda b, h, i, j: i - j > 17)
    )
    parts = [attent.flex_attention(*tensors, block_mask=blocks_of(mod, SIZES), return_lse=True) for mod in (near, far)]
    shares = torch.stack([lse for _, lse in parts]).softmax(0)
    joined = sum(share[..., None] * context for share, (context, _) in zip(shares, parts, strict=True))
    assert isinstance(joined, Tensor)
    for result, expected in zip(
        outcome(joined, tensors), outcome(dense(tensors, None, MASK_MODS["causal"])[0], tensors), strict=True
    ):
        torch.testing.assert_close(result, expected, atol=1e-5, rtol=1e-4)


def test_calls_one_after_another() -> None:
    query, key, value = inputs(SIZES)
    first, second = (make_cases(torch.float32)[name][0] for name in ("relative bias by numbers", "causal"))
    mine = attent.flex_attention(attent.flex_attention(query, key, value, first), key, value, second)
    right = dense([dense([query, key, value], first, None)[0], key, value], second, None)[0]
    for result, expected in zip(outcome(mine, [query, key, value]), outcome(right, [query, key, value]), strict=True):
        torch.testing.assert_close(result, expected, atol=1e-5, rtol=1e-4)


def test_a_score_mod_that_changes() -> None:
    tensors, is_sum = inputs(SIZES), [True]

    def score_mod(s: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return s + (i - j) if is_sum[0] else s * 3

    for is_sum[0] in (True, False):
        torch.testing.assert_close(attent.flex_attention(*tensors, score_mod), dense(tensors, score_mod, None)[0])


def test_a_function_with_derivatives_of_its_own() -> None:
    class Hide(torch.autograd.Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(score: Tensor, is_visible: Tensor) -> Tensor:
            return torch.where(is_visible, score, -INFINITY)

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            ctx.mark_non_differentiable(inputs[1])

        @staticmethod
        def backward(ctx: Any, gradient: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
            return gradient, None

    tensors = inputs(SIZES)
    context = attent.flex_attention(*tensors, lambda s, b, h, i, j: Hide.apply(s, i <= j))
    right = dense(tensors, lambda s, b, h, i, j: torch.where(i <= j, s, -INFINITY), None)[0]
    for result, expected in zip(outcome(context, tensors), outcome(right, tensors), strict=True):
        torch.testing.assert_close(result, expected, atol=1e-5, rtol=1e-4)


def test_rows_that_see_nothing_are_zero() -> None:
    tensors = inputs(SIZES)
    context, lse = attent.flex_attention(
        *tensors, block_mask=blocks_of(MASK_MODS["rows that see nothing"], SIZES), return_lse=True
    )
    assert not bool(context[:, :, 40:].any())
    assert bool((lse[:, :, 40:] == -INFINITY).all())
    gradient = torch.autograd.grad(context.sum() + lse[:, :, :40].sum(), tensors[0])[0]
    assert not bool(gradient[:, :, 40:].any())
    assert not bool(attent.flex_attention(*tensors, block_mask=blocks_of(MASK_MODS["none"], SIZES)).any())


@pytest.mark.parametrize("score", ["identity", "ALiBi", "squared"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_sixteen_bits(dtype: torch.dtype, score: str) -> None:
    score_mod, tensors = make_cases(torch.float32)[score][0], inputs(SIZES, dtype)
    exact = [tensor.detach().double().requires_grad_() for tensor in tensors]
    right = outcome(dense(exact, make_cases(torch.float64)[score][0], MASK_MODS["causal"])[0], exact)
    results = outcome(attent.flex_attention(*tensors, score_mod, blocks_of(MASK_MODS["causal"], SIZES)), tensors)
    for result, expected in zip(results, right, strict=True):
        assert result.dtype == dtype
        torch.testing.assert_close(result.double(), expected, atol=3e-2, rtol=3e-2)


def test_types_that_differ_are_refused() -> None:
    query, key, value = inputs(SIZES)
    with pytest.raises(DTypeError):
        attent.flex_attention(query, key.half(), value.half())
