"""Recurrent layers: gated units with explicit state, and bidirectional layers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attent.layers.dropout import Dropout
from attent.ops.rnn import rnn
from attent.types import Features, Lengths

Cell = Literal["gru", "lstm"]
NETWORKS: dict[str, type[nn.GRU | nn.LSTM]] = {"gru": nn.GRU, "lstm": nn.LSTM}


@dataclass(frozen=True)
class RecurrentState:
    """Immutable state of a recurrent layer for a batch.

    Args:
        hidden: h, the output, (B, E).
        cell: an LSTM's c, (B, E); None for a GRU.
    """

    hidden: Tensor
    cell: Tensor | None = None

    def select(self, rows: Tensor) -> RecurrentState:
        """Return these rows of the batch, in this order; rows may repeat."""
        return RecurrentState(self.hidden[rows], None if self.cell is None else self.cell[rows])


class Recurrent(nn.Module):
    """A layer of gated recurrent units, run over a whole sequence or step by step.

        h_t = f(h_{t−1}, x_t)

    With h⁻ for h_{t−1}:

        GRU:   h = (1 − z) n + z h⁻,  n = tanh(x' + r h'),  where r and z are σ(x' + h')
        LSTM:  h = o tanh(c),  c = f c⁻ + i tanh(x' + h'),  where i, f and o are σ(x' + h')

    x' = W x + b and h' = U h⁻ + b are the terms of each gate, called `gates` here. Sources: Cho et al. (2014), §2.3,
    arXiv 1406.1078 (with r applied after the product with U, as in PyTorch); Hochreiter & Schmidhuber (1997). U is
    initialized orthogonally (Saxe et al. 2014, arXiv 1312.6120), W by Glorot's rule, biases to 0, and an LSTM's f to 1
    (Jozefowicz et al. 2015).

    Args:
        cell: "gru" or "lstm".
        input_width: features of x.
        width: features of h, E.
    """

    def __init__(self, cell: Cell, input_width: int, width: int) -> None:
        super().__init__()
        self.network = NETWORKS[cell](input_width, width, batch_first=True)
        initialize(self.network)

    def forward(self, inputs: Tensor, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
        """Run all steps: inputs (B, T, input_width) → h of each step (B, T, E), and the last state."""
        outputs, hidden, cell = rnn(self.network, inputs, state.hidden, state.cell)
        return outputs, RecurrentState(hidden, cell)

    def gates(self, inputs: Tensor) -> Tensor:
        """Return W x + b for the first n, or all, features of the input: (…, n) → (…, gates)."""
        weight, bias = cast(Tensor, self.network.weight_ih_l0), cast(Tensor, self.network.bias_ih_l0)
        return F.linear(inputs, weight if inputs.shape[-1] == weight.shape[-1] else weight[:, : inputs.shape[-1]], bias)

    def share(self, first: int) -> Callable[[Tensor], Tensor]:
        """Return a function that computes W x for the input's features from `first` on; it slices the weights once."""
        return partial(F.linear, weight=cast(Tensor, self.network.weight_ih_l0)[:, first:])

    def zero_state(self, like: Tensor) -> RecurrentState:
        """Return the initial state of zeros, for a batch of the same size as `like`."""
        zeros = like.new_zeros(like.shape[0], self.network.hidden_size)
        return RecurrentState(zeros, zeros if isinstance(self.network, nn.LSTM) else None)

    def step(self, gates: Tensor, state: RecurrentState) -> RecurrentState:
        """Run one step, given the input's contribution to the gates, (B, gates)."""
        hidden_gates = F.linear(
            state.hidden, cast(Tensor, self.network.weight_hh_l0), cast(Tensor, self.network.bias_hh_l0)
        )
        # Under autocast the products have 16 bits; the state is summed in its own dtype.
        gates, hidden_gates = gates.to(state.hidden.dtype), hidden_gates.to(state.hidden.dtype)
        if state.cell is None:
            (reset, update, new), (hidden_reset, hidden_update, hidden_new) = (
                gates.chunk(3, -1),
                hidden_gates.chunk(3, -1),
            )
            new = torch.tanh(new + torch.sigmoid(reset + hidden_reset) * hidden_new)
            return RecurrentState(torch.lerp(new, state.hidden, torch.sigmoid(update + hidden_update)))
        enter, forget, new, leave = (gates + hidden_gates).chunk(4, -1)
        cell = torch.sigmoid(forget) * state.cell + torch.sigmoid(enter) * torch.tanh(new)
        return RecurrentState(torch.sigmoid(leave) * torch.tanh(cell), cell)


