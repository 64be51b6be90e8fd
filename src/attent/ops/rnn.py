"""Steps of gated recurrent units in training, by the extension: all that lies between the products, forwards and backwards."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from attent.ops import native
from attent.ops.eligibility import can_run_native

TYPES = (torch.float32, torch.bfloat16)


def serves(*tensors: Tensor) -> bool:
    """Whether the extension can take these tensors' steps: without gradients to come PyTorch does, which compilers and exporters follow."""
    if not (torch.is_grad_enabled() and can_run_native()):
        return False
    if torch.is_autocast_enabled("cpu") and torch.get_autocast_dtype("cpu") not in TYPES:
        return False
    return all(tensor.device.type == "cpu" and tensor.dtype in TYPES and tensor.numel() for tensor in tensors)


def product_type(like: Tensor) -> torch.dtype:
    """The type in which products with a tensor are taken: autocast's, or its own."""
    return torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else like.dtype


class Share(NamedTuple):
    """Gradients of what an addend of the gates was computed from: features of a tensor that holds all steps, from `first` on."""

    whole: Tensor  # (T, B, n)
    first: int = 0

    def strides(self) -> tuple[int, int]:
        """From step to step and from row to row."""
        return self.whole.stride(0), self.whole.stride(1)

    def tensor(self) -> Tensor:
        """What begins where it begins."""
        return self.whole[..., self.first :] if self.first else self.whole


class GatedSteps:
    """All steps of one layer: its states, and what gradients need of each.

    A step is called by its place in the sequence, whichever way it is read. All tensors hold one step after another.

    Args:
        lstm: whether the units are LSTM's, else they are GRU's.
        shape: steps T, rows B and features E.
        dtype: of the products; states are float32.
        backwards: whether the last step is taken first.
        lengths: (B,), from where on a row is nothing; None if all are whole.
    """

    def __init__(self, lstm: bool, shape: tuple[int, int, int], dtype: torch.dtype, backwards: bool = False, lengths: Tensor | None = None):
        steps, rows, width = self.shape = shape
        self.lstm, self.half, self.gates = lstm, dtype == torch.bfloat16, (4 if lstm else 3) * width
        self.places = range(steps - 1, -1, -1) if backwards else range(steps)
        self.nothing = torch.empty(0)
        self.lengths = self.nothing if lengths is None else lengths
        before, after = (slice(1, None), slice(steps)) if backwards else (slice(steps), slice(1, None))
        self.first = steps if backwards else 0
        self.all_hidden = torch.empty(steps + 1, rows, width)
        self.all_operands = torch.empty(steps + 1, rows, width, dtype=dtype) if self.half else self.all_hidden
        self.all_cells = torch.empty(steps + 1, rows, width) if lstm else self.nothing
        self.hidden, self.hidden_after = self.all_hidden[before], self.all_hidden[after]
        self.operands, self.operands_after = self.all_operands[before], self.all_operands[after]
        self.cell, self.cell_after = (self.all_cells[before], self.all_cells[after]) if lstm else (self.nothing, self.nothing)
        self.kept = torch.empty(steps, rows, 4 * width, dtype=dtype)

    def start(self, hidden: Tensor, cell: Tensor | None) -> None:
        """The state before the first step."""
        self.all_hidden[self.first] = hidden
        self.all_operands[self.first] = hidden
        if cell is not None:
            self.all_cells[self.first] = cell

    def step(
        self, place: int, inputs: Share, ours: Tensor, our_bias: Tensor, beside: Tensor | None = None, bias: Tensor | None = None
    ) -> None:
        """One step.

        Args:
            place: which.
            inputs: the input's share in the gates.
            ours: the state's, of this step (B, gates, …).
            our_bias: what is added to it.
            beside: what is added to the input's share, of this step; None if nothing is.
            bias: what else is.
        """
        tensors = (
            inputs.tensor(),
            self.nothing if beside is None else beside,
            ours,
            self.nothing if bias is None else bias,
            our_bias,
            self.hidden,
            self.cell,
            self.hidden_after,
            self.cell_after,
            self.operands_after if self.half else self.nothing,
            self.kept,
            self.lengths,
        )
        numbers = (*self.shape[1:], place, *inputs.strides(), ours.stride(0), self.half, self.lstm)
        native.run("attent_gates", tensors, *numbers)

    def slopes(self, hidden: Tensor | None, cell: Tensor | None) -> None:
        """Begin with gradients, those of the state behind the last step."""
        _, rows, width = self.shape
        self.carried = torch.zeros(rows, width) if hidden is None else hidden.clone(memory_format=torch.contiguous_format)
        self.carried_cell = self.nothing
        if self.lstm:
            self.carried_cell = torch.zeros(rows, width) if cell is None else cell.clone(memory_format=torch.contiguous_format)

    def slope(self, place: int, product: Tensor | None, outer: Tensor | None, dinputs: Share, dours: Tensor) -> None:
        """The gradients of one step; what goes to the state before it is then in `carried`, but for the products with it.

        Args:
            place: which.
            product: what products with the state behind the step add to its gradient, (B, E).
            outer: what comes from outside, of all steps (T, B, E).
            dinputs: gets the gradients of the input's share in the gates.
            dours: gets those of the state's, of all steps (T, B, gates, …).
        """
        tensors = (
            self.hidden,
            self.cell,
            self.cell_after,
            self.kept,
            self.carried,
            self.carried_cell,
            self.nothing if product is None else product,
            self.nothing if outer is None else outer,
            dinputs.tensor(),
            dours,
            self.lengths,
        )
        outer_half = outer is not None and outer.dtype == torch.bfloat16
        numbers = (*self.shape[1:], place, *dinputs.strides(), dours.stride(0), dours.stride(1), self.half, outer_half, self.lstm)
        native.run("attent_gates_gradients", tensors, *numbers)


