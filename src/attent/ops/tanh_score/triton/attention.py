"""Attention with tanh scores, softmax (v·tanh(q' + k')) V, in one kernel, and its backward.

The rows are processed in blocks. The forward is algorithm 1 of Dao et al. 2022, "FlashAttention" (arXiv:2205.14135),
with a different score: it stores the logarithm of each row's sum of exponentials. The backward differs from theirs: a
score takes as many reciprocals as it has features, which costs far more than storing a weight. The weights and score
gradients of a slab of rows are therefore computed once, stored, and read for the queries, the keys and the values in
turn. Every sum is computed by a single program, so that results are reproducible.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from attent.ops.tanh_score.triton import tiles
from attent.ops.tanh_score.triton.tiles import (
    ASSEMBLY,
    OPTIONS,
    all_narrow,
    block_of,
    directions,
    kernel_operand,
    power_of_two,
    score_tile,
    spans,
)

# Pairs whose weights are held at a time in the backward, over all sequences and heads: 128 MiB, and as much again for
# their gradients.
SLAB = 2**25
# Rows and keys of a tile; the widest values that one program holds.
BLOCK, WIDEST = 64, 128


def forward(
    query: Tensor, key: Tensor, v: Tensor, value: Tensor, key_begin: Tensor, key_end: Tensor
) -> tuple[Tensor, Tensor]:
    """Compute the contexts and each row's log-sum-exp.

    Args:
        query: q', (B, H, Tq, D).
        key: k', (B, H, Tk, D).
        v: (H|1, D).
        value: (B, H, Tk, Dv).
        key_begin: the first key that each query sees, int32 (B, H, Tq), from 0; at least Tk for a query that sees none.
        key_end: one past the last key that each query sees, at most Tk; 0 for a query that sees none.

    Returns:
        The contexts (B, H, Tq, Dv) in the dtype of `value`, and the log-sum-exps, float32 (B, H, Tq); zeros and −∞ for
        a query that sees no key.
    """
    batch, heads, queries, width = query.shape
    keys, values = value.shape[2:]
    context = value.new_zeros(batch, heads, queries, values)
    sums = torch.full((batch, heads, queries), -torch.inf, device=query.device)
    if not query.shape[:3].numel() or not keys:
        return context, sums
    q, k = kernel_operand(query, 0.5), kernel_operand(key, 1.0)
    key_begin, key_end = key_begin.contiguous(), key_end.contiguous()
    block, across = power_of_two(queries, 16, BLOCK), power_of_two(values, 16, WIDEST)
    # more float32 columns do not fit into a program's registers
    columns = BLOCK // 2 if value.dtype == torch.float32 else BLOCK
    grid = (batch * heads * triton.cdiv(queries, block), max(triton.cdiv(values, across), 1))
    _forward[grid](
        q.transposed, k.transposed, q.plain, k.plain, q.narrow, k.narrow, directions(v, heads),
        value.contiguous(), key_begin, key_end, context, sums, heads, queries, keys, width, values,
        ROWS=block, COLUMNS=columns, ACROSS=across, ASSEMBLY=ASSEMBLY, PRECISION=_precision(),
        num_warps=8, num_stages=1, **OPTIONS,
    )  # fmt: skip
    return context, sums


def backward(
    query: Tensor, key: Tensor, v: Tensor, value: Tensor, key_begin: Tensor, key_end: Tensor,
    context: Tensor, sums: Tensor, gradient: Tensor, of_sums: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """Compute the gradients of q', k', v and the values, given those of the contexts and of the log-sum-exps.

    The other arguments are those of `forward`, and its results.
    """
    batch, heads, queries, _ = query.shape
    keys, values = value.shape[2:]
    q, k, head_v = kernel_operand(query, 0.5), kernel_operand(key, 1.0), directions(v, heads)
    key_begin, key_end = key_begin.contiguous(), key_end.contiguous()
    n = batch * heads
    dq, dk, dvalue = (
        torch.zeros_like(q.plain),
        torch.zeros_like(k.plain),
        value.new_zeros(n, keys, values, dtype=torch.float32),
    )
    dv = torch.zeros_like(v)
    if query.shape[:3].numel() and keys:
        gradient, value = gradient.contiguous(), value.contiguous()
        # of P(dP − Σ P dP), the sum: gradient · context, row by row
        balance = ((gradient.float() * context.float()).sum(-1) - of_sums).contiguous()
        step, shares = max(SLAB // (n * keys) // BLOCK, 1) * BLOCK, []
        for start in range(0, queries, step):
            count = min(step, queries - start)
            weights, slopes = (torch.empty(n, count, keys, device=query.device) for _ in range(2))
            grid = (n * triton.cdiv(count, BLOCK), triton.cdiv(keys, BLOCK))
            _weights[grid](
                q.transposed, k.transposed, q.plain, k.plain, q.narrow, k.narrow, head_v,
                value, gradient, sums, balance, key_begin, key_end, weights, slopes,
                heads, queries, keys, q.plain.shape[2], values, start, count,
                ROWS=BLOCK, COLUMNS=BLOCK, ACROSS=power_of_two(values, 16, BLOCK), ASSEMBLY=ASSEMBLY,
                PRECISION=_precision(),
                num_warps=8, num_stages=1, **OPTIONS,
            )  # fmt: skip
            dq_slab, share = tiles.for_rows(q, k, head_v, slopes, key_begin, key_end, start)
            dq[:, start : start + count] = dq_slab
            shares.append(share)
            tiles.for_keys(q, k, head_v, slopes, key_begin, key_end, start, dk)
            across = power_of_two(values, 16, WIDEST)
            _values[(n * triton.cdiv(keys, BLOCK), max(triton.cdiv(values, across), 1))](
                weights, gradient, key_begin, key_end, dvalue, queries, keys, values, start, count,
                COLUMNS=BLOCK, RUN=BLOCK, ACROSS=across, PRECISION=_precision(),
                num_warps=8, num_stages=1, **OPTIONS,
            )  # fmt: skip
        dv = tiles.of_directions(torch.cat(shares, 1), v, batch)
    return (
        dq.view_as(query).to(query.dtype),
        dk.view_as(key).to(key.dtype),
        dv,
        dvalue.view_as(value).to(value.dtype),
    )


def _precision() -> str:
    """Return the precision of float32 products on tensor cores: three TF32 products, or one if PyTorch allows TF32.

    "ieee" on devices without such cores.
    """
    if not ASSEMBLY:
        return "ieee"
    return "tf32" if torch.backends.cuda.matmul.fp32_precision == "tf32" else "tf32x3"


@triton.jit
def product(a, b, PRECISION: tl.constexpr):
    """Return a @ b, summed in float32."""
    if PRECISION == "ieee":
        # the interpreter does not support bfloat16 products
        return tl.dot(a.to(tl.float32), b.to(tl.float32), input_precision="ieee")
    else:  # noqa: RET505
        return tl.dot(a, b, input_precision=PRECISION)


@triton.jit
def _forward(
    query_powers, key_powers, query, key, narrow_query, narrow_key, v, value, key_begin, key_end,
    context, sums, heads, queries, keys, width, values,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, ACROSS: tl.constexpr, ASSEMBLY: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    pair, _, rows = block_of(queries, ROWS)
    features = tl.program_id(1) * ACROSS + tl.arange(0, ACROSS)
    row_mask, feature_mask = rows < queries, features < values
    begin, end = spans(key_begin, key_end, pair, rows, queries, keys)
    even = (width + 1) // 2 * 2
    query_powers += pair * queries * even
    key_powers += pair * keys * even
    query += pair * queries * width
    key += pair * keys * width
    v += pair % heads * even
    value += pair * keys * values
    safe_rows = all_narrow(narrow_query + pair * queries, rows, queries)
    mixed = tl.zeros((ROWS, ACROSS), tl.float32)
    total = tl.zeros((ROWS,), tl.float32)
    highest = tl.full((ROWS,), float("-inf"), tl.float32)
    for start in range(tl.min(begin) // COLUMNS * COLUMNS, tl.max(end), COLUMNS):
        columns = start + tl.arange(0, COLUMNS)
        safe = (safe_rows & all_narrow(narrow_key + pair * keys, columns, keys)) > 0
        scores = score_tile(
            query_powers, key_powers, query, key, v, rows, columns, queries, keys, width, safe, ROWS, COLUMNS, ASSEMBLY
        )
        is_visible = (columns[None, :] >= begin[:, None]) & (columns[None, :] < end[:, None])
        scores = tl.where(is_visible, scores, float("-inf"))
        higher = tl.maximum(highest, tl.max(scores, 1))
        # No visible key in this row so far.
        above = tl.where(higher == float("-inf"), 0.0, higher)
        weights, shrunk = tl.exp(scores - above[:, None]), tl.exp(highest - above)
        total = total * shrunk + tl.sum(weights, 1)
        highest = higher
        pointers = value + columns[:, None] * values + features[None, :]
        value_tile = tl.load(pointers, mask=(columns < keys)[:, None] & feature_mask[None, :], other=0.0)
        mixed = mixed * shrunk[:, None] + product(weights.to(value_tile.dtype), value_tile, PRECISION)
    is_empty = total == 0.0
    mixed = tl.where(is_empty[:, None], 0.0, mixed / tl.where(is_empty, 1.0, total)[:, None])
    pointers = context + pair * queries * values + rows[:, None] * values + features[None, :]
    tl.store(pointers, mixed.to(context.dtype.element_ty), mask=row_mask[:, None] & feature_mask[None, :])
    # every program along the values computes the same
    logs = highest + tl.log(tl.where(is_empty, 1.0, total))
    tl.store(sums + pair * queries + rows, tl.where(is_empty, float("-inf"), logs), mask=row_mask)


@triton.jit
def _weights(
    query_powers, key_powers, query, key, narrow_query, narrow_key, v, value, gradient, sums, balance,
    key_begin, key_end, weights, slopes,
    heads, queries, keys, width, values, start, count,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, ACROSS: tl.constexpr, ASSEMBLY: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    pair, _, local = block_of(count, ROWS)
    lowest = tl.program_id(1) * COLUMNS
    columns = lowest + tl.arange(0, COLUMNS)
    rows = tl.where(local < count, start + local, queries)
    row_mask, column_mask = rows < queries, columns < keys
    begin, end = spans(key_begin, key_end, pair, rows, queries, keys)
    if (tl.min(begin) < lowest + COLUMNS) & (tl.max(end) > lowest):
        even = (width + 1) // 2 * 2
        safe_rows = all_narrow(narrow_query + pair * queries, rows, queries)
        safe = (safe_rows & all_narrow(narrow_key + pair * keys, columns, keys)) > 0
        scores = score_tile(
            query_powers + pair * queries * even, key_powers + pair * keys * even,
            query + pair * queries * width, key + pair * keys * width,
            v + pair % heads * even, rows, columns, queries, keys, width, safe, ROWS, COLUMNS, ASSEMBLY,
        )  # fmt: skip
        is_visible = (columns[None, :] >= begin[:, None]) & (columns[None, :] < end[:, None])
        share = tl.exp(scores - tl.load(sums + pair * queries + rows, mask=row_mask, other=0.0)[:, None])
        share = tl.where(is_visible, share, 0.0)
        gained = tl.zeros((ROWS, COLUMNS), tl.float32)
        for feature in range(0, values, ACROSS):
            features = feature + tl.arange(0, ACROSS)
            feature_mask = features < values
            pointers = gradient + pair * queries * values + rows[:, None] * values + features[None, :]
            dcontext = tl.load(pointers, mask=row_mask[:, None] & feature_mask[None, :], other=0.0)
            pointers = value + pair * keys * values + columns[None, :] * values + features[:, None]
            value_tile = tl.load(pointers, mask=column_mask[None, :] & feature_mask[:, None], other=0.0)
            gained += product(dcontext, value_tile, PRECISION)
        slope = share * (gained - tl.load(balance + pair * queries + rows, mask=row_mask, other=0.0)[:, None])
        pointers = pair * count * keys + local.to(tl.int64)[:, None] * keys + columns[None, :]
        inside = row_mask[:, None] & column_mask[None, :]
        tl.store(weights + pointers, share, mask=inside)
        tl.store(slopes + pointers, tl.where(is_visible, slope, 0.0), mask=inside)


@triton.jit
def _values(
    weights, gradient, key_begin, key_end,
    dvalue, queries, keys, values, start, count,
    COLUMNS: tl.constexpr, RUN: tl.constexpr, ACROSS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    pair, lowest, columns = block_of(keys, COLUMNS)
    features = tl.program_id(1) * ACROSS + tl.arange(0, ACROSS)
    feature_mask = features < values
    mixed = tl.zeros((COLUMNS, ACROSS), tl.float32)
    for run in range(0, count, RUN):
        local = run + tl.arange(0, RUN)
        rows = tl.where(local < count, start + local, queries)
        begin, end = spans(key_begin, key_end, pair, rows, queries, keys)
        if (tl.min(begin) < lowest + COLUMNS) & (tl.max(end) > lowest):
            is_visible = (columns[:, None] >= begin[None, :]) & (columns[:, None] < end[None, :])
            pointers = weights + pair * count * keys + local.to(tl.int64)[None, :] * keys + columns[:, None]
            share = tl.load(pointers, mask=is_visible, other=0.0)
            pointers = gradient + pair * queries * values + rows[:, None] * values + features[None, :]
            dcontext = tl.load(pointers, mask=(rows < queries)[:, None] & feature_mask[None, :], other=0.0)
            mixed += product(share.to(dcontext.dtype), dcontext, PRECISION)
    pointers = dvalue + pair * keys * values + columns[:, None] * values + features[None, :]
    inside = (columns < keys)[:, None] & feature_mask[None, :]
    tl.store(pointers, tl.load(pointers, mask=inside, other=0.0) + mixed, mask=inside)
