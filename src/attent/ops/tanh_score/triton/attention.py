"""Attention of tanh form in one kernel, softmax (v·tanh(q' + k')) V, and what its backward recomputes, some rows at a time.

The forward is that of Dao et al. 2022, "FlashAttention", algorithm 1 (arXiv:2205.14135), with another score: it keeps the logarithm
of each row's sum of exponentials. The backward differs from theirs: a score costs as many reciprocals as it has features, beside
which writing a weight down costs nothing, so the weights and the gradients of the scores of a slab of rows are computed once,
held, and read for the queries, the keys and the values in turn. No sum is shared by two programs, so that runs are alike.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from attent.ops.tanh_score.triton import tiles
from attent.ops.tanh_score.triton.lanes import ASSEMBLY, OPTIONS, all_narrow, block_of, directions, lay, power_of_two, score_tile, spans

# Pairs whose weights are held at a time in the backward, over all sequences and heads: 128 MiB, and as much for their gradients.
SLAB = 2**25
# Rows and keys of a tile; the widest values that one program holds.
BLOCK, WIDEST = 64, 128


def forward(query: Tensor, key: Tensor, v: Tensor, value: Tensor, first: Tensor, behind: Tensor) -> tuple[Tensor, Tensor]:
    """The contexts and each row's log-sum-exp.

    Args:
        query: q', (B, H, Tq, D).
        key: k', (B, H, Tk, D).
        v: (H|1, D).
        value: (B, H, Tk, Dv).
        first: the first key that each query sees, int32 (B, H, Tq), from 0; of one that sees none at least Tk.
        behind: the one behind the last, at most Tk; of a query that sees none 0.

    Returns:
        (B, H, Tq, Dv) of value's type, zeros where a query sees nothing; float32 (B, H, Tq), −∞ there.
    """
    batch, heads, queries, width = query.shape
    keys, values = value.shape[2:]
    context = value.new_zeros(batch, heads, queries, values)
    sums = torch.full((batch, heads, queries), -torch.inf, device=query.device)
    if not query.shape[:3].numel() or not keys:
        return context, sums
    ours, theirs = lay(query, 0.5), lay(key, 1.0)
    first, behind = first.contiguous(), behind.contiguous()
    block, across = power_of_two(queries, 16, BLOCK), power_of_two(values, 16, WIDEST)
    # more of float32 do not fit a program's registers
    columns = BLOCK // 2 if value.dtype == torch.float32 else BLOCK
    grid = (batch * heads * triton.cdiv(queries, block), max(triton.cdiv(values, across), 1))
    _forward[grid](
        ours.turned, theirs.turned, ours.plain, theirs.plain, ours.narrow, theirs.narrow, directions(v, heads),
        value.contiguous(), first, behind, context, sums, heads, queries, keys, width, values,
        ROWS=block, COLUMNS=columns, ACROSS=across, ASSEMBLY=ASSEMBLY, PRECISION=_precision(),
        num_warps=8, num_stages=1, **OPTIONS,
    )  # fmt: skip
    return context, sums


def backward(
    query: Tensor, key: Tensor, v: Tensor, value: Tensor, first: Tensor, behind: Tensor,
    context: Tensor, sums: Tensor, gradient: Tensor, of_sums: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """The gradients of q', k', v and the values, given those of the contexts and of their log-sum-exps; the rest as in `forward`."""
    batch, heads, queries, _ = query.shape
    keys, values = value.shape[2:]
    ours, theirs, every = lay(query, 0.5), lay(key, 1.0), directions(v, heads)
    first, behind = first.contiguous(), behind.contiguous()
    n = batch * heads
    dq, dk, dvalue = torch.zeros_like(ours.plain), torch.zeros_like(theirs.plain), value.new_zeros(n, keys, values, dtype=torch.float32)
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
                ours.turned, theirs.turned, ours.plain, theirs.plain, ours.narrow, theirs.narrow, every,
                value, gradient, sums, balance, first, behind, weights, slopes,
                heads, queries, keys, ours.plain.shape[2], values, start, count,
                ROWS=BLOCK, COLUMNS=BLOCK, ACROSS=power_of_two(values, 16, BLOCK), ASSEMBLY=ASSEMBLY, PRECISION=_precision(),
                num_warps=8, num_stages=1, **OPTIONS,
            )  # fmt: skip
            here, share = tiles.for_rows(ours, theirs, every, slopes, first, behind, start)
            dq[:, start : start + count] = here
            shares.append(share)
            tiles.for_keys(ours, theirs, every, slopes, first, behind, start, dk)
            across = power_of_two(values, 16, WIDEST)
            _values[(n * triton.cdiv(keys, BLOCK), max(triton.cdiv(values, across), 1))](
                weights, gradient, first, behind, dvalue, queries, keys, values, start, count,
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
    """How products of float32 are computed on tensor cores: of three parts, of one where PyTorch may; "ieee" without such cores."""
    if not ASSEMBLY:
        return "ieee"
    return "tf32" if torch.backends.cuda.matmul.fp32_precision == "tf32" else "tf32x3"


@triton.jit
def product(a, b, PRECISION: tl.constexpr):
    """A @ b, summed in float32."""
    if PRECISION == "ieee":
        # the interpreter has no products of bfloat16
        return tl.dot(a.to(tl.float32), b.to(tl.float32), input_precision="ieee")
    else:  # noqa: RET505
        return tl.dot(a, b, input_precision=PRECISION)


@triton.jit
def _forward(
    ours, theirs, query, key, narrow_query, narrow_key, v, value, first, behind,
    context, sums, heads, queries, keys, width, values,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, ACROSS: tl.constexpr, ASSEMBLY: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    pair, _, rows = block_of(queries, ROWS)
    features = tl.program_id(1) * ACROSS + tl.arange(0, ACROSS)
    here, wide = rows < queries, features < values
    begin, end = spans(first, behind, pair, rows, queries, keys)
    even = (width + 1) // 2 * 2
    ours += pair * queries * even
    theirs += pair * keys * even
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
        found = score_tile(ours, theirs, query, key, v, rows, columns, queries, keys, width, safe, ROWS, COLUMNS, ASSEMBLY)
        seen = (columns[None, :] >= begin[:, None]) & (columns[None, :] < end[:, None])
        found = tl.where(seen, found, float("-inf"))
        higher = tl.maximum(highest, tl.max(found, 1))
        # a row that has seen nothing yet
        above = tl.where(higher == float("-inf"), 0.0, higher)
        weights, shrunk = tl.exp(found - above[:, None]), tl.exp(highest - above)
        total = total * shrunk + tl.sum(weights, 1)
        highest = higher
        place = value + columns[:, None] * values + features[None, :]
        some = tl.load(place, mask=(columns < keys)[:, None] & wide[None, :], other=0.0)
        mixed = mixed * shrunk[:, None] + product(weights.to(some.dtype), some, PRECISION)
    nothing = total == 0.0
    mixed = tl.where(nothing[:, None], 0.0, mixed / tl.where(nothing, 1.0, total)[:, None])
    place = context + pair * queries * values + rows[:, None] * values + features[None, :]
    tl.store(place, mixed.to(context.dtype.element_ty), mask=here[:, None] & wide[None, :])
    # every program along the values computes the same
    tl.store(sums + pair * queries + rows, tl.where(nothing, float("-inf"), highest + tl.log(tl.where(nothing, 1.0, total))), mask=here)


@triton.jit
def _weights(
    ours, theirs, query, key, narrow_query, narrow_key, v, value, gradient, sums, balance,
    first, behind, weights, slopes,
    heads, queries, keys, width, values, start, count,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, ACROSS: tl.constexpr, ASSEMBLY: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    pair, _, local = block_of(count, ROWS)
    lowest = tl.program_id(1) * COLUMNS
    columns = lowest + tl.arange(0, COLUMNS)
    rows = tl.where(local < count, start + local, queries)
    here, there = rows < queries, columns < keys
    begin, end = spans(first, behind, pair, rows, queries, keys)
    if (tl.min(begin) < lowest + COLUMNS) & (tl.max(end) > lowest):
        even = (width + 1) // 2 * 2
        safe_rows = all_narrow(narrow_query + pair * queries, rows, queries)
        safe = (safe_rows & all_narrow(narrow_key + pair * keys, columns, keys)) > 0
        found = score_tile(
            ours + pair * queries * even, theirs + pair * keys * even, query + pair * queries * width, key + pair * keys * width,
            v + pair % heads * even, rows, columns, queries, keys, width, safe, ROWS, COLUMNS, ASSEMBLY,
        )  # fmt: skip
        seen = (columns[None, :] >= begin[:, None]) & (columns[None, :] < end[:, None])
        share = tl.exp(found - tl.load(sums + pair * queries + rows, mask=here, other=0.0)[:, None])
        share = tl.where(seen, share, 0.0)
        gained = tl.zeros((ROWS, COLUMNS), tl.float32)
        for feature in range(0, values, ACROSS):
            features = feature + tl.arange(0, ACROSS)
            wide = features < values
            place = gradient + pair * queries * values + rows[:, None] * values + features[None, :]
            asked = tl.load(place, mask=here[:, None] & wide[None, :], other=0.0)
            place = value + pair * keys * values + columns[None, :] * values + features[:, None]
            given = tl.load(place, mask=there[None, :] & wide[:, None], other=0.0)
            gained += product(asked, given, PRECISION)
        slope = share * (gained - tl.load(balance + pair * queries + rows, mask=here, other=0.0)[:, None])
        place = pair * count * keys + local.to(tl.int64)[:, None] * keys + columns[None, :]
        inside = here[:, None] & there[None, :]
        tl.store(weights + place, share, mask=inside)
        tl.store(slopes + place, tl.where(seen, slope, 0.0), mask=inside)


@triton.jit
def _values(
    weights, gradient, first, behind,
    dvalue, queries, keys, values, start, count,
    COLUMNS: tl.constexpr, RUN: tl.constexpr, ACROSS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    pair, lowest, columns = block_of(keys, COLUMNS)
    features = tl.program_id(1) * ACROSS + tl.arange(0, ACROSS)
    wide = features < values
    mixed = tl.zeros((COLUMNS, ACROSS), tl.float32)
    for run in range(0, count, RUN):
        local = run + tl.arange(0, RUN)
        rows = tl.where(local < count, start + local, queries)
        begin, end = spans(first, behind, pair, rows, queries, keys)
        if (tl.min(begin) < lowest + COLUMNS) & (tl.max(end) > lowest):
            seen = (columns[:, None] >= begin[None, :]) & (columns[:, None] < end[None, :])
            place = weights + pair * count * keys + local.to(tl.int64)[None, :] * keys + columns[:, None]
            share = tl.load(place, mask=seen, other=0.0)
            place = gradient + pair * queries * values + rows[:, None] * values + features[None, :]
            asked = tl.load(place, mask=(rows < queries)[:, None] & wide[None, :], other=0.0)
            mixed += product(share.to(asked.dtype), asked, PRECISION)
    place = dvalue + pair * keys * values + columns[:, None] * values + features[None, :]
    inside = (columns < keys)[:, None] & wide[None, :]
    tl.store(place, tl.load(place, mask=inside, other=0.0) + mixed, mask=inside)