def sweep(
    inputs: Tensor,
    weight: Tensor,
    bias: Tensor,
    hidden: Tensor,
    cell: Tensor | None,
    *,
    backwards: bool = False,
    lengths: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """All steps of a layer of which the inputs' share in the gates is known.

    Args:
        inputs: W x + b of every step, (T, B, gates), float32 or bfloat16.
        weight: U.
        bias: what is added to U h.
        hidden: the first state, (B, E).
        cell: an LSTM's first cell; None for a GRU.
        backwards: whether the last step is taken first.
        lengths: (B,), from where on a row is nothing, zeros; None if all are whole.

    Returns:
        The states (T, B, E), and the last state's hidden and cell, (B, E).
    """
    found = _Sweep.apply(inputs, weight, bias, hidden, cell, lengths, backwards)
    return found if cell is not None else (*found, None)


class _Sweep(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        inputs: Tensor,
        weight: Tensor,
        bias: Tensor,
        hidden: Tensor,
        cell: Tensor | None,
        lengths: Tensor | None,
        backwards: bool,
    ) -> tuple[Tensor, ...]:
        inputs, theirs = inputs.contiguous(), weight.to(inputs.dtype)
        shape = (inputs.shape[0], inputs.shape[1], hidden.shape[1])
        layer = GatedSteps(cell is not None, shape, inputs.dtype, backwards, None if lengths is None else lengths.contiguous())
        layer.start(hidden, cell)
        share, ours = Share(inputs), torch.empty_like(inputs[0])
        for place, operand in ((place, layer.operands[place]) for place in layer.places):
            torch.mm(operand, theirs.T, out=ours)
            layer.step(place, share, ours, bias)
        ctx.layer, ctx.theirs = layer, theirs
        ctx.set_materialize_grads(False)
        last = layer.places[-1]
        # another name for what is kept: a result that its own function held would never be let go of
        states = layer.hidden_after.detach(), layer.hidden_after[last].clone()
        return states if cell is None else (*states, layer.cell_after[last].clone())

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        layer, theirs = ctx.layer, ctx.theirs
        outer, hidden, *cell = gradients
        outer = None if outer is None else outer.contiguous()
        layer.slopes(hidden, *(cell or [None]))
        dinputs = theirs.new_empty(*layer.shape[:2], layer.gates)
        dours = dinputs if layer.lstm else torch.empty_like(dinputs)
        product, share = theirs.new_empty(layer.shape[1:]), Share(dinputs)
        for number, place in enumerate(reversed(layer.places)):
            layer.slope(place, product if number else None, outer, share, dours)
            torch.mm(dours[place], theirs, out=product)
        rows = dours.flatten(0, 1)
        dweight = (rows.T @ layer.operands.flatten(0, 1)).float()
        dhidden = layer.carried + product
        return dinputs, dweight, rows.sum(0).float(), dhidden, layer.carried_cell if layer.lstm else None, None, None
