from __future__ import annotations

import pytest
import torch

from attent.layers.recurrent import RecurrentStack, RecurrentState
from attent.ops.attention_rnn import Layer, StackSteps

pytestmark = pytest.mark.needs_native


@pytest.mark.parametrize("cell", ["gru", "lstm"])
@pytest.mark.parametrize("ahead", [False, True])
def test_layers_say_what_single_steps_of_pytorch_do(cell: str, ahead: bool) -> None:
    layers, reader = RecurrentStack(cell, 5, 7, layers=3), torch.randn(5, 7, requires_grad=True)
    state = [RecurrentState(torch.randn(2, 7), torch.randn(2, 7) if cell == "lstm" else None) for _ in range(3)]
    embedded, extra = torch.randn(4, 2, 3, requires_grad=True), torch.randn(4, 2, 2)
    extra[0] = 0.0
    extra, upstream = extra.requires_grad_(), torch.randn(4, 2, 5)
    flat = [
        Layer(item.hidden, item.cell, *layer.parameters()) for layer, item in zip(layers.layers, state, strict=True)
    ]
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
