"""A decoder's recurrent layers while it trains, step by step, each of whose states is multiplied once with all that read it."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from attent.ops.rnn import GatedSteps, Share


class Layer(NamedTuple):
    """A layer's first state and parameters, in PyTorch's order; the lowest one's weight for its input takes an embedding and more."""

    hidden: Tensor
    cell: Tensor | None
    input_weight: Tensor
    weight: Tensor
    input_bias: Tensor
    bias: Tensor


class Stack:
    """All steps of some layers. Gradients of matrices are products over all steps at once.

    Args:
        layers: from the lowest.
        reader: the matrices, below one another, of whoever reads the topmost state.
        shape: steps T and rows B.
        dtype: of the products.
        ahead: whether it is read before the step, as by Bahdanau's attention, so that nobody reads what the last step leaves.
    """

    def __init__(self, layers: list[Layer], reader: Tensor, shape: tuple[int, int], dtype: torch.dtype, *, ahead: bool) -> None:
        self.layers, self.shape, self.ahead = layers, shape, ahead
        self.units = [GatedSteps(layer.cell is not None, (*shape, layer.hidden.shape[1]), dtype) for layer in layers]
        above = [layer.input_weight for layer in layers[1:]] + [reader]
        self.readers = [torch.cat((layer.weight, one)).to(dtype) for layer, one in zip(layers, above, strict=True)]
        self.products = [reader.new_empty(1, shape[1], len(reader)) for reader in self.readers]
        for unit, layer in zip(self.units, layers, strict=True):
            unit.start(layer.hidden, layer.cell)
        for unit, reader, product in zip(self.units, self.readers, self.products, strict=True):
            torch.mm(unit.operands[0], reader.T, out=product[0])

    @property
    def gates(self) -> int:
        """Features of each layer's gates."""
        return self.units[0].gates

    @property
    def said(self) -> Tensor:
        """The topmost state's product for its reader, (B, …)."""
        return self.products[-1][0, :, self.gates :]

    def advance(self, place: int, given: Tensor, beside: Tensor | None) -> None:
        """One step.

        Args:
            place: which.
            given: the share in the lowest gates of what is known of all steps, (T, B, gates).
            beside: that of what is known of this step alone, (B, gates).
        """
        for number, (unit, layer) in enumerate(zip(self.units, self.layers, strict=True)):
            # what the layer below says of this step lies where it says it of all
            below = Share(self.products[number - 1].expand(self.shape[0], -1, -1), self.gates) if number else Share(given)
            unit.step(place, below, self.products[number][0], layer.bias, None if number else beside, layer.input_bias)
            torch.mm(unit.operands_after[place], self.readers[number].T, out=self.products[number][0])

    def slopes(self) -> None:
        """Begin with gradients."""
        steps, rows = self.shape
        top = len(self.units) - 1
        # of each layer's products, state by state
        self.dproducts = [
            reader.new_zeros(steps + (number < top or not self.ahead), rows, len(reader)) for number, reader in enumerate(self.readers)
        ]
        self.dstates = [reader.new_empty(rows, reader.shape[1]) for reader in self.readers]
        for unit in self.units:
            unit.slopes(None, None)

    @property
    def dsaid(self) -> Tensor:
        """Gets the gradients of what the topmost states said, the first state's first, (T, B, …) or one more."""
        return self.dproducts[-1][..., self.gates :]

    def retreat(self, place: int, outer: Tensor | None, dgiven: Tensor) -> None:
        """The gradients of one step.

        Args:
            place: which.
            outer: those of all topmost states from outside, (T, B, E).
            dgiven: gets those of the lowest gates, (T, B, gates).
        """
        for number in range(len(self.units) - 1, -1, -1):
            read, topmost = place + 1 < len(self.dproducts[number]), number == len(self.units) - 1
            if read:
                torch.mm(self.dproducts[number][place + 1], self.readers[number], out=self.dstates[number])
            to = Share(self.dproducts[number - 1][1:], self.gates) if number else Share(dgiven)
            state = self.dstates[number] if read else None
            self.units[number].slope(place, state, outer if topmost else None, to, self.dproducts[number])

    def summed(self, weight: Tensor, bias: Tensor) -> tuple[list[Tensor | None], Tensor, Tensor]:
        """When all steps have theirs, the gradients of each layer's tensors, and of the reader's matrices and what is added to them.

        Args:
            weight: that of the lowest layer's weight for its input.
            bias: that of its bias.
        """
        found: list[Tensor | None] = []
        for unit, reader, dproduct in zip(self.units, self.readers, self.dproducts, strict=True):
            rows = dproduct.flatten(0, 1)
            matrices = (rows.T @ unit.all_operands[: len(dproduct)].flatten(0, 1)).float()
            sums = rows.sum(0).float()
            hidden = unit.carried + dproduct[0] @ reader
            cell = unit.carried_cell if unit.lstm else None
            found += [hidden, cell, weight, matrices[: self.gates], bias, sums[: self.gates]]
            weight, bias = matrices[self.gates :], sums[self.gates :]
        return found, weight, bias
