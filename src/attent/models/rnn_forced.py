"""Attending decoders over a known target, each as one function whose steps are the extension's: what training spends its time on."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from attent.models.rnn_stack import Layer, Stack
from attent.ops.attention_rnn import Glances, Source

Gradients = tuple[Tensor | None, ...]
FIELDS = len(Layer._fields)


def bahdanau(embedded: Tensor, source: Source, layers: list[Layer], asked: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The topmost states and the contexts of all steps, in the type of the values.

        c_t = Σⱼ α(s_{t−1} + p_t, h_j) h_j,  s_t = f(s_{t−1}, [e_t; c_t])

    Args:
        embedded: of each step, (T, B, embedding_width).
        source: what the attention reads.
        layers: from the lowest.
        asked: W p_t of each step, (T, B, D); p_t = 0 unless given.

    Returns:
        (T, B, E) and (T, B, n).
    """
    return _Bahdanau.apply(embedded, asked, *source, *(tensor for layer in layers for tensor in layer))


def luong(embedded: Tensor, source: Source, layers: list[Layer], weight: Tensor, bias: Tensor) -> Tensor:
    """The attentional vectors of all steps, each of which enters the next, in the type of the values.

        s_t = f(s_{t−1}, [e_t; h̃_{t−1}]),  c_t = Σⱼ α(s_t, h_j) h_j,  h̃_t = tanh(W [c_t; s_t] + b),  h̃_0 = 0

    Args:
        embedded: of each step, (T, B, embedding_width).
        source: what the attention reads.
        layers: from the lowest.
        weight: W.
        bias: b.

    Returns:
        (T, B, embedding_width).
    """
    return _Luong.apply(embedded, weight, bias, *source, *(tensor for layer in layers for tensor in layer))


def _read(tensors: tuple[Any, ...]) -> tuple[Source, list[Layer]]:
    source, flat = Source(*tensors[: len(Source._fields)]), tensors[len(Source._fields) :]
    source = source._replace(values=source.values.contiguous(), keys=source.keys.contiguous(), lengths=source.lengths.contiguous())
    return source, [Layer(*flat[at : at + FIELDS]) for at in range(0, len(flat), FIELDS)]


# What these functions return they also keep, under another name: a result that its own function held would never be let go of.
class _Bahdanau(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, embedded: Tensor, asked: Tensor | None, *tensors: Any) -> tuple[Tensor, Tensor]:
        source, layers = _read(tensors)
        dtype = source.values.dtype
        embedded, (steps, rows, width) = embedded.to(dtype).contiguous(), embedded.shape
        glances = Glances(source, steps)
        stack = Stack(layers, source.weight.T, (steps, rows), dtype, ahead=True)
        lowest = layers[0].input_weight.to(dtype)
        of_token, of_context = lowest[:, :width], lowest[:, width:]
        given = (embedded.flatten(0, 1) @ of_token.T).view(steps, rows, -1)
        beside = embedded.new_empty(rows, stack.gates)
        for place in range(steps):
            product = stack.said if asked is None else stack.said + asked[place].to(dtype)
            torch.mm(glances.look(place, product), of_context.T, out=beside)
            stack.advance(place, given, beside)
        ctx.held = embedded, stack, glances, of_token, of_context
        ctx.asked = None if asked is None else asked.dtype
        ctx.set_materialize_grads(False)
        return stack.units[-1].operands_after.detach(), glances.contexts.detach()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor | None) -> Gradients:  # pyright: ignore[reportIncompatibleMethodOverride]
        embedded, stack, glances, of_token, of_context = ctx.held
        dstates, dcontexts = (None if gradient is None else gradient.contiguous() for gradient in gradients)
        dgiven, dcontext = embedded.new_empty(*embedded.shape[:2], stack.gates), torch.empty_like(glances.contexts[0])
        glances.slopes()
        stack.slopes()
        for place in reversed(range(len(embedded))):
            stack.retreat(place, dstates, dgiven)
            torch.mm(dgiven[place], of_context, out=dcontext)
            glances.slope(place, dcontext, dcontexts, stack.dsaid)
        tokens = dgiven.flatten(0, 1)
        dlowest = torch.cat((tokens.T @ embedded.flatten(0, 1), tokens.T @ glances.contexts.flatten(0, 1)), 1).float()
        of_layers, weight, bias = stack.summed(dlowest, tokens.sum(0).float())
        dvalues, dkeys, dv = glances.summed()
        of_bias = None if glances.source.bias is None else bias
        of_asked = None if ctx.asked is None else stack.dsaid.to(ctx.asked, copy=True)
        return (tokens @ of_token).view_as(embedded), of_asked, dvalues, dkeys, None, weight.T, of_bias, dv, *of_layers


