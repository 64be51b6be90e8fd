"""Packed batches against each sequence by itself, in float64."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from torch import Tensor

import attent
from attent.errors import ImplementationError, ShapeError
from attent.integrations.varlen import flash_attn_varlen_func, varlen_attn

WIDTH = 8


def packing(seed: int) -> tuple[list[Tensor], list[int], list[int], dict[str, Any]]:
    """Random lengths, some of them 0, heads and options."""
    dice = random.Random(seed)
    count, same = dice.randint(1, 6), dice.random() < 0.5
    lengths = [dice.choice((0, 1, 2, 5, 9, 17, 40)) for _ in range(count)]
    key_lengths = lengths if same else [length + dice.choice((0, 0, 1, 7)) for length in lengths]
    if not sum(lengths):
        lengths, key_lengths = [3], [3]
    groups = dice.choice((1, 2, 4))
    generator = torch.Generator().manual_seed(seed)
    tensors = [
        torch.randn(total, heads, WIDTH, generator=generator, dtype=torch.float64)
        for total, heads in ((sum(lengths), 4), (sum(key_lengths), groups), (sum(key_lengths), groups))
    ]
    slopes = torch.rand(dice.choice(((4,), (len(lengths), 4))), generator=generator, dtype=torch.float64)
    options = {
        "causal": dice.random() < 0.5,
        "window_size": dice.choice(((-1, -1), (3, 0), (2, 4), (0, 0))),
        "softcap": dice.choice((0.0, 2.0)),
        "softmax_scale": dice.choice((None, 0.3)),
        "alibi_slopes": dice.choice((None, slopes)),
    }
    return tensors, lengths, key_lengths, options


def starts(lengths: list[int]) -> Tensor:
    return torch.tensor([0, *lengths], dtype=torch.int32).cumsum(0, dtype=torch.int32)


def one_by_one(tensors: list[Tensor], lengths: list[int], key_lengths: list[int], options: dict[str, Any]) -> Tensor:
    """The definition: each sequence by products, its last query at its last key."""
    query, key, value = tensors
    contexts = []
    parts = zip(query.split(lengths), key.split(key_lengths), value.split(key_lengths), strict=True)
    for index, (own, own_key, own_value) in enumerate(parts):
        own_key, own_value = (part.repeat_interleave(4 // part.shape[1], 1) for part in (own_key, own_value))
        scores = torch.einsum("qhd,khd->hqk", own, own_key) * (options["softmax_scale"] or WIDTH**-0.5)
        if options["softcap"]:
            scores = options["softcap"] * (scores / options["softcap"]).tanh()
        at = torch.arange(len(own))[:, None] + len(own_key) - len(own)
        offset = torch.arange(len(own_key)) - at
        if options["alibi_slopes"] is not None:
            slopes = options["alibi_slopes"].double()
            scores = scores - (slopes if slopes.dim() == 1 else slopes[index])[:, None, None] * offset.abs()
        left, right = options["window_size"]
        right = 0 if options["causal"] else right
        allowed = (offset >= -left if left >= 0 else offset > -(10**6)) & (
            offset <= right if right >= 0 else offset < 10**6
        )
        # rows without keys are finite, and then zero
        weights = scores.masked_fill(~allowed, -1e30).softmax(-1).masked_fill(~allowed, 0.0)
        contexts.append(torch.einsum("hqk,khd->qhd", weights, own_value))
    return torch.cat(contexts)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_packed_batches_equal_their_sequences(dtype: torch.dtype) -> None:
    tolerance = 1e-10 if dtype == torch.float64 else 1e-5
    for seed in range(200):
        exact, lengths, key_lengths, options = packing(seed)
        tensors = [tensor.to(dtype).requires_grad_() for tensor in exact]
        exact = [tensor.detach().double().requires_grad_() for tensor in tensors]
        expected = one_by_one(exact, lengths, key_lengths, options)
        context = flash_attn_varlen_func(
            *tensors, starts(lengths), starts(key_lengths), max(lengths), max(key_lengths), **options
        )
        gradient = torch.randn(expected.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        results = (context, *torch.autograd.grad(context, tensors, gradient.to(dtype)))
        references = (expected, *torch.autograd.grad(expected, exact, gradient))
        for result, reference in zip(results, references, strict=True):
            scale = max(1.0, float(reference.detach().abs().max()))
            torch.testing.assert_close(result.double(), reference, atol=tolerance * scale, rtol=0, msg=f"seed {seed}")


def test_signature_of_pytorch() -> None:
    lengths, tensors = [3, 0, 5], [torch.randn(8, heads, WIDTH, dtype=torch.float64) for heads in (4, 2, 2)]
    causal = varlen_attn(*tensors, starts(lengths), None, 1, 1, window_size=(-1, 0), enable_gqa=True, num_splits=1)
    options = {"softmax_scale": None, "softcap": 0.0, "alibi_slopes": None, "causal": True, "window_size": (-1, -1)}
    torch.testing.assert_close(causal, one_by_one(tensors, lengths, lengths, options))


def test_keys_after_those_in_use_are_not_seen() -> None:
    query, key, value = (torch.randn(total, 2, WIDTH, dtype=torch.float64) for total in (2, 12, 12))
    key[3:6], value[3:6] = torch.nan, torch.nan
    context = varlen_attn(
        query, key, value, starts([1, 1]), starts([6, 6]), 1, 6, window_size=(-1, 0), seqused_k=torch.tensor([3, 6])
    )
    for row, part in ((0, slice(0, 3)), (1, slice(6, 12))):
        sides = (tensor.transpose(0, 1)[None] for tensor in (query[row : row + 1], key[part], value[part]))
        torch.testing.assert_close(context[row], attent.attend(*sides)[0, :, 0])


def test_memory_is_linear_in_the_batch() -> None:
    """A table of all pairs would have 10^10 numbers."""
    lengths = [10] * 10_000
    tensors = [torch.randn(100_000, 1, 4) for _ in range(3)]
    context = flash_attn_varlen_func(*tensors, starts(lengths), starts(lengths), 10, 10, causal=True)
    sides = [tensor[-10:].transpose(0, 1)[None] for tensor in tensors]
    torch.testing.assert_close(context[-10:], attent.attend(*sides, mask="causal")[0].transpose(0, 1))


def test_what_does_not_fit_is_refused() -> None:
    query, key, value = (torch.randn(6, heads, WIDTH) for heads in (4, 2, 2))
    with pytest.raises(ShapeError, match="one number of heads without enable_gqa, got 4 and 2"):
        varlen_attn(query, key, value, starts([6]), None, 6, 6)
    for wrong in ([5], [7], [7, -1]):
        with pytest.raises(ShapeError, match="the sequences of query must begin at 0, ascend and end at 6"):
            varlen_attn(query, key, value, starts(wrong), starts([6]), 6, 6, enable_gqa=True)
    with pytest.raises(ShapeError, match="the sequences of key must begin at 0, ascend and end at 5"):
        varlen_attn(query, key[:5], value[:5], starts([6]), None, 6, 6, enable_gqa=True)
    for name, option in (("block_table", torch.zeros(2, 2)), ("return_attn_probs", True), ("scal", 0.5)):
        with pytest.raises(ImplementationError, match=f"no {name}"):
            flash_attn_varlen_func(query, key, value, starts([6]), starts([6]), 6, 6, **{name: option})
