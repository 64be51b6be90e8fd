"""Gated recurrent layers (GRU, LSTM): run by PyTorch, or in training step by step in the compiled library.

Apart from the matrix products, the library computes a cell's whole step in one call, forward and backward.
"""

from functools import cache
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from attent.ops import native
from attent.ops.eligibility import autocast_dtype, can_run_native, without_autocast
from attent.ops.linear import linear
from attent.ops.onednn import mm

DTYPES = (torch.float32, torch.bfloat16)
States = tuple[Tensor, Tensor, Tensor | None]


def rnn(
    network: nn.GRU | nn.LSTM,
    inputs: Tensor,
    hidden: Tensor,
    cell: Tensor | None = None,
    *,
    is_reversed: bool = False,
    lengths: Tensor | None = None,
) -> States:
    """Run one layer over all steps.

    Args:
        network: a single layer, batch first.
        inputs: (B, T, input width).
        hidden: the first state, (B, E).
        cell: an LSTM's first cell, (B, E); None for a GRU.
        is_reversed: whether to run from the last step to the first.
        lengths: the number of real steps in each row, (B,); outputs beyond are zero. All steps by default.

    Returns:
        The outputs of each step, (B, T, E), and the last hidden state and cell, (B, E); these are undefined if lengths
        are given.
    """
    parameters = (*network.parameters(),)
    if not (
        network.training
        and can_run_native(*parameters)
        and can_run_native(inputs, *parameters, dtypes=DTYPES, in_training=True)
    ):
        return reference(network, inputs, hidden, cell, is_reversed=is_reversed, lengths=lengths)
    weight, bias = cast(Tensor, network.weight_ih_l0), cast(Tensor, network.bias_ih_l0)
    gates = linear(inputs.transpose(0, 1), weight, bias)
    weight, bias = cast(Tensor, network.weight_hh_l0), cast(Tensor, network.bias_hh_l0)
    outputs, hidden, cell = forward_fused(gates, weight, bias, hidden, cell, is_reversed=is_reversed, lengths=lengths)
    return outputs.transpose(0, 1), hidden, cell


def reference(
    network: nn.GRU | nn.LSTM,
    inputs: Tensor,
    hidden: Tensor,
    cell: Tensor | None = None,
    *,
    is_reversed: bool = False,
    lengths: Tensor | None = None,
) -> States:
    """Compute `rnn` with PyTorch's own layer.

    Each row is reversed within its own length, so that padding comes last. (With the packed sequences of torch 2.13,
    fewer rows take part in later steps, and a row's last bits depend on its neighbors.)
    """
    steps = torch.arange(inputs.shape[1], device=inputs.device)
    count = inputs.new_full(inputs.shape[:1], inputs.shape[1], dtype=torch.int64) if lengths is None else lengths
    padding = None if lengths is None else (steps >= count[:, None])[..., None]  # (B, T, 1)
    order = (count[:, None] - 1 - steps).clamp(min=0)[..., None] if is_reversed else None
    if padding is not None:
        inputs = inputs.masked_fill(padding, 0.0)
    if order is not None:
        inputs = inputs.gather(1, order.expand_as(inputs))
    outputs, hidden, cell = all_steps(network, inputs, hidden, cell)
    if order is not None:
        outputs = outputs.gather(1, order.expand_as(outputs))
    return outputs if padding is None else outputs.masked_fill(padding, 0.0), hidden, cell


def all_steps(network: nn.GRU | nn.LSTM, inputs: Tensor, hidden: Tensor, cell: Tensor | None) -> States:
    """Run PyTorch's layer over all steps; ONNX export replaces this function with an operator."""
    if cell is None:
        outputs, last = network(inputs, hidden[None].contiguous())
        return outputs, last[0], None
    if inputs.device.type == "cpu" and autocast_dtype(inputs) == torch.bfloat16 and not _has_bfloat16_lstm():
        with without_autocast(inputs.device):
            return all_steps(network, inputs.float(), hidden.float(), cell.float())
    outputs, (last, last_cell) = network(inputs, (hidden[None].contiguous(), cell[None].contiguous()))
    return outputs, last[0], last_cell[0]


