"""Parts of every kernel of tanh forms: their operands in memory, and v·tanh(q' + k') of one tile.

With A = e^2q' / 2 and B = e^2k', y = AB + 1/2 is (1 + e^2(q' + k')) / 2, and tanh(q' + k') = 1 − 1 / y. A GPU takes eight times as
long for a reciprocal as for a multiply-add, so two of them share one: 1 / y₀ = y₁ · 1 / (y₀ y₁) (Montgomery 1987, §10.3.1). Its
own tanh would take as long as a reciprocal, and has 11 bits.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

# Up to here the product of two y stays finite; a tile with a wider number takes the exponential of every sum instead.
WIDE = 10.0
# Multiply-adds are one instruction, whatever Triton's default.
OPTIONS = {"enable_fp_fusion": True}


class KernelOperand(NamedTuple):
    """Queries or keys as the kernels read them, n = B · H."""

    plain: Tensor  # (n, T, D) float32
    powers: Tensor  # (n, T, D) e^2x, or half of it
    transposed: Tensor  # (n, D, T) the same, D rounded up to even
    narrow: Tensor  # (n, T) 1 where every number is within ±WIDE, so that the powers serve


def kernel_operand(features: Tensor, factor: float) -> KernelOperand:
    """Lay out queries (factor 1/2) or keys (factor 1) of (B, H, T, D)."""
    plain = features.detach().float().flatten(0, 1).contiguous()
    powers = torch.exp(2 * plain.clamp(-WIDE, WIDE)) * factor
    even = torch.nn.functional.pad(powers, (0, plain.shape[2] % 2))
    narrow = (plain.abs() <= WIDE).all(-1).to(torch.int32)
    return KernelOperand(plain, powers, even.mT.contiguous(), narrow)


def directions(v: Tensor, heads: int) -> Tensor:
    """v (H|1, D) for every head, in float32, D rounded up to even."""
    return torch.nn.functional.pad(v.detach().float(), (0, v.shape[1] % 2)).expand(heads, -1).contiguous()


def power_of_two(size: int, minimum: int, maximum: int) -> int:
    """The block for an axis of this size."""
    return max(min(triton.next_power_of_2(size), maximum), minimum)


@triton.jit
def inverse(y, ASSEMBLY: tl.constexpr):
    """1 / y, y at least 1/4, to about one unit in the last place."""
    if ASSEMBLY:
        return tl.inline_asm_elementwise("rcp.approx.ftz.f32 $0, $1;", "=f,f", [y], dtype=tl.float32, is_pure=True, pack=1)
    else:  # noqa: RET505
        return 1.0 / y


# Triton's interpreter knows no assembly, and another maker's GPU not this one.
ASSEMBLY = isinstance(inverse, triton.JITFunction) and torch.version.hip is None


@triton.jit
def level_of_sum(a, b):
    """Y = (1 + e^2(a + b)) / 2 where the product of powers might overflow; NaN stays NaN."""
    x = 2.0 * (a + b)
    x = tl.where(x > 80.0, 80.0, x)
    x = tl.where(x < -80.0, -80.0, x)
    return 0.5 * tl.exp(x) + 0.5


@triton.jit
def block_of(count, BLOCK: tl.constexpr):
    """Return the program's sequence and head, in 64 bits, and its block of their `count` tokens: the first, and all."""
    blocks = tl.cdiv(count, BLOCK)
    pair = (tl.program_id(0) // blocks).to(tl.int64)
    lowest = tl.program_id(0) % blocks * BLOCK
    return pair, lowest, lowest + tl.arange(0, BLOCK)


@triton.jit
def all_narrow(narrow, tokens, count):
    """Return whether the powers of all these tokens are in range."""
    return tl.min(tl.load(narrow + tokens, mask=tokens < count, other=1))


@triton.jit
def spans(key_begin, key_end, pair, rows, queries, keys):
    """Return the first key that each row sees, and one past the last."""
    pointers = pair * queries + rows
    begin = tl.load(key_begin + pointers, mask=rows < queries, other=keys)
    end = tl.load(key_end + pointers, mask=rows < queries, other=0)
    return begin, end


@triton.jit
def score_tile(
    query_powers, key_powers, query, key, v, rows, columns, queries, keys, width, safe,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, ASSEMBLY: tl.constexpr,
):  # fmt: skip
    """v·tanh(q' + k') of some rows and columns of one sequence and head, whose beginning the pointers mark."""
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
