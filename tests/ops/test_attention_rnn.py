from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from attent.layers.recurrent import RecurrentStack, RecurrentState
from attent.ops.attention_rnn import AttentionSteps, Layer, Source, StackSteps

pytestmark = pytest.mark.needs_native
LENGTHS = torch.tensor([4, 11, 1, 0, 7])


def error(actual: Tensor, exact: Tensor) -> float:
    return ((actual.double() - exact).norm() / exact.norm()).item()


def source_of(width: int, features: int, size: float, dtype: torch.dtype) -> tuple[Source, Tensor]:
    """Keys and queries (B, T, D), of which one feature is large, with opposite signs."""
    keys, queries = torch.randn(5, 11, width), torch.randn(5, 3, width)
    keys[..., 1] = size + torch.randn(5, 11)
    queries[..., 1] = -size
    parameters = torch.empty(2, width), torch.randn(width), torch.randn(width)
    return Source(torch.randn(5, 11, features).to(dtype), keys.to(dtype), LENGTHS, *parameters), queries.to(dtype)


def exactly(source: Source, queries: Tensor) -> tuple[list[Tensor], Tensor]:
    values, keys, products = (tensor.double().requires_grad_() for tensor in (source.values, source.keys, queries))
    inputs = [values, keys, products]
    if source.v is None or source.bias is None:
        scores = products @ keys.mT
    else:
        v = source.v.double().requires_grad_()
        inputs.append(v)
        scores = torch.tanh((products + source.bias)[:, :, None] + keys[:, None]) @ v  # (B, T, Tk)
    hidden = torch.arange(11) >= LENGTHS[:, None, None]
    weights = scores.masked_fill(hidden, -1e30).softmax(-1).masked_fill(hidden, 0.0)
    return inputs, weights @ values


@pytest.mark.usefixtures("level")
@pytest.mark.parametrize(
    ("width", "features", "size", "dtype"),
    [
        *((37, 7, size, torch.float32) for size in (1.0, 4.0, 9.0, 15.0, 40.0)),
        (16, 33, 1.0, torch.float32),
        (37, 7, 9.0, torch.bfloat16),
        (16, 33, 40.0, torch.bfloat16),
    ],
)
def test_steps_agree_with_the_formula_whatever_the_size_of_what_is_added(
    width: int, features: int, size: float, dtype: torch.dtype
) -> None:
    source, queries = source_of(width, features, size, dtype)
    agrees(source, queries, 2**-6 if dtype == torch.bfloat16 else 5e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_products_agree_with_the_formula(dtype: torch.dtype) -> None:
    source, queries = source_of(37, 7, 0.5, dtype)
    agrees(source._replace(v=None, bias=None), queries * 0.5, 2**-6 if dtype == torch.bfloat16 else 5e-6)


def agrees(source: Source, queries: Tensor, limit: float) -> None:
    inputs, exact = exactly(source, queries)
    glances, expected = AttentionSteps(source, 3), torch.randn(3, *exact.shape[::2]).to(source.values.dtype)
    steps = [glances.forward(position, queries[:, position].contiguous()).clone() for position in range(3)]
    result = torch.stack(steps, 1)
    glances.start_backward()
    products, outer = expected * 0.25, expected * 0.75
    dqueries = torch.empty(3, 5, queries.shape[-1], dtype=queries.dtype)
    for index in reversed(range(3)):
        glances.backward(index, products[index], outer, dqueries)
    dvalues, dkeys, dv = glances.source_gradients()
    right = torch.autograd.grad(exact, inputs, (products + outer).double().transpose(0, 1))
    actuals = [result, dvalues, dkeys, dqueries.transpose(0, 1), dv]
    for actual, reference in zip(actuals, [exact.detach(), *right], strict=False):
        assert error(actual, reference) < limit
    assert not result[3].any()
    assert not dkeys[LENGTHS[:, None] <= torch.arange(11)].any()


def test_bits_do_not_depend_on_the_threads(assert_same_bits: Callable[..., None]) -> None:
    source, queries = source_of(37, 7, 1.0, torch.float32)

    def compute() -> list[Tensor]:
        glances, dqueries = AttentionSteps(source, 1), torch.empty(1, 5, 37)
        context = glances.forward(0, queries[:, 0].contiguous())
        glances.start_backward()
        glances.backward(0, torch.ones(5, 7), None, dqueries)
        return [tensor for tensor in (context, dqueries, *glances.source_gradients()) if tensor is not None]

    assert_same_bits(compute)


def test_what_is_no_number_stays_none_in_its_row_alone() -> None:
    source, queries = source_of(37, 7, 1.0, torch.float32)
    queries[1, 0, 5] = torch.nan
    context = AttentionSteps(source, 1).forward(0, queries[:, 0].contiguous())
    assert context.isnan().any(-1).tolist() == [False, True, False, False, False]


@pytest.mark.parametrize("cell", ["gru", "lstm"])
@pytest.mark.parametrize("ahead", [False, True])
def test_layers_say_what_single_steps_of_pytorch_do(cell: str, ahead: bool) -> None:
    layers, reader = RecurrentStack(cell, 5, 7, layers=3), torch.randn(5, 7, requires_grad=True)
    state = [RecurrentState(torch.randn(2, 7), torch.randn(2, 7) if cell == "lstm" else None) for _ in range(3)]
    embedded, extra = torch.randn(4, 2, 3, requires_grad=True), torch.randn(4, 2, 2)
    extra[0] = 0.0
    extra, upstream = extra.requires_grad_(), torch.randn(4, 2, 5)
    pairs = zip(layers.layers, state, strict=True)
    flat = [Layer(item.hidden, item.cell, *layer.parameters()) for layer, item in pairs]
    with torch.no_grad():
        stack = StackSteps(flat, reader, embedded, torch.float32, reads_before=ahead)
        gates = stack.token_gates()
    steps = []
    for position in range(4):
        before = state[-1].hidden @ reader.T
        state = layers.step(layers.layers[0].gates(torch.cat((embedded[position], extra[position]), -1)), state)
        steps.append(before if ahead else state[-1].hidden @ reader.T)
        with torch.no_grad():
            outputs = stack.output.clone()
            stack.forward(position, gates, extra[position] if position else None)
        torch.testing.assert_close(outputs if ahead else stack.output, steps[-1].detach())
    stack.start_backward()
    (stack.doutputs if ahead else stack.doutputs[1:]).copy_(upstream)
    with torch.no_grad():
        dbeside = torch.stack([stack.backward(index, None).clone() for index in reversed(range(4))]).flip(0)
        dembedded, gradients, weight, _ = stack.gradients(extra[1:])
    inputs = [embedded, extra, reader, *(parameter for layer in layers.layers for parameter in layer.parameters())]
    right = torch.autograd.grad(torch.stack(steps), inputs, upstream, allow_unused=True, materialize_grads=True)
    actual = [gradient for number, gradient in enumerate(gradients) if number % 6 > 1]
    torch.testing.assert_close([dembedded, dbeside, weight, *actual], [*right], atol=1e-5, rtol=1e-4)
