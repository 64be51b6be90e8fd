"""Tanh scores and their gradients on a GPU, and the functions shared by all kernels for tanh scores.

With A = e^2q' / 2 and B = e^2k', y = AB + 1/2 is (1 + e^2(q' + k')) / 2, and tanh(q' + k') = 1 − 1 / y. On a GPU a
reciprocal takes eight times as long as a multiply-add, so two features share one: 1 / y₀ = y₁ · 1 / (y₀ y₁)
(Montgomery 1987, §10.3.1). The GPU's own tanh takes as long as a reciprocal and is accurate to only 11 bits.

Every sum is computed by a single program, in a fixed order.
"""

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

# Up to this bound the product of two y is finite; a tile with a larger number computes the exponential of every sum.
WIDE = 10.0
# Fuse multiply-adds into one instruction, independent of Triton's default.
OPTIONS = {"enable_fp_fusion": True}
# Rows and keys per tile; tokens per step of the gradients' inner loops, between checks of range and mask.
BLOCK, RUN = 64, 32


class KernelOperand(NamedTuple):
    """Queries or keys as the kernels read them, n = B · H."""

    plain: Tensor  # (n, T, D) float32
    powers: Tensor  # (n, T, D) e^2x, or half of it
    transposed: Tensor  # (n, D, T) the same, D rounded up to even
    narrow: Tensor  # (n, T) 1 if all numbers are within ±WIDE, so that the powers can be used


def kernel_operand(features: Tensor, factor: float) -> KernelOperand:
    """Lay out queries (factor 1/2) or keys (factor 1) of (B, H, T, D)."""
    plain = features.detach().float().flatten(0, 1).contiguous()
    powers = torch.exp(2 * plain.clamp(-WIDE, WIDE)) * factor
    even = torch.nn.functional.pad(powers, (0, plain.shape[2] % 2))
    narrow = (plain.abs() <= WIDE).all(-1).to(torch.int32)
    return KernelOperand(plain, powers, even.mT.contiguous(), narrow)


def directions(v: Tensor, heads: int) -> Tensor:
    """Return v (H|1, D) for every head, in float32, with D rounded up to an even number."""
    return torch.nn.functional.pad(v.detach().float(), (0, v.shape[1] % 2)).expand(heads, -1).contiguous()


def power_of_two(size: int, minimum: int, maximum: int) -> int:
    """Return the block size for an axis: a power of two within the bounds."""
    return max(min(triton.next_power_of_2(size), maximum), minimum)


@triton.jit
def inverse(y, ASSEMBLY: tl.constexpr):
    """Return 1 / y for y ≥ 1/4, accurate to about one unit in the last place."""
    if ASSEMBLY:
        return tl.inline_asm_elementwise(
            "rcp.approx.ftz.f32 $0, $1;", "=f,f", [y], dtype=tl.float32, is_pure=True, pack=1
        )
    else:  # noqa: RET505
        return 1.0 / y


# Triton's interpreter does not support inline assembly, and AMD GPUs not this instruction.
ASSEMBLY = isinstance(inverse, triton.JITFunction) and torch.version.hip is None


@triton.jit
def level_of_sum(a, b):
    """Return y = (1 + e^2(a + b)) / 2, computed from the sum because powers could overflow; NaN stays NaN."""
    x = 2.0 * (a + b)
    x = tl.where(x > 80.0, 80.0, x)
    x = tl.where(x < -80.0, -80.0, x)
    return 0.5 * tl.exp(x) + 0.5


