"""Bahdanau's recurrence over a known target as one function, its steps by the extension: what training spends its time on."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from attent.attention.extension import library as extension
from attent.layers.gated_steps import GatedSteps, Share

# What features are padded to, so that they end with whole registers.
LANES = 16
# Tensors of the source and of the score, and of each layer.
SOURCE, LAYER = 7, 6


class Source(NamedTuple):
    """What the attention reads, and the parameters of its score v·tanh(W q + b + k').

    Args:
        values: the memory's features, float32 or bfloat16, as products are to be (B, Tk, n).
        keys: k', in their type (B, Tk, D).
        lengths: how many of the keys are real, (B,).
        v: (D,).
        weight: W, (E, D).
        bias: (D,).
    """

    values: Tensor
    keys: Tensor
    lengths: Tensor
    v: Tensor
    weight: Tensor
    bias: Tensor


class Layer(NamedTuple):
    """A layer's first state and parameters, in PyTorch's order; the lowest one's weight for its input takes an embedding and a context."""

    hidden: Tensor
    cell: Tensor | None
    input_weight: Tensor
    weight: Tensor
    input_bias: Tensor
    bias: Tensor


def forced(embedded: Tensor, source: Source, layers: list[Layer]) -> tuple[Tensor, Tensor]:
    """The topmost states and the contexts of all steps, in the type of the values.

        c_t = Σⱼ α(s_{t−1}, h_j) h_j,  s_t = f(s_{t−1}, [e_t; c_t])

    Each state is multiplied once with the matrices of all who read it: its own layer a step later, the layer above it, the attention.
    Gradients of matrices are products over all steps at once.

    Args:
        embedded: of each step, (T, B, embedding_width).
        source: what the attention reads.
        layers: from the lowest.

    Returns:
        (T, B, E) and (T, B, n).
    """
    flat = [tensor for layer in layers for tensor in layer]
    return _Forced.apply(embedded, *source, *flat)


class Glances:
    """The attention's steps: queries, weights and contexts of all of them."""

    def __init__(self, source: Source, steps: int) -> None:
        self.source, self.half = source, source.values.dtype == torch.bfloat16
        rows, keys, features = source.values.shape
        width = source.keys.shape[-1]
        self.sizes = rows, steps, keys, width, features
        self.queries = torch.empty(rows, steps, width)
        self.weights = torch.empty(rows, steps, keys)
        self.contexts = source.values.new_empty(steps, rows, features)
        line = -(-width // LANES) * LANES
        self.v = F.pad(source.v, (0, line - width))
        self.lines, self.most = source.values.new_empty(rows, keys, line), torch.empty(rows)
        extension.run("attent_glanced_keys", (source.keys, self.lines, self.most), rows, keys, width, self.half)

    def look(self, place: int, product: Tensor) -> Tensor:
        """The context of one step, (B, n), from its query's product with W, (B, D)."""
        source = self.source
        tensors = (
            product,
            source.bias,
            self.v,
            source.keys,
            self.lines,
            self.most,
            source.values,
            source.lengths,
            self.queries,
            self.weights,
            self.contexts,
        )
        extension.run("attent_glance", tensors, *self.sizes, place, product.stride(0), self.half)
        return self.contexts[place]

    def slopes(self) -> None:
        """Begin with gradients."""
        rows, steps, _, _, features = self.sizes
        self.dcontexts = self.contexts.new_empty(rows, steps, features)
        self.dscores = torch.empty_like(self.weights)

    def slope(self, place: int, product: Tensor, outer: Tensor | None, dqueries: Tensor) -> None:
        """The gradients of one step.

        Args:
            place: which.
            product: the gradient of its context, (B, n).
            outer: what is added to that, of all steps (T, B, n).
            dqueries: gets those of the queries' products, of all steps (T, B, D).
        """
        source = self.source
        tensors = (
            self.queries,
            self.weights,
            self.v,
            source.keys,
            self.lines,
            self.most,
            source.values,
            source.lengths,
            product,
            torch.empty(0) if outer is None else outer,
            self.dcontexts,
            self.dscores,
            dqueries,
        )
        extension.run("attent_glance_gradients", tensors, *self.sizes, place, dqueries.stride(0), dqueries.stride(1), self.half)

    def summed(self) -> tuple[Tensor, Tensor, Tensor]:
        """The gradients of values, keys and v, when all steps have theirs."""
        rows, steps, keys, width, _ = self.sizes
        source, dkeys, dv = self.source, torch.empty_like(self.source.keys), torch.empty(rows, width)
        tensors = (self.queries, self.dscores, self.v, source.keys, self.most, source.lengths, dkeys, dv)
        extension.run("attent_glanced_keys_gradients", tensors, rows, steps, keys, width, self.half)
        return torch.bmm(self.weights.to(self.dcontexts.dtype).mT, self.dcontexts), dkeys, dv.sum(0)


class _Forced(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, embedded: Tensor, *tensors: Any) -> tuple[Tensor, Tensor]:
        source, flat = Source(*(tensor.contiguous() for tensor in tensors[: SOURCE - 1])), tensors[SOURCE - 1 :]
        layers = [Layer(*flat[at : at + LAYER]) for at in range(0, len(flat), LAYER)]
        dtype = source.values.dtype
        embedded, (steps, rows, width) = embedded.to(dtype).contiguous(), embedded.shape
        glances = Glances(source, steps)
        units = [GatedSteps(layer.cell is not None, (steps, rows, layer.hidden.shape[1]), dtype) for layer in layers]
        lowest = layers[0].input_weight.to(dtype)
        of_token, of_context = lowest[:, :width], lowest[:, width:]
        readers = _readers(source, layers, dtype)
        given = Share((embedded.flatten(0, 1) @ of_token.T).view(steps, rows, -1))
        beside = embedded.new_empty(rows, units[0].gates)
        products = [embedded.new_empty(1, rows, len(reader)) for reader in readers]
        for unit, layer, reader, product in zip(units, layers, readers, products, strict=True):
            unit.start(layer.hidden, layer.cell)
            torch.mm(unit.operands[0], reader.T, out=product[0])
        for place in range(steps):
            context = glances.look(place, products[-1][0, :, units[-1].gates :])
            torch.mm(context, of_context.T, out=beside)
            for number, (unit, layer) in enumerate(zip(units, layers, strict=True)):
                # what the layer below has said of this step, which it says anew with each
                below = Share(products[number - 1].expand(steps, -1, -1), units[number - 1].gates) if number else given
                unit.step(place, below, products[number][0], layer.bias, None if number else beside, layer.input_bias)
                torch.mm(unit.operands_after[place], readers[number].T, out=products[number][0])
        ctx.held = embedded, units, glances, of_token, of_context, readers
        ctx.set_materialize_grads(False)
        return units[-1].operands_after, glances.contexts

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        embedded, units, glances, of_token, of_context, readers = ctx.held
        dstates, dcontexts = (None if gradient is None else gradient.contiguous() for gradient in gradients)
        steps, rows, _ = embedded.shape
        top = len(units) - 1
        # of each layer's products, state by state; nobody reads the topmost state behind the last step
        dproducts = [embedded.new_zeros(steps + (number < top), rows, len(reader)) for number, reader in enumerate(readers)]
        dgiven, dcontext = embedded.new_empty(steps, rows, units[0].gates), torch.empty_like(glances.contexts[0])
        products = [embedded.new_empty(rows, reader.shape[1]) for reader in readers]
        glances.slopes()
        for unit in units:
            unit.slopes(None, None)
        for place in reversed(range(steps)):
            for number in range(top, -1, -1):
                unit, read = units[number], place + 1 < len(dproducts[number])
                if read:
                    torch.mm(dproducts[number][place + 1], readers[number], out=products[number])
                to = Share(dproducts[number - 1][1:], units[number - 1].gates) if number else Share(dgiven)
                unit.slope(place, products[number] if read else None, dstates if number == top else None, to, dproducts[number])
            torch.mm(dgiven[place], of_context, out=dcontext)
            glances.slope(place, dcontext, dcontexts, dproducts[top][..., units[top].gates :])
        tokens = dgiven.flatten(0, 1)
        dembedded = (tokens @ of_token).view_as(embedded)
        dlowest = torch.cat((tokens.T @ embedded.flatten(0, 1), tokens.T @ glances.contexts.flatten(0, 1)), 1).float()
        dvalues, dkeys, dv = glances.summed()
        of_layers, weight, bias = _of_layers(units, readers, dproducts, dlowest, tokens.sum(0).float())
        return dembedded, dvalues, dkeys, None, dv, weight.T, bias, *of_layers


def _readers(source: Source, layers: list[Layer], dtype: torch.dtype) -> list[Tensor]:
    """Of each layer the matrices of all who read its state, below one another: its own, and the next layer's or the attention's."""
    above = [layer.input_weight for layer in layers[1:]] + [source.weight.T]
    return [torch.cat((layer.weight, reader)).to(dtype) for layer, reader in zip(layers, above, strict=True)]


def _of_layers(
    units: list[GatedSteps], readers: list[Tensor], dproducts: list[Tensor], weight: Tensor, bias: Tensor
) -> tuple[list[Tensor | None], Tensor, Tensor]:
    """The gradients of each layer's tensors, from those of the lowest weight for inputs and of its bias; last of the attention's."""
    found: list[Tensor | None] = []
    for unit, reader, dproduct in zip(units, readers, dproducts, strict=True):
        rows = dproduct.flatten(0, 1)
        matrices = (rows.T @ unit.all_operands[: len(dproduct)].flatten(0, 1)).float()
        sums = rows.sum(0).float()
        hidden = unit.carried + dproduct[0] @ reader
        cell = unit.carried_cell if unit.lstm else None
        found += [hidden, cell, weight, matrices[: unit.gates], bias, sums[: unit.gates]]
        weight, bias = matrices[unit.gates :], sums[unit.gates :]
    return found, weight, bias