class RecurrentStack(nn.Module):
    """A stack of recurrent layers, each reading the outputs of the one below.

    Args:
        cell: "gru" or "lstm".
        input_width: features of the lowest layer's input.
        width: features of every layer, E.
        layers: the number of layers.
    """

    def __init__(self, cell: Cell, input_width: int, width: int, layers: int = 1) -> None:
        super().__init__()
        widths = (input_width, *[width] * (layers - 1))
        self.layers = cast(Sequence[Recurrent], nn.ModuleList(Recurrent(cell, below, width) for below in widths))

    def forward(self, inputs: Tensor, states: Sequence[RecurrentState]) -> tuple[Tensor, tuple[RecurrentState, ...]]:
        """Run all steps: inputs (B, T, input_width) → the topmost h (B, T, E), and every layer's state."""
        after = []
        for layer, state in zip(self.layers, states, strict=True):
            inputs, state = layer(inputs, state)
            after.append(state)
        return inputs, (*after,)

    def step(self, gates: Tensor, states: Sequence[RecurrentState]) -> tuple[RecurrentState, ...]:
        """Run one step, given the input's contribution to the gates of the lowest layer, (B, gates)."""
        after: list[RecurrentState] = []
        for layer, state in zip(self.layers, states, strict=True):
            after.append(layer.step(layer.gates(after[-1].hidden) if after else gates, state))
        return (*after,)


class BidirectionalRecurrent(nn.Module):
    """Recurrent layers that read a sequence in both directions, so that each output depends on the whole sequence.

        h_j = [h→_j; h←_j]

    Padding has no influence: for the backward direction each row is reversed within its own length, so that its padding
    comes last in both directions. (With the packed sequences of torch 2.13, fewer rows take part in later steps, and a
    row's last bits depend on its neighbors.) Source: Schuster & Paliwal (1997); for translation Bahdanau et al. (2015),
    §3.2, arXiv 1409.0473.

    Args:
        cell: "gru" or "lstm".
        input_width: features of the input.
        width: features of one direction.
        layers: the number of layers; each reads both directions of the one below it.
        dropout: the dropout probability between layers in training, 0 to 1.
    """

    def __init__(self, cell: Cell, input_width: int, width: int, layers: int = 1, dropout: float = 0.0) -> None:
        super().__init__()
        widths = (input_width, *[2 * width] * (layers - 1))
        forwards, backwards = (nn.ModuleList(Recurrent(cell, below, width) for below in widths) for _ in range(2))
        self.forwards, self.backwards = cast(Sequence[Recurrent], forwards), cast(Sequence[Recurrent], backwards)
        self.dropout = Dropout(dropout)

    def forward(self, features: Features, lengths: Lengths) -> Features:
        """Run all steps: features (B, T, input_width) of real lengths (B,) → (B, T, 2 width), zeros at padding."""
        for index, (forwards, backwards) in enumerate(zip(self.forwards, self.backwards, strict=True)):
            features = self.dropout(features) if index else features
            state = forwards.zero_state(features)
            ahead, _, _ = rnn(forwards.network, features, state.hidden, state.cell, lengths=lengths)
            back, _, _ = rnn(backwards.network, features, state.hidden, state.cell, is_reversed=True, lengths=lengths)
            features = torch.cat((ahead, back), -1)
        return features


def ends(features: Features, lengths: Lengths) -> Tensor:
    """Return the last output of each direction, [h→_T; h←_1]: (B, T, 2 width) → (B, 2 width)."""
    width = features.shape[-1] // 2
    last = (lengths - 1).clamp(min=0)[:, None, None].expand(-1, 1, width)
    return torch.cat((features[..., :width].gather(1, last)[:, 0], features[:, 0, width:]), -1)


def initialize(network: nn.GRU | nn.LSTM) -> None:
    """Initialize recurrent weights orthogonally, others by Glorot's rule, biases to 0, an LSTM's forget gate to 1."""
    width = network.hidden_size
    for name, parameter in network.named_parameters():
        if name.startswith("bias"):
            nn.init.zeros_(parameter)
            if isinstance(network, nn.LSTM) and name.startswith("bias_ih"):
                nn.init.ones_(parameter.data[width : 2 * width])
            continue
        for gate in parameter.data.split(width):
            if name.startswith("weight_hh"):
                nn.init.orthogonal_(gate)
            else:
                nn.init.xavier_uniform_(gate)