@triton.jit
def block_of(count, BLOCK: tl.constexpr):
    """Return the program's 64-bit index of sequence and head, and its block of `count` tokens."""
    blocks = tl.cdiv(count, BLOCK)
    pair = (tl.program_id(0) // blocks).to(tl.int64)
    return pair, tl.program_id(0) % blocks * BLOCK + tl.arange(0, BLOCK)


@triton.jit
def all_narrow(narrow, tokens, count):
    """Return whether the powers of all these tokens are in range."""
    return tl.min(tl.load(narrow + tokens, mask=tokens < count, other=1))


@triton.jit
def score_tile(
    query_powers, key_powers, query, key, v, rows, columns, queries, keys, width, safe,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, ASSEMBLY: tl.constexpr,
):  # fmt: skip
    """Return v·tanh(q' + k') for rows and columns of one sequence and head, to whose start the pointers refer."""
    scores = tl.zeros((ROWS, COLUMNS), tl.float32)
    row_mask, column_mask = rows < queries, columns < keys
    if safe:
        for d in range(0, width, 2):
            a0 = tl.load(query_powers + d * queries + rows, mask=row_mask, other=0.0)
            a1 = tl.load(query_powers + (d + 1) * queries + rows, mask=row_mask, other=0.0)
            b0 = tl.load(key_powers + d * keys + columns, mask=column_mask, other=0.0)
            b1 = tl.load(key_powers + (d + 1) * keys + columns, mask=column_mask, other=0.0)
            v0, v1 = tl.load(v + d), tl.load(v + d + 1)
            y0 = a0[:, None] * b0[None, :] + 0.5
            y1 = a1[:, None] * b1[None, :] + 0.5
            scores += (v0 + v1) - (v0 * y1 + v1 * y0) * inverse(y0 * y1, ASSEMBLY)
    else:
        for d in range(width):
            a = tl.load(query + rows * width + d, mask=row_mask, other=0.0)
            b = tl.load(key + columns * width + d, mask=column_mask, other=0.0)
            scores += tl.load(v + d) * (1.0 - inverse(level_of_sum(a[:, None], b[None, :]), ASSEMBLY))
    return scores


def scores(query: Tensor, key: Tensor, v: Tensor) -> Tensor:
    """Return v·tanh(q' + k') of queries (B, H, Tq, D), keys (B, H, Tk, D) and v (H|1, D): (B, H, Tq, Tk)."""
    batch, heads, queries, width = query.shape
    keys = key.shape[2]
    scores = query.new_empty(batch, heads, queries, keys)
    if not scores.numel():
        return scores
    q, k = kernel_operand(query, 0.5), kernel_operand(key, 1.0)
    grid = (batch * heads * triton.cdiv(queries, BLOCK), triton.cdiv(keys, BLOCK))
    _scores[grid](
        q.transposed, k.transposed, q.plain, k.plain, q.narrow, k.narrow, directions(v, heads), scores,
        heads, queries, keys, width, ROWS=BLOCK, COLUMNS=BLOCK, ASSEMBLY=ASSEMBLY, **OPTIONS,
    )  # fmt: skip
    return scores


def gradients(query: Tensor, key: Tensor, v: Tensor, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of q', k' and v, in their shapes and dtypes, given that of the scores (B, H, Tq, Tk)."""
    if not gradient.numel():
        return torch.zeros_like(query), torch.zeros_like(key), torch.zeros_like(v)
    batch, heads, queries, width = query.shape
    keys, pairs, across = key.shape[2], batch * heads, power_of_two(width, 16, BLOCK)
    q, k, head_v = kernel_operand(query, 0.5), kernel_operand(key, 1.0), directions(v, heads)
    dscores = gradient.detach().float().reshape(pairs, queries, keys).contiguous()
    row_blocks, key_blocks = triton.cdiv(queries, BLOCK), triton.cdiv(keys, BLOCK)
    dq, dk, dv = torch.empty_like(q.plain), torch.empty_like(k.plain), dscores.new_empty(pairs, row_blocks, width)
    inputs = q.powers, k.powers, q.plain, k.plain, q.narrow, k.narrow, head_v, dscores
    sizes = heads, queries, keys, width, head_v.shape[1]
    options = {"RUN": RUN, "ACROSS": across, "ASSEMBLY": ASSEMBLY, "num_warps": 8, **OPTIONS}
    _for_rows[(pairs * row_blocks, triton.cdiv(width, across))](*inputs, dq, dv, *sizes, ROWS=BLOCK, **options)
    _for_keys[(pairs * key_blocks, triton.cdiv(width, across))](*inputs, dk, *sizes, COLUMNS=BLOCK, **options)
    of_v = dv.view(batch, heads, row_blocks, width).sum((0, 2))  # (H, D)
    of_v = of_v if v.shape[0] == heads else of_v.sum(0, keepdim=True)
    return dq.view_as(query).to(query.dtype), dk.view_as(key).to(key.dtype), of_v.to(v.dtype)


@triton.jit
def _scores(
    query_powers, key_powers, query, key, narrow_query, narrow_key, v, scores, heads, queries, keys, width,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, ASSEMBLY: tl.constexpr,
):  # fmt: skip
    pair, rows = block_of(queries, ROWS)
    columns = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    safe = (
        all_narrow(narrow_query + pair * queries, rows, queries) & all_narrow(narrow_key + pair * keys, columns, keys)
    ) > 0
    even = (width + 1) // 2 * 2
    tile = score_tile(
        query_powers + pair * queries * even, key_powers + pair * keys * even, query + pair * queries * width,
        key + pair * keys * width,
        v + pair % heads * even, rows, columns, queries, keys, width, safe, ROWS, COLUMNS, ASSEMBLY,
    )  # fmt: skip
    pointers = scores + pair * queries * keys + rows.to(tl.int64)[:, None] * keys + columns[None, :]
    tl.store(pointers, tile, mask=(rows < queries)[:, None] & (columns < keys)[None, :])


@triton.jit
def _for_rows(
    query_powers, key_powers, query, key, narrow_query, narrow_key, v, gradient,
    dq, dv, heads, queries, keys, width, v_stride,
    ROWS: tl.constexpr, RUN: tl.constexpr, ACROSS: tl.constexpr, ASSEMBLY: tl.constexpr,
):  # fmt: skip
    pair, rows = block_of(queries, ROWS)
    features = tl.program_id(1) * ACROSS + tl.arange(0, ACROSS)
    row_mask, feature_mask = rows < queries, features < width
    inside = row_mask[:, None] & feature_mask[None, :]
    pointers = pair * queries * width + rows[:, None] * width + features[None, :]
    safe_rows = all_narrow(narrow_query + pair * queries, rows, queries)
    a = tl.load(query_powers + pointers, mask=inside, other=0.0)
    slopes = tl.zeros((ROWS, ACROSS), tl.float32)
    levels = tl.zeros((ROWS, ACROSS), tl.float32)
    key_powers += pair * keys * width
    key += pair * keys * width
    dscores = gradient + pair * queries * keys + rows.to(tl.int64) * keys
    for run in range(0, keys, RUN):
        tokens = run + tl.arange(0, RUN)
        if (safe_rows & all_narrow(narrow_key + pair * keys, tokens, keys)) > 0:
            for j in range(run, tl.minimum(run + RUN, keys), 2):
                g0 = tl.load(dscores + j, mask=row_mask, other=0.0)[:, None]
                j1 = tl.minimum(j + 1, keys - 1)
                g1 = tl.where(j1 > j, tl.load(dscores + j1, mask=row_mask, other=0.0), 0.0)[:, None]
                b0 = tl.load(key_powers + j * width + features, mask=feature_mask, other=0.0)[None, :]
                b1 = tl.load(key_powers + j1 * width + features, mask=feature_mask, other=0.0)[None, :]
                y0, y1 = a * b0 + 0.5, a * b1 + 0.5
                reciprocal = inverse(y0 * y1, ASSEMBLY)
                u0, u1 = y1 * reciprocal, y0 * reciprocal
                slopes += g0 * (u0 * (2.0 - u0)) + g1 * (u1 * (2.0 - u1))
                levels += g0 * (1.0 - u0) + g1 * (1.0 - u1)
        else:
            raw = tl.load(query + pointers, mask=inside, other=0.0)
            for j in range(run, tl.minimum(run + RUN, keys)):
                g = tl.load(dscores + j, mask=row_mask, other=0.0)[:, None]
                b = tl.load(key + j * width + features, mask=feature_mask, other=0.0)[None, :]
                u = inverse(level_of_sum(raw, b), ASSEMBLY)
                slopes += g * (u * (2.0 - u))
                levels += g * (1.0 - u)
    direction = tl.load(v + pair % heads * v_stride + features, mask=feature_mask, other=0.0)
    tl.store(dq + pointers, slopes * direction[None, :], mask=inside)
    share = tl.sum(tl.where(row_mask[:, None], levels, 0.0), 0)
    tl.store(dv + tl.program_id(0).to(tl.int64) * width + features, share, mask=feature_mask)


@triton.jit
def _for_keys(
    query_powers, key_powers, query, key, narrow_query, narrow_key, v, gradient,
    dk, heads, queries, keys, width, v_stride,
    COLUMNS: tl.constexpr, RUN: tl.constexpr, ACROSS: tl.constexpr, ASSEMBLY: tl.constexpr,
):  # fmt: skip
    pair, columns = block_of(keys, COLUMNS)
    features = tl.program_id(1) * ACROSS + tl.arange(0, ACROSS)
    column_mask, feature_mask = columns < keys, features < width
    inside = column_mask[:, None] & feature_mask[None, :]
    pointers = pair * keys * width + columns[:, None] * width + features[None, :]
    safe_keys = all_narrow(narrow_key + pair * keys, columns, keys)
    b = tl.load(key_powers + pointers, mask=inside, other=0.0)
    slopes = tl.zeros((COLUMNS, ACROSS), tl.float32)
    query_powers += pair * queries * width
    query += pair * queries * width
    gradient += pair * queries * keys
    # in 64 bits
    line = pair * 0 + keys
    for run in range(0, queries, RUN):
        rows = run + tl.arange(0, RUN)
        if (safe_keys & all_narrow(narrow_query + pair * queries, rows, queries)) > 0:
            for i in range(run, tl.minimum(run + RUN, queries), 2):
                i1 = tl.minimum(i + 1, queries - 1)
                g0 = tl.load(gradient + i * line + columns, mask=column_mask, other=0.0)[:, None]
                g1 = tl.where(i1 > i, tl.load(gradient + i1 * line + columns, mask=column_mask, other=0.0), 0.0)[
                    :, None
                ]
                a0 = tl.load(query_powers + i * width + features, mask=feature_mask, other=0.0)[None, :]
                a1 = tl.load(query_powers + i1 * width + features, mask=feature_mask, other=0.0)[None, :]
                y0, y1 = a0 * b + 0.5, a1 * b + 0.5
                reciprocal = inverse(y0 * y1, ASSEMBLY)
                u0, u1 = y1 * reciprocal, y0 * reciprocal
                slopes += g0 * (u0 * (2.0 - u0)) + g1 * (u1 * (2.0 - u1))
        else:
            raw = tl.load(key + pointers, mask=inside, other=0.0)
            for i in range(run, tl.minimum(run + RUN, queries)):
                g = tl.load(gradient + i * line + columns, mask=column_mask, other=0.0)[:, None]
                a = tl.load(query + i * width + features, mask=feature_mask, other=0.0)[None, :]
                u = inverse(level_of_sum(a, raw), ASSEMBLY)
                slopes += g * (u * (2.0 - u))
    direction = tl.load(v + pair % heads * v_stride + features, mask=feature_mask, other=0.0)
    tl.store(dk + pointers, slopes * direction[None, :], mask=inside)