@cache
def _has_bfloat16_lstm() -> bool:
    """Return whether oneDNN, which runs PyTorch's LSTM on a CPU, supports bfloat16 here; it needs AVX-512."""
    return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def forward_fused(
    gates: Tensor,
    weight: Tensor,
    bias: Tensor,
    hidden: Tensor,
    cell: Tensor | None,
    *,
    is_reversed: bool = False,
    lengths: Tensor | None = None,
) -> States:
    """Run one layer over all steps in the library.

    Args:
        gates: W x + b of every step, (T, B, gates), float32 or bfloat16.
        weight: U.
        bias: the bias added to U h.
        hidden: the first state, (B, E).
        cell: an LSTM's first cell; None for a GRU.
        is_reversed: whether to run from the last step to the first.
        lengths: the number of real steps, (B,); outputs beyond are zero. All steps by default.

    Returns:
        The outputs (T, B, E), and the last hidden state and cell, (B, E).
    """
    return _FusedRnn.apply(gates, weight, bias, hidden, cell, lengths, is_reversed)


class RnnSteps:
    """All steps of one layer: its states, and the values needed for their gradients. The first axis is the step.

    Args:
        hidden: the first state, (B, E).
        cell: an LSTM's first cell; None for a GRU.
        steps: the number of steps, T.
        dtype: the dtype of the products; states are float32.
        is_reversed: whether to run from the last step to the first.
        lengths: the number of real steps, (B,); a row is zero beyond. All steps by default.
    """

    def __init__(
        self,
        hidden: Tensor,
        cell: Tensor | None,
        steps: int,
        dtype: torch.dtype,
        is_reversed: bool = False,
        lengths: Tensor | None = None,
    ) -> None:
        rows, width = hidden.shape
        self.shape, self.lengths = (steps, rows, width), lengths
        self.is_lstm, self.is_half = cell is not None, dtype == torch.bfloat16
        self.gates = (4 if self.is_lstm else 3) * width
        self.order = range(steps - 1, -1, -1) if is_reversed else range(steps)
        before, after, first = (
            (slice(1, None), slice(steps), steps) if is_reversed else (slice(steps), slice(1, None), 0)
        )
        all_hidden = torch.empty(steps + 1, rows, width)
        self.all_operands = torch.empty(steps + 1, rows, width, dtype=dtype) if self.is_half else all_hidden
        all_hidden[first] = self.all_operands[first] = hidden
        self.hidden, self.hidden_after = all_hidden[before], all_hidden[after]
        self.operands, self.operands_after = self.all_operands[before], self.all_operands[after]
        self.cell = self.cell_after = None
        if cell is not None:
            all_cells = torch.empty(steps + 1, rows, width)
            all_cells[first] = cell
            self.cell, self.cell_after = all_cells[before], all_cells[after]
        self.activations = torch.empty(steps, rows, 4 * width, dtype=dtype)

    def forward(
        self,
        step: int,
        inputs: Tensor,
        hidden_gates: Tensor,
        hidden_bias: Tensor,
        extra: Tensor | None = None,
        bias: Tensor | None = None,
    ) -> None:
        """Run one step.

        Args:
            step: the index of the step.
            inputs: the input's contribution to the gates at all steps, (T, B, gates).
            hidden_gates: the state's contribution at this step, (B, gates, …).
            hidden_bias: a bias added to the state's contribution.
            extra: a term added to the input's contribution at this step.
            bias: a bias added to the input's contribution.
        """
        tensors = (
            inputs,
            extra,
            hidden_gates,
            bias,
            hidden_bias,
            self.hidden,
            self.cell,
            self.hidden_after,
            self.cell_after,
            self.operands_after if self.is_half else None,
            self.activations,
            self.lengths,
        )
        numbers = (*self.shape[1:], step, *inputs.stride()[:2], hidden_gates.stride(0), self.is_half, self.is_lstm)
        native.run("attent_rnn_cell", tensors, *numbers)

    def start_backward(self, hidden: Tensor | None, cell: Tensor | None) -> None:
        """Set the gradients of the last state."""
        self.dhidden = self._copy(hidden)
        self.dcell = self._copy(cell) if self.is_lstm else None

    def _copy(self, gradient: Tensor | None) -> Tensor:
        return (
            torch.zeros(self.shape[1:]) if gradient is None else gradient.clone(memory_format=torch.contiguous_format)
        )

    def backward(
        self, step: int, product: Tensor | None, doutputs: Tensor | None, dinputs: Tensor, dhidden_gates: Tensor
    ) -> None:
        """Compute the gradients of one step; `dhidden` then holds that of the previous state, without its products.

        Args:
            step: the index of the step.
            product: the gradient from products with the state after the step, (B, E).
            doutputs: the gradients of all outputs, (T, B, E).
            dinputs: receives the gradients of the input's contribution to the gates, at all steps (T, B, gates).
            dhidden_gates: receives the gradients of the state's contribution, at all steps (T, B, gates, …).
        """
        tensors = (
            self.hidden,
            self.cell,
            self.cell_after,
            self.activations,
            self.dhidden,
            self.dcell,
            product,
            doutputs,
            dinputs,
            dhidden_gates,
            self.lengths,
        )
        has_half_outputs = doutputs is not None and doutputs.dtype == torch.bfloat16
        strides = (*dinputs.stride()[:2], *dhidden_gates.stride()[:2])
        native.run(
            "attent_rnn_cell_gradients",
            tensors,
            *self.shape[1:],
            step,
            *strides,
            self.is_half,
            has_half_outputs,
            self.is_lstm,
        )