class _Luong(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, embedded: Tensor, weight: Tensor, bias: Tensor, *tensors: Any) -> Tensor:
        source, layers = _read(tensors)
        dtype, features, scored = source.values.dtype, source.values.shape[-1], source.weight.shape[1]
        embedded, (steps, rows, width) = embedded.to(dtype).contiguous(), embedded.shape
        glances = Glances(source, steps)
        stack = Stack(layers, torch.cat((source.weight.T, weight[:, features:])), (steps, rows), dtype, ahead=False)
        lowest, of_context = layers[0].input_weight.to(dtype), weight[:, :features].to(dtype)
        of_token, of_fed = lowest[:, :width], lowest[:, width:]
        given = (embedded.flatten(0, 1) @ of_token.T).view(steps, rows, -1)
        beside, shown = embedded.new_zeros(rows, stack.gates), embedded.new_empty(steps, rows, len(weight))
        for place in range(steps):
            stack.advance(place, given, beside)
            context = glances.look(place, stack.said[:, :scored])
            total = torch.mm(context, of_context.T).float().add_(stack.said[:, scored:]).add_(bias)
            shown[place] = total.tanh_()
            torch.mm(shown[place], of_fed.T, out=beside)
        ctx.held = embedded, stack, glances, of_token, of_fed, of_context, shown
        return shown.detach()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> Gradients:  # pyright: ignore[reportIncompatibleMethodOverride]
        embedded, stack, glances, of_token, of_fed, of_context, shown = ctx.held
        steps, scored = len(embedded), glances.source.weight.shape[1]
        dgiven, dcontext = embedded.new_empty(*embedded.shape[:2], stack.gates), torch.empty_like(glances.contexts[0])
        glances.slopes()
        stack.slopes()
        # of the state behind each step
        dqueries, dtotals = stack.dsaid[1:, :, :scored], stack.dsaid[1:, :, scored:]
        for place in reversed(range(steps)):
            dshown = gradients[0][place].float()
            if place + 1 < steps:
                dshown = dshown + torch.mm(dgiven[place + 1], of_fed)
            dtotals[place] = dshown * (1 - shown[place].float().square())
            torch.mm(dtotals[place], of_context, out=dcontext)
            glances.slope(place, dcontext, None, dqueries)
            stack.retreat(place, None, dgiven)
        tokens, totals = dgiven.flatten(0, 1), dtotals.flatten(0, 1)
        fed = dgiven[1:].flatten(0, 1).T @ shown[:-1].flatten(0, 1)
        dlowest = torch.cat((tokens.T @ embedded.flatten(0, 1), fed), 1).float()
        of_layers, weight, bias = stack.summed(dlowest, tokens.sum(0).float())
        dweight = torch.cat(((totals.T @ glances.contexts.flatten(0, 1)).float(), weight[scored:]), 1)
        dvalues, dkeys, dv = glances.summed()
        of_bias = None if glances.source.bias is None else bias[:scored]
        of_source = dvalues, dkeys, None, weight[:scored].T, of_bias, dv
        return (tokens @ of_token).view_as(embedded), dweight, bias[scored:], *of_source, *of_layers
