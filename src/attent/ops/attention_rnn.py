"""Recurrent decoders with attention over a known target, for training.

The compiled library runs all steps of a decoder as one function. The loops in `models.rnn_decoder` are the reference
and the fallback; `decode` chooses between them.
"""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from attent.ops import native
from attent.ops.eligibility import can_run_native
from attent.ops.onednn import mm
from attent.ops.rnn import DTYPES, RnnSteps

# Features are padded to a multiple of this to fill whole registers.
LANES = 16
Gradients = tuple[Tensor | None, ...]


class Source(NamedTuple):
    """Inputs and parameters of an attention with score v·tanh(W q + b + k'), or W q·k' if v is None.

    Args:
        values: the memory's features, (B, Tk, n), in the dtype of the products: float32 or bfloat16.
        keys: k', (B, Tk, D), in the same dtype.
        lengths: the number of real keys, (B,).
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


class Layer(NamedTuple):
    """First state and parameters of a recurrent layer, in PyTorch's order.

    The `input_weight` of the lowest layer has columns for the embedding and for the vector beside it.
    """

    hidden: Tensor
    cell: Tensor | None
    input_weight: Tensor
    weight: Tensor
    input_bias: Tensor
    bias: Tensor


class AttentionSteps:
    """All steps of the attention: queries, weights and contexts."""

    def __init__(self, source: Source, steps: int) -> None:
        self.source, self.is_half = source, source.values.dtype == torch.bfloat16
        rows, keys, features = source.values.shape
        width = source.keys.shape[-1]
        self.sizes = rows, steps, keys, width, features
        self.queries = torch.empty(rows, steps, width)
        self.weights = torch.empty(rows, steps, keys)
        self.contexts = source.values.new_empty(steps, rows, features)
        self.bias = None if source.bias is None else source.bias.contiguous()
        self.v = self.lowered_keys = self.maxima = None
        if source.v is not None:
            padded = -(-width // LANES) * LANES
            self.v = F.pad(source.v, (0, padded - width))
            self.lowered_keys, self.maxima = source.values.new_empty(rows, keys, padded), torch.empty(rows)
            native.run(
                "attent_rnn_attention_keys",
                (source.keys, self.lowered_keys, self.maxima),
                rows,
                keys,
                width,
                self.is_half,
            )

    def forward(self, step: int, product: Tensor) -> Tensor:
        """Return the context of a step, (B, n), given W q, (B, D)."""
        source = self.source
        inputs = (
            product,
            self.bias,
            self.v,
            source.keys,
            self.lowered_keys,
            self.maxima,
            source.values,
            source.lengths,
        )
        outputs = (self.queries, self.weights, self.contexts)
        native.run("attent_rnn_attention", (*inputs, *outputs), *self.sizes, step, product.stride(0), self.is_half)
        return self.contexts[step]

    def start_backward(self) -> None:
        """Allocate the gradients."""
        rows, steps, _, _, features = self.sizes
        self.dcontexts = self.contexts.new_empty(rows, steps, features)
        self.dscores = torch.empty_like(self.weights)

    def backward(self, step: int, dcontext: Tensor, dcontexts: Tensor | None, dqueries: Tensor) -> None:
        """Compute the gradients of one step.

        Args:
            step: the index of the step.
            dcontext: the gradient of its context, (B, n).
            dcontexts: further gradients of the contexts of all steps, (T, B, n); that of this step is added.
            dqueries: receives the gradients of W q at all steps, (T, B, D).
        """
        source = self.source
        inputs = (
            self.queries,
            self.weights,
            self.v,
            source.keys,
            self.lowered_keys,
            self.maxima,
            source.values,
            source.lengths,
            dcontext,
        )
        outputs = (dcontexts, self.dcontexts, self.dscores, dqueries)
        strides = dqueries.stride(0), dqueries.stride(1)
        native.run("attent_rnn_attention_gradients", (*inputs, *outputs), *self.sizes, step, *strides, self.is_half)

    def source_gradients(self) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return the gradients of values, keys and v; call it after the backward of all steps."""
        rows, steps, keys, width, _ = self.sizes
        dtype, source = self.dcontexts.dtype, self.source
        dvalues = torch.bmm(self.weights.to(dtype).mT, self.dcontexts)
        if source.v is None:
            return dvalues, torch.bmm(self.dscores.to(dtype).mT, self.queries.to(dtype)), None
        dkeys, dv = torch.empty_like(source.keys), torch.empty(rows, width)
        tensors = (self.queries, self.dscores, self.v, source.keys, self.maxima, source.lengths, dkeys, dv)
        native.run("attent_rnn_attention_keys_gradients", tensors, rows, steps, keys, width, self.is_half)
        return dvalues, dkeys, dv.sum(0)


