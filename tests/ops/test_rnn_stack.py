from __future__ import annotations

import pytest
import torch

from attent.layers.recurrent import RecurrentStack, RecurrentState
from attent.ops.attention_rnn import Layer, StackSteps

pytestmark = pytest.mark.needs_native


@pytest.mark.parametrize("cell", ["gru", "lstm"])
@pytest.mark.parametrize("ahead", [False, True])
def test_layers_say_what_single_steps_of_pytorch_do(cell: str, ahead: bool) -> None:
    layers, reader = RecurrentStack(cell, 3, 7, layers=3), torch.randn(5, 7, requires_grad=True)
    state = [RecurrentState(torch.randn(2, 7), torch.randn(2, 7) if cell == "lstm" else None) for _ in range(3)]
    given = torch.randn(4, 2, layers.layers[0].gates(torch.randn(2, 3)).shape[-1], requires_grad=True)
    beside, wanted = torch.randn(2, given.shape[-1]), torch.randn(4, 2, 5)
    bias = layers.layers[0].network.get_parameter("bias_ih_l0")
    flat = [Layer(one.hidden, one.cell, *layer.parameters()) for layer, one in zip(layers.layers, state, strict=True)]
    with torch.no_grad():
        stack = StackSteps(flat, reader, (4, 2), torch.float32, reads_before=ahead)
    steps = []
    for place in range(4):
        before = state[-1].hidden @ reader.T
        state = layers.step(given[place] + beside + bias, state)
        steps.append(before if ahead else state[-1].hidden @ reader.T)
        with torch.no_grad():
            said = stack.output.clone()
            stack.forward(place, given.detach(), beside)
        torch.testing.assert_close(said if ahead else stack.output, steps[-1].detach())
    stack.start_backward()
    (stack.doutputs if ahead else stack.doutputs[1:]).copy_(wanted)
    dgiven = torch.empty_like(given)
    with torch.no_grad():
        for place in reversed(range(4)):
            stack.backward(place, None, dgiven)
        found, weight, _ = stack.parameter_gradients(torch.zeros(0), dgiven.sum((0, 1)))
    inputs = [given, reader, *(parameter for layer in layers.layers for parameter in layer.parameters())]
    right = torch.autograd.grad(torch.stack(steps), inputs, wanted, allow_unused=True, materialize_grads=True)
    ours = [gradient for number, gradient in enumerate(found) if number % 6 > 1]
    ours[0] = torch.zeros_like(right[2])  # the lowest weight for inputs is whoever calls's
    torch.testing.assert_close([dgiven, weight, *ours], [*right], atol=1e-5, rtol=1e-4)