class _FusedRnn(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        gates: Tensor,
        weight: Tensor,
        bias: Tensor,
        hidden: Tensor,
        cell: Tensor | None,
        lengths: Tensor | None,
        is_reversed: bool,
    ) -> States:
        gates, weight = gates.contiguous(), weight.to(gates.dtype)
        layer = RnnSteps(
            hidden, cell, len(gates), gates.dtype, is_reversed, None if lengths is None else lengths.contiguous()
        )
        hidden_gates = torch.empty_like(gates[0])
        for step in layer.order:
            mm(layer.operands[step], weight.T, out=hidden_gates)
            layer.forward(step, gates, hidden_gates, bias)
        ctx.layer, ctx.weight = layer, weight
        ctx.set_materialize_grads(False)
        last = layer.order[-1]
        last_cell = None if layer.cell_after is None else layer.cell_after[last].clone()
        # Detached: an output stored on ctx would never be freed.
        return layer.hidden_after.detach(), layer.hidden_after[last].clone(), last_cell

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        layer, weight = ctx.layer, ctx.weight
        doutputs, dhidden, dcell = gradients
        doutputs = None if doutputs is None else doutputs.contiguous()
        layer.start_backward(dhidden, dcell)
        dgates = weight.new_empty(*layer.shape[:2], layer.gates)
        dhidden_gates = dgates if layer.is_lstm else torch.empty_like(dgates)
        product = weight.new_empty(layer.shape[1:])
        for number, step in enumerate(reversed(layer.order)):
            layer.backward(step, product if number else None, doutputs, dgates, dhidden_gates)
            mm(dhidden_gates[step], weight, out=product)
        rows = dhidden_gates.flatten(0, 1)
        dweight = mm(rows.T, layer.operands.flatten(0, 1)).float()
        return dgates, dweight, rows.sum(0).float(), layer.dhidden + product, layer.dcell, None, None