class StackSteps:
    """All steps of a stack of layers, the lowest of which reads an embedding and a vector beside it.

    The matrices that multiply a layer's state are concatenated, so that one product is enough.

    Args:
        layers: the layers, from the lowest.
        output_weight: the concatenated matrices that multiply the topmost state.
        embedded: the embeddings of each step, (T, B, embedding_width).
        dtype: the dtype of the products.
        reads_before: whether a state's output is read before the next step, as in Bahdanau's attention, so that the
            last one is not used.
    """

    def __init__(
        self, layers: list[Layer], output_weight: Tensor, embedded: Tensor, dtype: torch.dtype, *, reads_before: bool
    ) -> None:
        self.layers, self.embedded, self.reads_before = layers, embedded.to(dtype).contiguous(), reads_before
        steps, rows, width = embedded.shape
        self.shape = steps, rows
        lowest = layers[0].input_weight.to(dtype)
        self.token_weight, self.beside_weight = lowest[:, :width], lowest[:, width:]
        self.units = [RnnSteps(layer.hidden, layer.cell, steps, dtype) for layer in layers]
        self.extra = self.embedded.new_empty(rows, self.gates)
        above = [layer.input_weight for layer in layers[1:]] + [output_weight]
        self.weights = [
            torch.cat((layer.weight, weight)).to(dtype) for layer, weight in zip(layers, above, strict=True)
        ]
        self.products = [weight.new_empty(1, rows, len(weight)) for weight in self.weights]
        for unit, weight, product in zip(self.units, self.weights, self.products, strict=True):
            mm(unit.operands[0], weight.T, out=product[0])

    @property
    def gates(self) -> int:
        """Features of each layer's gates."""
        return self.units[0].gates

    @property
    def output(self) -> Tensor:
        """The topmost state times `output_weight`, (B, …)."""
        return self.products[-1][0, :, self.gates :]

    def token_gates(self) -> Tensor:
        """Return the embeddings' term of the lowest gates, (T, B, gates)."""
        return mm(self.embedded.flatten(0, 1), self.token_weight.T).view(*self.shape, -1)

    def forward(self, step: int, gates: Tensor, beside: Tensor | None) -> None:
        """Run one step.

        Args:
            step: the index of the step.
            gates: the result of `token_gates`.
            beside: the vector beside this step's embedding, (B, n); None for zeros.
        """
        extra = None if beside is None else mm(beside, self.beside_weight.T, out=self.extra)
        for index, (unit, layer) in enumerate(zip(self.units, self.layers, strict=True)):
            # The product of the layer below is stored in the same place at every step.
            inputs = self.products[index - 1].expand(self.shape[0], -1, -1)[..., self.gates :] if index else gates
            unit.forward(step, inputs, self.products[index][0], layer.bias, None if index else extra, layer.input_bias)
            mm(unit.operands_after[step], self.weights[index].T, out=self.products[index][0])

    def start_backward(self) -> None:
        """Allocate the gradients."""
        steps, rows = self.shape
        top = len(self.units) - 1
        # Gradients of each layer's products, by state.
        self.dproducts = [
            weight.new_zeros(steps + (index < top or not self.reads_before), rows, len(weight))
            for index, weight in enumerate(self.weights)
        ]
        self.dgates = self.embedded.new_empty(*self.shape, self.gates)
        self.dbeside = self.embedded.new_empty(rows, self.beside_weight.shape[1])
        self.dstates = [weight.new_empty(rows, weight.shape[1]) for weight in self.weights]
        for unit in self.units:
            unit.start_backward(None, None)

    @property
    def doutputs(self) -> Tensor:
        """The gradients of the outputs, filled in by the caller, from the first state: (T, B, …) or (T + 1, B, …)."""
        return self.dproducts[-1][..., self.gates :]

    def backward(self, step: int, dstates: Tensor | None) -> Tensor:
        """Compute the gradients of one step, and return that of the vector beside its embedding.

        The result is overwritten by the next call.

        Args:
            step: the index of the step.
            dstates: the incoming gradients of all topmost states, (T, B, E).
        """
        for index in range(len(self.units) - 1, -1, -1):
            is_read, is_top = step + 1 < len(self.dproducts[index]), index == len(self.units) - 1
            if is_read:
                mm(self.dproducts[index][step + 1], self.weights[index], out=self.dstates[index])
            dinputs = self.dproducts[index - 1][1:, :, self.gates :] if index else self.dgates
            dstate = self.dstates[index] if is_read else None
            self.units[index].backward(step, dstate, dstates if is_top else None, dinputs, self.dproducts[index])
        return mm(self.dgates[step], self.beside_weight, out=self.dbeside)

    def gradients(self, beside: Tensor) -> tuple[Tensor, list[Tensor | None], Tensor, Tensor]:
        """Return the gradients of the embeddings, the layers' tensors, `output_weight` and the bias of its product.

        Args:
            beside: the vectors beside the embeddings of the last steps, (t, B, n); zeros before.
        """
        rows, late_rows = self.dgates.flatten(0, 1), self.dgates[len(self.dgates) - len(beside) :].flatten(0, 1)
        weight = torch.cat((mm(rows.T, self.embedded.flatten(0, 1)), mm(late_rows.T, beside.flatten(0, 1))), 1).float()
        dembedded, bias = mm(rows, self.token_weight).view_as(self.embedded), rows.sum(0).float()
        gradients: list[Tensor | None] = []
        for unit, joined, dproduct in zip(self.units, self.weights, self.dproducts, strict=True):
            rows = dproduct.flatten(0, 1)
            matrices = mm(rows.T, unit.all_operands[: len(dproduct)].flatten(0, 1)).float()
            sums = rows.sum(0).float()
            hidden = unit.dhidden + mm(dproduct[0], joined)
            gradients += [hidden, unit.dcell, weight, matrices[: self.gates], bias, sums[: self.gates]]
            weight, bias = matrices[self.gates :], sums[self.gates :]
        return dembedded, gradients, weight, bias


