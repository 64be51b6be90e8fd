"""Cases like those of PyTorch's own FlexAttention tests (`test/inductor/test_flex_attention.py`), forward and backward.

Each is held against the dense formula in float64: the largest error of the context and of every gradient is at most
three times that of the dense formula in float32.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn
from torch.nn.attention.experimental._paged_attention import PagedAttention
from torch.nn.attention.flex_attention import BlockMask, and_masks, noop_mask, or_masks
from torch.utils.checkpoint import checkpoint

import attent
from attent.attention.backends import bands

B, H, T, D = 2, 3, 67, 8
INFINITY = float("inf")
LENGTHS = torch.tensor([53, 23])
DOCUMENTS = torch.arange(T).repeat(B, 1) // torch.tensor([[23], [17]])
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


GLOBAL = torch.randn(H)


class Slopes(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.slopes = nn.Parameter(torch.randn(H))

    def forward(self, s: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return s + self.slopes[h] * (i - j)


def make_cases(dtype: torch.dtype) -> dict[str, tuple[Mod, list[Tensor]]]:
    """Functions of the score by name, and the captured leaves that get a gradient, in a type."""
    torch.manual_seed(1)
    global GLOBAL

    def leaf(*shape: int) -> Tensor:
        return torch.randn(shape).to(dtype).requires_grad_()

    of_batch, of_token, of_head, number, near = leaf(B), leaf(T), leaf(H), leaf(), leaf(11)
    pairs, relative, all_axes, parts = leaf(T, T), leaf(2 * T), leaf(B, H, T, T), leaf(B, H, 4, T)
    table, of_tokens, wide, pair_of_head = leaf(2 * T, H), leaf(B, 2, H, T), leaf(B, 256), leaf(H, 2 * T)
    index = torch.tensor(2)
    poisoned = torch.cat([torch.randn(B, H, T, T), torch.full((B, H, T, T), float("nan"))]).to(dtype)

    GLOBAL, module = leaf(H), Slopes().to(dtype)
    first, second = (of_head[:, None] * pair_of_head).tanh().split([T, T], -1)

    def nested(s: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        def inner(s: Tensor) -> Tensor:
            return s + of_head[h] * first[h, i]

        return inner(s)

    def continuous(s: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        weight = torch.sigmoid(of_head)[h] * (of_tokens[b, 0, h, i] + of_tokens[b, 1, h, j])
        return s + ((i >= 5) & (j >= 5)).to(s.dtype) * weight * table.tanh()[i - j + T, h]

    return {
        "identity": (lambda s, b, h, i, j: s, []),
        "squared": (lambda s, b, h, i, j: s * s, []),
        "relative bias and causal": (lambda s, b, h, i, j: torch.where(i >= j, s + (i - j), -INFINITY), []),
        "ALiBi": (lambda s, b, h, i, j: s + (j - i) * torch.exp2(-((h + 1) * 8.0 / H)), []),
        "two branches": (lambda s, b, h, i, j: torch.cos(s) * torch.sin(s) + torch.tan(b), []),
        "odd keys hidden": (lambda s, b, h, i, j: torch.where(j % 2 == 0, s, -INFINITY), []),
        "hidden by the score": (lambda s, b, h, i, j: torch.where(s <= b + 0.5, s, -INFINITY), []),
        "division of indices": (lambda s, b, h, i, j: s - i // (1 + j), []),
        "NaN where nothing is read": (lambda s, b, h, i, j: s + poisoned[b, h, i, j], []),
        "logarithm of the positive": (lambda s, b, h, i, j: torch.where(s > 0, torch.log(s), s), []),
        "of every axis": (
            lambda s, b, h, i, j: s + of_token[i] + of_batch[b] * of_head[h],
            [of_token, of_batch, of_head],
        ),
        "of query and key": (lambda s, b, h, i, j: s + of_token[i] * of_token[j], [of_token]),
        "one table, read twice": (lambda s, b, h, i, j: s + pairs[i][j] + pairs[j, i], [pairs]),
        "a table of each sequence and head": (lambda s, b, h, i, j: s + all_axes[b, h, i, j], [all_axes]),
        "relative table": (lambda s, b, h, i, j: s + relative[(i - j) + T], [relative]),
        "distance, clamped": (lambda s, b, h, i, j: s + near[torch.clamp(i - j + 5, 0, 10)], [near]),
        "read step by step": (lambda s, b, h, i, j: s + parts[b][h][index, i] * of_token[i] * s, [parts, of_token]),
        "a zero of an index": (lambda s, b, h, i, j: s + parts[b, h.new_zeros(h.shape), index, j], [parts]),
        "a number, times and added": (lambda s, b, h, i, j: s * number + number, [number]),
        "a number, cut off": (lambda s, b, h, i, j: s + number.detach(), [number]),
        "read and not used": (lambda s, b, h, i, j: (of_head[h], s)[1], [of_head]),
        "a sum of 256": (lambda s, b, h, i, j: s * wide[b].sum(-1), [wide]),
        "a global": (lambda s, b, h, i, j: s * GLOBAL[h], [GLOBAL]),
        "a partial function": (functools.partial(lambda slopes, s, b, h, i, j: s * slopes[h], of_head), [of_head]),
        "a parameter": (lambda s, b, h, i, j: module(s, b, h, i, j), [module.slopes]),
        "a module's method": (module.forward, [module.slopes]),
        "computed, and its leaf too": (lambda s, b, h, i, j: s * of_head[h] + first[h, i], [of_head, pair_of_head]),
        "two outputs of one function": (lambda s, b, h, i, j: s + first[h, i] * second[h, j], [of_head, pair_of_head]),
        "nested": (nested, [of_head, pair_of_head]),
        "in a list": (lambda s, b, h, i, j, saved=[first]: s + saved[0][h, j], [of_head, pair_of_head]),
        "continuous": (continuous, [table, of_head, of_tokens]),
    }


def causal(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
    return i >= j


def near(b: Tensor, h: Tensor, i: Tensor, j: Tensor, *, size: Tensor) -> Tensor:
    return (i - j).abs() < size


class CausalOrNear:
    def __call__(self, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return (i >= j) | (j - i < 3)


MASK_MODS: dict[str, Mod] = {
    "all": noop_mask,
    "causal": causal,
    "causal and a window": and_masks(causal, lambda b, h, i, j: i - j <= 17),
    "before or after": or_masks(causal, lambda b, h, i, j: i < j),
    "rows that see nothing": lambda b, h, i, j: i < 40,
    "some sequences": lambda b, h, i, j: (i >= j) & (b % 2 == 0),
    "padding": lambda b, h, i, j: (i < LENGTHS[b]) & (j < LENGTHS[b]),
    "documents or causal": lambda b, h, i, j: (DOCUMENTS[b, i] == DOCUMENTS[b, j]) | (i >= j),
    "the first keys and the last": lambda b, h, i, j: (j < 8) | (j >= 32),
    "a partial function of a tensor": functools.partial(near, size=torch.tensor(7)),
    "an object": CausalOrNear(),
}


def inputs(sizes: Sizes = SIZES, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    torch.manual_seed(0)
    shapes = (
        (sizes.batch, sizes.heads, sizes.queries, sizes.width),
        (sizes.key_batch, sizes.key_heads, sizes.keys, sizes.width),
        (sizes.key_batch, sizes.key_heads, sizes.keys, sizes.value_width),
    )
    return [torch.randn(shape).to(dtype).requires_grad_() for shape in shapes]


def dense(tensors: list[Tensor], score_mod: Mod | None = None, mask_mod: Mod | None = None) -> tuple[Tensor, Tensor]:
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


def blocks_of(mask_mod: Mod, sizes: Sizes = SIZES, block: int | tuple[int, int] = 16) -> BlockMask:
    return attent.create_block_mask(mask_mod, sizes.batch, sizes.heads, sizes.queries, sizes.keys, BLOCK_SIZE=block)


def outcome(context: Tensor, leaves: list[Tensor]) -> list[Tensor]:
    torch.manual_seed(2)
    upstream = torch.randn(context.shape, dtype=torch.float64).to(context.dtype)
    return [context, *torch.autograd.grad(context, leaves, upstream, materialize_grads=True)]


def close(context: Tensor, expected: Tensor, leaves: list[Tensor]) -> None:
    for result, right in zip(outcome(context, leaves), outcome(expected, leaves), strict=True):
        torch.testing.assert_close(result, right, atol=1e-5, rtol=1e-4)


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


CASES = [*make_cases(torch.float32)]


@pytest.mark.parametrize(
    ("score", "has_many_tiles"), [*((score, True) for score in CASES), *((score, False) for score in CASES[::4])]
)
def test_score_mods(score: str, has_many_tiles: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if has_many_tiles:
        for name, numbers in (("TILE", 20 * B * H * T), ("WHOLE", 1), ("LEAST", 64)):
            monkeypatch.setattr(bands, name, numbers)
    check(score, causal if has_many_tiles else None)


@pytest.mark.parametrize(
    ("score", "mask", "block"),
    [
        *(("identity", name, 16) for name in MASK_MODS),
        ("of query and key", "causal and a window", (24, 128)),
        ("of query and key", "documents or causal", (24, 128)),
        ("ALiBi", "causal", 4),
        ("ALiBi", "causal", (8, 32)),
        ("ALiBi", "causal", (32, 8)),
    ],
    ids=str,
)
def test_block_masks(score: str, mask: str, block: int | tuple[int, int]) -> None:
    check(score, MASK_MODS[mask], block=block)


@pytest.mark.parametrize(
    ("sizes", "score"),
    [
        (Sizes(queries=33), "squared"),
        (Sizes(keys=29), "relative bias and causal"),
        (Sizes(queries=1, keys=1), "squared"),
        (Sizes(heads=6, key_heads=3), "relative bias and causal"),
        (Sizes(batch=5, heads=4, key_heads=1, key_batch=1), "squared"),
        (Sizes(batch=5, heads=4, key_heads=1, key_batch=1), "relative bias and causal"),
        (Sizes(width=17, value_width=4), "squared"),
        (Sizes(width=4, value_width=16), "relative bias and causal"),
    ],
    ids=str,
)
def test_sizes_of_tensors(sizes: Sizes, score: str) -> None:
    # a block mask also lets one sequence of keys serve a batch
    check(score, noop_mask, sizes, enable_gqa=sizes.heads != sizes.key_heads)


def test_tensors_in_any_layout() -> None:
    score_mod, _ = make_cases(torch.float32)["ALiBi"]
    for order in ((0, 2, 1, 3), (2, 1, 0, 3)):
        shape = [(B, H, T, D)[axis] for axis in order]
        tensors = [torch.randn(shape).permute([order.index(axis) for axis in range(4)]) for _ in range(3)]
        tensors = [tensor.requires_grad_() for tensor in tensors]
        close(attent.flex_attention(*tensors, score_mod), dense(tensors, score_mod)[0], tensors)
    combined, value = torch.randn(B, T, 2 * H * D, requires_grad=True), inputs()[2]
    chunks = [part.view(B, T, H, D).permute(0, 2, 1, 3) for part in combined.chunk(2, dim=-1)]
    close(attent.flex_attention(*chunks, value), dense([*chunks, value])[0], [combined, value])
    assert attent.flex_attention(chunks[0][:, :, :0], chunks[1], value).shape == (B, H, 0, D)


def test_derivatives_by_differences() -> None:
    score_mod, _ = make_cases(torch.float64)["squared"]
    tensors = [torch.randn(1, H, 3, 2, dtype=torch.float64, requires_grad=True) for _ in range(3)]
    assert torch.autograd.gradcheck(lambda *sides: attent.flex_attention(*sides, score_mod, return_lse=True), tensors)


@pytest.mark.parametrize("score", ["identity", "of query and key"])
def test_the_logarithm_of_the_sum(score: str) -> None:
    tensors, (score_mod, _) = inputs(), make_cases(torch.float32)[score]
    context, lse = attent.flex_attention(*tensors, score_mod, return_lse=True)
    right, right_lse = dense(tensors, score_mod)
    assert lse.dtype == torch.float32
    torch.testing.assert_close(lse, right_lse)
    close(lse + context.mean(-1), right_lse + right.mean(-1), tensors[:2])


def test_two_masks_joined_by_their_logarithms() -> None:
    tensors = inputs()
    halves = [and_masks(causal, mod) for mod in (lambda b, h, i, j: i - j <= 17, lambda b, h, i, j: i - j > 17)]
    parts = [attent.flex_attention(*tensors, block_mask=blocks_of(mod), return_lse=True) for mod in halves]
    shares = torch.stack([lse for _, lse in parts]).softmax(0)
    joined = torch.stack([share[..., None] * context for share, (context, _) in zip(shares, parts, strict=True)]).sum(0)
    close(joined, dense(tensors, None, causal)[0], tensors)


def test_a_bias_alone_gets_a_gradient() -> None:
    tensors = [tensor.detach() for tensor in inputs()]
    score_mod, leaves = make_cases(torch.float32)["relative table"]
    close(attent.flex_attention(*tensors, score_mod), dense(tensors, score_mod)[0], leaves)


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

    tensors = inputs()
    context = attent.flex_attention(*tensors, lambda s, b, h, i, j: Hide.apply(s, i <= j))
    close(context, dense(tensors, lambda s, b, h, i, j: torch.where(i <= j, s, -INFINITY))[0], tensors)


@pytest.mark.parametrize(("dtype", "score"), [(torch.bfloat16, "squared"), (torch.float16, "identity")])
def test_sixteen_bits(dtype: torch.dtype, score: str) -> None:
    score_mod, tensors = make_cases(torch.float32)[score][0], inputs(dtype=dtype)
    exact = [tensor.detach().double().requires_grad_() for tensor in tensors]
    right = outcome(dense(exact, make_cases(torch.float64)[score][0], causal)[0], exact)
    results = outcome(attent.flex_attention(*tensors, score_mod, blocks_of(causal)), tensors)
    for result, expected in zip(results, right, strict=True):
        assert result.dtype == dtype
        torch.testing.assert_close(result.double(), expected, atol=3e-2, rtol=3e-2)


@pytest.mark.parametrize("mask", ["documents or causal", "the first keys and the last"])
def test_lists_of_blocks_as_short_as_the_longest_row(mask: str) -> None:
    whole, tensors = blocks_of(MASK_MODS[mask], block=8), inputs()
    assert whole.full_kv_num_blocks is not None
    assert whole.full_kv_indices is not None
    lists = (whole.kv_num_blocks, whole.kv_indices), (whole.full_kv_num_blocks, whole.full_kv_indices)
    short = [(numbers, indices[..., : max(int(numbers.max()), 1)].contiguous()) for numbers, indices in lists]
    assert short[0][1].shape != short[1][1].shape
    # gradients need no lists of queries
    options: dict[str, Any] = {"mask_mod": whole.mask_mod, "seq_lengths": (T, T), "compute_q_blocks": False}
    blocks = BlockMask.from_kv_blocks(*short[0], *short[1], BLOCK_SIZE=8, **options)
    close(attent.flex_attention(*tensors, block_mask=blocks), dense(tensors, None, MASK_MODS[mask])[0], tensors)


def test_one_row_of_a_mask_for_one_query() -> None:
    query, key, value = inputs(Sizes(queries=32, keys=32))
    row = attent.create_block_mask(causal, B, None, 32, 32, BLOCK_SIZE=8)[:, :, 2]
    row.seq_lengths = (1, 32)
    tensors = [query[:, :, 19:20], key, value]
    with pytest.raises(RuntimeError, match="sliced BlockMask"):
        attent.flex_attention(*tensors, block_mask=row)
    row.mask_mod = lambda b, h, i, j: i + 19 >= j
    expected = dense([tensors[0], key[:, :, :20], value[:, :, :20]])[0]
    close(attent.flex_attention(*tensors, block_mask=row), expected, [query, key, value])


def test_pages_in_any_order() -> None:
    tensors, page = [tensor.detach()[:, :, :32] for tensor in inputs()], 8
    pages = PagedAttention(11, page, B, device="cpu")
    for lengths in ((8, 16), (24, 24), (32, 32)):
        for sequence, length in enumerate(lengths):
            pages.reserve(torch.tensor(sequence), torch.tensor(length))
    key, value = torch.zeros(1, H, 11 * page, D), torch.zeros(1, H, 11 * page, D)
    pages.assign(torch.arange(B), torch.arange(32).expand(B, 32), tensors[1], tensors[2], key, value)
    logical = attent.create_block_mask(causal, B, 1, 32, 32, BLOCK_SIZE=page)
    lengths = torch.full((B,), 32)

    def score_mod(s: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return s * 2 + (i - j)

    blocks = pages.convert_logical_block_mask(logical, kv_len=lengths)
    context = attent.flex_attention(tensors[0], key, value, pages.get_score_mod(score_mod, kv_len=lengths), blocks)
    torch.testing.assert_close(context, dense(tensors, score_mod, causal)[0], atol=1e-5, rtol=1e-4)


def test_within_a_checkpoint_and_autocast() -> None:
    tensors, (score_mod, captured) = inputs(), make_cases(torch.float32)["of query and key"]
    context = checkpoint(attent.flex_attention, *tensors, score_mod, use_reentrant=False)
    assert isinstance(context, Tensor)
    close(context, dense(tensors, score_mod)[0], tensors + captured)
    with torch.autocast("cpu", torch.float16):
        context = attent.flex_attention(tensors[0].half(), *tensors[1:])
    assert context.dtype == torch.float16
    torch.testing.assert_close(context.float(), dense(tensors)[0], atol=2e-3, rtol=2e-3)
