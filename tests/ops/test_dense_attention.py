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


def reference(query: Tensor, key: Tensor, value: Tensor, hidden: Tensor) -> Tensor:
    key, value = (tensor.repeat_interleave(H // G, 1) for tensor in (key, value))
    return (0.5 * query @ key.mT).masked_fill(hidden, -torch.inf).softmax(-1) @ value


@pytest.mark.parametrize("kind", ["all keys", "a range", "a bias"])
def test_context_and_derivatives_agree_with_the_formula(kind: str) -> None:
    hidden, bounds, bias = torch.zeros(B, H, TQ, TK, dtype=torch.bool), (None, None), None
    if kind == "a range":
        begin, end = torch.randint(0, 3, (B, H, TQ)), torch.randint(4, TK + 1, (B, H, TQ))
        keys, bounds = torch.arange(TK), (begin, end)
        hidden = (keys < begin[..., None]) | (keys >= end[..., None])
    elif kind == "a bias":
        hidden = torch.rand(B, H, TQ, TK) < 0.4
        hidden[..., 0] = False
        bias = torch.zeros(B, H, TK, TQ).masked_fill(hidden.mT, -torch.inf)

    def plain(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return reference(query, key, value, hidden)

    inputs = operands()
    heads = [tensor.transpose(1, 2) for tensor in inputs]
    contexts = [DenseAttention(plain, 0.5, *bounds, bias)(*heads), plain(*heads)]
    torch.testing.assert_close(*contexts)
    first = [torch.autograd.grad(context.square().sum(), inputs, create_graph=True) for context in contexts]
    torch.testing.assert_close(*first, atol=1e-4, rtol=1e-4)
    second = [torch.autograd.grad(sum(gradient.square().sum() for gradient in gradients), inputs) for gradients in first]
    torch.testing.assert_close(*second, atol=1e-3, rtol=1e-3)
