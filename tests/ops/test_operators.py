from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from torch import Tensor

from attent.ops import operators
from attent.ops.dense_attention import DenseAttention, is_compiled

pytestmark = [
    pytest.mark.skipif(not is_compiled(), reason="no extension: attent was installed without a compiler"),
    # PyTorch's compiler itself imports what PyTorch has deprecated
    pytest.mark.filterwarnings("ignore:.torch.jit"),
]

B, H, TQ, TK, D, DV = 2, 6, 5, 7, 4, 3
OPTIONS = ("begin", "bias", "offset_bias", "sink", "seed", "soft_cap")
# None, each option alone, and all together.
CHOICES: list[tuple[str, ...]] = [(), *((option,) for option in OPTIONS), OPTIONS]


def inputs(choice: tuple[str, ...], dtype: torch.dtype, groups: int, *, needs_grad: bool = True) -> list[Any]:
    """Return the operator's arguments, the tensors as a module's projections lay them out."""
    dice = torch.Generator().manual_seed(3)

    def tensor(*shape: int, of: torch.dtype = torch.float32) -> Tensor:
        return (2 * torch.randn(shape, generator=dice)).to(of).requires_grad_(needs_grad)

    parts = [tensor(B, length, heads, width, of=dtype) for length, heads, width in
             ((TQ, H, D), (TK, groups, D), (TK, groups, DV))]  # fmt: skip
    begin = torch.tensor([[0, 1, 2, 0, 6], [1, 1, 0, 3, 5]])[:, None]
    terms = {
        "bias": tensor(B, 1, TQ, TK),
        "offset_bias": tensor(H, TQ + TK - 1),
        "sink": tensor(1, H, 1, 1),
        "begin": begin,
        # row 4 of the first sequence sees no key
        "end": torch.tensor([7, 5, 6])[torch.tensor([[0, 1, 0, 2, 2], [0, 0, 1, 2, 0]])][:, None],
        "seed": torch.tensor([11]),
    }
    chosen = {*choice, *(("end",) if "begin" in choice else ())}
    optional = [terms[name] if name in chosen else None for name in terms]
    numbers = 0.5, 1.5 if "soft_cap" in choice else None, 0.3 if "seed" in choice else 0.0
    return [*(part.detach().transpose(1, 2).requires_grad_(needs_grad) for part in parts), *optional, *numbers]


CASES = [
    *itertools.product(CHOICES[:1] + CHOICES[-1:], (torch.float32, torch.bfloat16), (H, 2)),
    (CHOICES[-1], torch.float16, 2),
    *((choice, torch.float32, 3) for choice in CHOICES[1:-1]),
]


@pytest.mark.parametrize(("choice", "dtype", "groups"), CASES, ids=str)
def test_an_operator_has_the_context_and_gradients_of_the_kernel(
    choice: tuple[str, ...], dtype: torch.dtype, groups: int
) -> None:
    *tensors, begin, end, seed, scale, soft_cap, dropout = inputs(choice, dtype, groups)
    leaves = [tensor for tensor in tensors if tensor is not None]
    attention = DenseAttention(scale, begin, end, soft_cap, dropout, 0 if seed is None else int(seed))
    contexts = (
        operators.dense_attention(*tensors, begin, end, seed, scale, soft_cap, dropout)[0],
        attention(*tensors),
    )
    gradient = torch.randn(contexts[0].shape, generator=torch.Generator().manual_seed(4)).to(dtype)
    gradients = [torch.autograd.grad(context, leaves, gradient) for context in contexts]
    assert all(float(tensor.abs().sum()) for tensor in gradients[0])
    torch.testing.assert_close([contexts[0], *gradients[0]], [contexts[1], *gradients[1]], rtol=0, atol=0)


@pytest.mark.slow
@pytest.mark.parametrize(("choice", "dtype", "groups"), CASES, ids=str)
def test_opcheck_accepts_the_context(choice: tuple[str, ...], dtype: torch.dtype, groups: int) -> None:
    torch.library.opcheck(operators.dense_attention, inputs(choice, dtype, groups))


@pytest.mark.slow
@pytest.mark.parametrize(("choice", "dtype", "groups"), CASES, ids=str)
def test_opcheck_accepts_the_gradients(choice: tuple[str, ...], dtype: torch.dtype, groups: int) -> None:
    arguments = inputs(choice, dtype, groups, needs_grad=False)
    context, statistics = operators.dense_attention(*arguments)
    needs_grad = [tensor is not None for tensor in arguments[3:6]]
    gradient = torch.randn(context.shape).to(dtype)
    torch.library.opcheck(operators.dense_attention_backward, (gradient, context, statistics, *arguments, needs_grad))


def test_both_operators_are_checked_fast() -> None:
    arguments = inputs(OPTIONS, torch.float32, 2)
    torch.library.opcheck(operators.dense_attention, arguments, test_utils=("test_schema", "test_faketensor"))


def test_second_derivatives_raise_an_error() -> None:
    arguments = inputs((), torch.float32, 2)
    context = operators.dense_attention(*arguments)[0]
    with pytest.raises(NotImplementedError, match="only first derivatives"):
        torch.autograd.grad(context.square().sum(), arguments[0], create_graph=True)


def test_only_the_terms_that_need_a_gradient_get_one() -> None:
    arguments = inputs(OPTIONS, torch.float32, 2, needs_grad=False)
    context, statistics = operators.dense_attention(*arguments)
    results = [
        operators.dense_attention_backward(torch.ones_like(context), context, statistics, *arguments, needs_grad)
        for needs_grad in ([True] * 3, [False, True, False])
    ]
    assert [len(gradients) for gradients in results] == [6, 4]
    torch.testing.assert_close([*results[0][:3], results[0][4]], results[1], rtol=0, atol=0)
