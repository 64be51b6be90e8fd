"""What a recurrent decoder's attention does while it trains, step by step, by the extension."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from attent.ops import native

# What features are padded to, so that they end with whole registers.
LANES = 16


class Source(NamedTuple):
    """What the attention reads, and the parameters of its score: v·tanh(W q + b + k'), or W q·k' where there is no v.

    Args:
        values: the memory's features, float32 or bfloat16, as products are to be (B, Tk, n).
        keys: k', in their type (B, Tk, D).
        lengths: how many of the keys are real, (B,).
        weight: W, (E, D).
        bias: (D,), or None.
        v: (D,), or None.
    """

    values: Tensor
    keys: Tensor
    lengths: Tensor
    weight: Tensor
    bias: Tensor | None
    v: Tensor | None


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
        self.nothing = torch.empty(0)
        self.bias = self.nothing if source.bias is None else source.bias.contiguous()
        self.v = self.lines = self.most = self.nothing
        if source.v is not None:
            line = -(-width // LANES) * LANES
            self.v = F.pad(source.v, (0, line - width))
            self.lines, self.most = source.values.new_empty(rows, keys, line), torch.empty(rows)
            native.run("attent_glanced_keys", (source.keys, self.lines, self.most), rows, keys, width, self.half)

    def look(self, place: int, product: Tensor) -> Tensor:
        """The context of one step, (B, n), from its query's product with W, (B, D)."""
        source = self.source
        tensors = (
            product,
            self.bias,
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
        native.run("attent_glance", tensors, *self.sizes, place, product.stride(0), self.half)
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
            self.nothing if outer is None else outer,
            self.dcontexts,
            self.dscores,
            dqueries,
        )
        native.run("attent_glance_gradients", tensors, *self.sizes, place, dqueries.stride(0), dqueries.stride(1), self.half)

    def summed(self) -> tuple[Tensor, Tensor, Tensor | None]:
        """The gradients of values, keys and v, when all steps have theirs."""
        rows, steps, keys, width, _ = self.sizes
        dtype, source = self.dcontexts.dtype, self.source
        dvalues = torch.bmm(self.weights.to(dtype).mT, self.dcontexts)
        if source.v is None:
            return dvalues, torch.bmm(self.dscores.to(dtype).mT, self.queries.to(dtype)), None
        dkeys, dv = torch.empty_like(source.keys), torch.empty(rows, width)
        tensors = (self.queries, self.dscores, self.v, source.keys, self.most, source.lengths, dkeys, dv)
        native.run("attent_glanced_keys_gradients", tensors, rows, steps, keys, width, self.half)
        return dvalues, dkeys, dv.sum(0)