def decode(
    fused: Callable[[], Tensor], reference: Callable[[], Tensor], inputs: Iterable[Tensor], parameters: Iterable[Tensor]
) -> Tensor:
    """Return a decoder's output for a known target, from `fused` if the library can record gradients.

    Otherwise from `reference`.

    Args:
        fused: a function that calls `bahdanau` or `luong`.
        reference: a function that computes the same step by step in plain PyTorch.
        inputs: the inputs of the decoder, float32 or bfloat16.
        parameters: the parameters of the decoder; the library supports float32.
    """
    parameters = (*parameters,)
    if can_run_native(*parameters) and can_run_native(*inputs, *parameters, dtypes=DTYPES, in_training=True):
        return fused()
    return reference()


def bahdanau(
    embedded: Tensor, source: Source, layers: list[Layer], query_terms: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Return the topmost states and the contexts of all steps, in the type of the values.

        c_t = Σⱼ α(s_{t−1} + p_t, h_j) h_j,  s_t = f(s_{t−1}, [e_t; c_t])

    Args:
        embedded: the embeddings of each step, (T, B, embedding_width).
        source: the inputs and parameters of the attention.
        layers: the layers, from the lowest.
        query_terms: W p_t of each step, (T, B, D); p_t = 0 by default.

    Returns:
        The states (T, B, E) and the contexts (T, B, n).
    """
    return _Bahdanau.apply(embedded, query_terms, *source, *(tensor for layer in layers for tensor in layer))


def luong(embedded: Tensor, source: Source, layers: list[Layer], weight: Tensor, bias: Tensor) -> Tensor:
    """Return the attentional vectors of all steps, each fed into the next step, in the dtype of the values.

        s_t = f(s_{t−1}, [e_t; h̃_{t−1}]),  c_t = Σⱼ α(s_t, h_j) h_j,  h̃_t = tanh(W [c_t; s_t] + b),  h̃_0 = 0

    Args:
        embedded: the embeddings of each step, (T, B, embedding_width).
        source: the inputs and parameters of the attention.
        layers: the layers, from the lowest.
        weight: W.
        bias: b.

    Returns:
        The vectors, (T, B, embedding_width).
    """
    return _Luong.apply(embedded, weight, bias, *source, *(tensor for layer in layers for tensor in layer))


def _unflatten(tensors: tuple[Any, ...]) -> tuple[Source, list[Layer]]:
    source, flat, fields = Source(*tensors[: len(Source._fields)]), tensors[len(Source._fields) :], len(Layer._fields)
    source = source._replace(
        values=source.values.contiguous(), keys=source.keys.contiguous(), lengths=source.lengths.contiguous()
    )
    return source, [Layer(*flat[begin : begin + fields]) for begin in range(0, len(flat), fields)]


# Both functions return detached tensors: an output stored on ctx would never be freed.
class _Bahdanau(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, embedded: Tensor, query_terms: Tensor | None, *tensors: Any) -> tuple[Tensor, Tensor]:
        source, layers = _unflatten(tensors)
        steps, dtype = len(embedded), source.values.dtype
        attention = AttentionSteps(source, steps)
        stack = StackSteps(layers, source.weight.T, embedded, dtype, reads_before=True)
        gates = stack.token_gates()
        for step in range(steps):
            product = stack.output if query_terms is None else stack.output + query_terms[step].to(dtype)
            stack.forward(step, gates, attention.forward(step, product))
        ctx.saved = stack, attention
        ctx.query_dtype = None if query_terms is None else query_terms.dtype
        ctx.set_materialize_grads(False)
        return stack.units[-1].operands_after.detach(), attention.contexts.detach()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor | None) -> Gradients:  # pyright: ignore[reportIncompatibleMethodOverride]
        stack, attention = ctx.saved
        dstates, dcontexts = (None if gradient is None else gradient.contiguous() for gradient in gradients)
        attention.start_backward()
        stack.start_backward()
        for step in reversed(range(len(attention.contexts))):
            attention.backward(step, stack.backward(step, dstates), dcontexts, stack.doutputs)
        dembedded, dlayers, dweight, dbias = stack.gradients(attention.contexts)
        dvalues, dkeys, dv = attention.source_gradients()
        dbias = None if attention.source.bias is None else dbias
        dquery_terms = None if ctx.query_dtype is None else stack.doutputs.to(ctx.query_dtype, copy=True)
        return dembedded, dquery_terms, dvalues, dkeys, None, dweight.T, dbias, dv, *dlayers


class _Luong(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, embedded: Tensor, weight: Tensor, bias: Tensor, *tensors: Any) -> Tensor:
        source, layers = _unflatten(tensors)
        dtype, features, split = source.values.dtype, source.values.shape[-1], source.weight.shape[1]
        steps, rows, _ = embedded.shape
        attention = AttentionSteps(source, steps)
        stack = StackSteps(
            layers, torch.cat((source.weight.T, weight[:, features:])), embedded, dtype, reads_before=False
        )
        context_weight, outputs = weight[:, :features].to(dtype), source.values.new_empty(steps, rows, len(weight))
        gates = stack.token_gates()
        for step in range(steps):
            stack.forward(step, gates, outputs[step - 1] if step else None)
            context = attention.forward(step, stack.output[:, :split])
            total = mm(context, context_weight.T).float().add_(stack.output[:, split:]).add_(bias)
            outputs[step] = total.tanh_()
        ctx.saved = stack, attention, context_weight, outputs
        return outputs.detach()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> Gradients:  # pyright: ignore[reportIncompatibleMethodOverride]
        stack, attention, context_weight, outputs = ctx.saved
        split, dcontext, dfeed = attention.source.weight.shape[1], torch.empty_like(attention.contexts[0]), None
        attention.start_backward()
        stack.start_backward()
        # Gradients for the state after each step.
        dqueries, dtotals = stack.doutputs[1:, :, :split], stack.doutputs[1:, :, split:]
        for step in reversed(range(len(outputs))):
            doutput = gradients[0][step].float()
            if dfeed is not None:
                doutput = doutput + dfeed
            dtotals[step] = doutput * (1 - outputs[step].float().square())
            mm(dtotals[step], context_weight, out=dcontext)
            attention.backward(step, dcontext, None, dqueries)
            dfeed = stack.backward(step, None)
        dembedded, dlayers, dweight, dbias = stack.gradients(outputs[:-1])
        doutput_weight = torch.cat(
            (mm(dtotals.flatten(0, 1).T, attention.contexts.flatten(0, 1)).float(), dweight[split:]), 1
        )
        dvalues, dkeys, dv = attention.source_gradients()
        dsource = dvalues, dkeys, None, dweight[:split].T, None if attention.source.bias is None else dbias[:split], dv
        return dembedded, doutput_weight, dbias[split:], *dsource, *dlayers
