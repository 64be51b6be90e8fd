"""A recurrent layer over a whole sequence as one operator, which ONNX has too: PyTorch's own would be traced step by step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, cast

import torch
from torch import Tensor

from attent.layers.recurrent import Recurrent, RecurrentState

# The order of the gates in ONNX, by their places in PyTorch's: reset, update, new; input, forget, cell, output.
GRU_GATES, LSTM_GATES = (1, 0, 2), (0, 3, 1, 2)


@torch.library.custom_op("attent::traced_gru", mutates_args=())
def gru(inputs: Tensor, hidden: Tensor, read: Tensor, kept: Tensor, read_bias: Tensor, kept_bias: Tensor) -> tuple[Tensor, Tensor]:
    """h of every step (B, T, E), and behind the last (B, E), from inputs (B, T, n) and h before the first (B, E)."""
    weights = [read, kept, read_bias, kept_bias]
    outputs, last = torch.gru(inputs, hidden[None], weights, True, 1, 0.0, False, False, True)
    return outputs.contiguous(), last[0].clone()


@gru.register_fake
def _(inputs: Tensor, hidden: Tensor, *weights: Tensor) -> tuple[Tensor, Tensor]:
    return inputs.new_empty(*inputs.shape[:2], hidden.shape[1]), torch.empty_like(hidden)


@torch.library.custom_op("attent::traced_lstm", mutates_args=())
def lstm(
    inputs: Tensor, hidden: Tensor, cell: Tensor, read: Tensor, kept: Tensor, read_bias: Tensor, kept_bias: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """As `gru`, with the cell."""
    weights = [read, kept, read_bias, kept_bias]
    outputs, last, after = torch.lstm(inputs, [hidden[None], cell[None]], weights, True, 1, 0.0, False, False, True)
    return outputs.contiguous(), last[0].clone(), after[0].clone()


@lstm.register_fake
def _(inputs: Tensor, hidden: Tensor, cell: Tensor, *weights: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return inputs.new_empty(*inputs.shape[:2], hidden.shape[1]), torch.empty_like(hidden), torch.empty_like(cell)


def forward(self: Recurrent, inputs: Tensor, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
    """What `Recurrent.forward` computes, by these operators."""
    names = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")
    weights = [cast(Tensor, getattr(self.network, name)) for name in names]
    if state.cell is None:
        outputs, last = gru(inputs, state.hidden, *weights)
        return outputs, RecurrentState(last)
    outputs, last, cell = lstm(inputs, state.hidden, state.cell, *weights)
    return outputs, RecurrentState(last, cell)


def translations() -> dict[Any, Callable[..., Any]]:
    """How the two operators are written in ONNX.

    Raises:
        ImportError: onnxscript is not installed.
    """
    op: Any = import_module("onnxscript").opset18

    def stacked(parts: Sequence[Any], gates: tuple[int, ...]) -> Any:
        """Each part's gates in ONNX's order, and the parts side by side: (1, all gates, …)."""
        ordered = []
        for part in parts:
            split = op.Split(part, num_outputs=len(gates), axis=0)
            ordered += [split[place] for place in gates]
        return op.Unsqueeze(op.Concat(*ordered, axis=0), [0])

    def steps(outputs: Any) -> Any:
        return op.Transpose(op.Squeeze(outputs, [1]), perm=[1, 0, 2])

    def of_gru(inputs: Any, hidden: Any, read: Any, kept: Any, read_bias: Any, kept_bias: Any) -> Any:
        outputs, last = op.GRU(
            op.Transpose(inputs, perm=[1, 0, 2]),
            stacked([read], GRU_GATES),
            stacked([kept], GRU_GATES),
            stacked([read_bias, kept_bias], GRU_GATES),
            None,
            op.Unsqueeze(hidden, [0]),
            hidden_size=kept.shape[1],
            # with PyTorch's place of the reset gate
            linear_before_reset=1,
        )
        return steps(outputs), op.Squeeze(last, [0])

    def of_lstm(inputs: Any, hidden: Any, cell: Any, read: Any, kept: Any, read_bias: Any, kept_bias: Any) -> Any:
        outputs, last, after = op.LSTM(
            op.Transpose(inputs, perm=[1, 0, 2]),
            stacked([read], LSTM_GATES),
            stacked([kept], LSTM_GATES),
            stacked([read_bias, kept_bias], LSTM_GATES),
            None,
            op.Unsqueeze(hidden, [0]),
            op.Unsqueeze(cell, [0]),
            hidden_size=kept.shape[1],
        )
        return steps(outputs), op.Squeeze(last, [0]), op.Squeeze(after, [0])

    return {torch.ops.attent.traced_gru.default: of_gru, torch.ops.attent.traced_lstm.default: of_lstm}
