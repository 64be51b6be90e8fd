from __future__ import annotations

import pytest
import torch
from torch import Tensor

from attent.ops.dense_attention import DenseAttention, is_compiled

pytestmark = pytest.mark.skipif(not is_compiled(), reason="no extension: attent was installed without a compiler")
B, H, G, TQ, TK, D, DV = 2, 4, 2, 5, 7, 8, 6


def operands() -> list[Tensor]:
    shapes = (B, TQ, H, D), (B, TK, G, D), (B, TK, G, DV)
    return [torch.randn(shape).requires_grad_() for shape in shapes]


def reference(
    query: Tensor, key: Tensor, value: Tensor, bias: Tensor, soft_cap: float | None, sink: Tensor | None
) -> Tensor:
    key, value = (tensor.repeat_interleave(H // G, 1) for tensor in (key, value))
    scores = 0.5 * query @ key.mT
    if soft_cap is not None:
        scores = soft_cap * (scores / soft_cap).tanh()
    scores = scores + bias
    column = torch.full((1, H, 1, 1), -torch.inf) if sink is None else sink
    scores = torch.cat((scores, column.expand(B, H, TQ, 1)), -1)
    return scores.softmax(-1)[..., :-1] @ value


@pytest.mark.parametrize("kind", ["all keys", "a range", "a bias", "a bias of offsets", "a soft cap", "a sink"])
def test_context_and_derivatives_agree_with_the_formula(kind: str) -> None:
    hidden, bounds = torch.zeros(B, H, TQ, TK, dtype=torch.bool), (None, None)
    soft_cap = 0.9 if kind == "a soft cap" else None
    bias = torch.randn(1, H, TQ, TK).requires_grad_() if kind == "a bias" else None
    offset_bias = torch.randn(H, TQ + TK - 1).requires_grad_() if kind == "a bias of offsets" else None
    sink = torch.randn(1, H, 1, 1).requires_grad_() if kind == "a sink" else None
    if kind == "a range":
        begin, end = torch.randint(0, 3, (B, H, TQ)), torch.randint(4, TK + 1, (B, H, TQ))
        keys, bounds = torch.arange(TK), (begin, end)
        hidden = (keys < begin[..., None]) | (keys >= end[..., None])

    def plain(
        query: Tensor,
        key: Tensor,
        value: Tensor,
        bias: Tensor | None,
        offset_bias: Tensor | None,
        sink: Tensor | None = None,
    ) -> Tensor:
        total = torch.zeros(B, H, TQ, TK) if bias is None else bias
        if offset_bias is not None:
            total = total + offset_bias[:, torch.arange(TQ)[:, None] - torch.arange(TK) + TK - 1]
        return reference(query, key, value, total.masked_fill(hidden, -torch.inf), soft_cap, sink)

    inputs = operands()
    heads = [tensor.transpose(1, 2) for tensor in inputs]
    leaves = [*inputs, *(tensor for tensor in (bias, offset_bias, sink) if tensor is not None)]
    attention = DenseAttention(0.5, *bounds, soft_cap, reference=plain)
    contexts = [attention(*heads, bias, offset_bias, sink), plain(*heads, bias, offset_bias, sink)]
    torch.testing.assert_close(*contexts)
    first = [torch.autograd.grad(context.square().sum(), leaves, create_graph=True) for context in contexts]
    torch.testing.assert_close(*first, atol=1e-4, rtol=1e-4)
    totals = [sum(gradient.square().sum() for gradient in gradients) for gradients in first]
    torch.testing.assert_close(*(torch.autograd.grad(total, leaves) for total in totals), atol=1e-3, rtol=1e-3)
