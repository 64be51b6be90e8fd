"""The decoder of a Transformer one token at a time, as a search runs it: dot products, softmax, float32, nobody watching.

A step is a few dozen small products, and what surrounds them in the general way costs more than they do. Here keys and
values stay where they were written, and a search that moves its hypotheses moves the numbers of rows alone; padding is
told by lengths. On a CPU the extension computes a step of all layers in one call; elsewhere queries, keys and values come of
one product.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attent.attention.capture.watch import is_watched
from attent.layers.residual import Stream
from attent.models import transformer_packing as compiled
from attent.models.encoder_decoder import Memory
from attent.models.transformer_layers import Decoder, Embedding
from attent.models.transformer_packing import Stack, Start
from attent.ops.decode_attention import keep, looks

# Room is made for so many tokens at a time: on a CPU what is not written yet takes no memory.
ROOM = 32


class Written:
    """Every layer's keys and values of what is written, with room behind them: (L, C, S, 2·G·D).

    Args:
        tensor: the room.
        length: tokens that it holds. What has fewer and goes on writes into a copy.
    """

    def __init__(self, tensor: Tensor, length: int = 0) -> None:
        self.tensor, self.length = tensor, length

    def after(self, length: int, rows: int) -> Written:
        """Where so many rows can write one more token behind so many: this, or a copy with more room."""
        layers, room, most, width = self.tensor.shape
        if length == self.length and length < room and rows <= most:
            self.length += 1
            return self
        wider = Written(self.tensor.new_empty(layers, length // ROOM * ROOM + ROOM, max(rows, most), width), length + 1)
        wider.tensor[:, :length, :most] = self.tensor[:, :length]
        return wider


@dataclass(frozen=True)
class Standing:
    """Where the decoder stands: a value. What is selected is where things lie; they stay there themselves.

    Args:
        length: tokens written so far, BOS included.
        written: their keys and values.
        rows: which row holds each of them, (B, length).
        source: every layer's keys and values of the memory, (L, S, Tk, 2·G·D).
        origin: which of the S sources each row reads, (B, 1).
        lengths: how many of the source's tokens are real, (B,).
        weights: the decoder as the extension reads it; or every layer's three projections of self-attention as one.
    """

    length: int
    written: Written
    rows: Tensor
    source: Tensor
    origin: Tensor
    lengths: Tensor
    weights: Stack | list[tuple[Tensor, Tensor | None]]

    def select(self, rows: Tensor) -> Standing:
        """These rows of the batch, in this order; a row may be named twice."""
        return replace(
            self,
            rows=self.rows.index_select(0, rows),
            origin=self.origin.index_select(0, rows),
            lengths=self.lengths.index_select(0, rows),
        )

    def reorder(self, rows: Tensor) -> Standing:
        """`select` where each row takes what a row with the same source has written."""
        return replace(self, rows=self.rows.index_select(0, rows))


def serves(decoder: Decoder, memory: Memory) -> bool:
    """Whether the steps that follow can be computed here."""
    if not torch.is_inference_mode_enabled() or decoder.training or is_watched() or torch.compiler.is_compiling():
        return False
    features = memory.features
    if features.dtype != torch.float32 or torch.is_autocast_enabled(features.device.type) or not features.numel():
        return False
    every = [attention for layer in decoder.layers for attention in (layer.self_attention, layer.cross_attention)]
    # a query that may see nothing is not looked after here
    return bool(every) and all(map(compiled.plain, every)) and bool(memory.lengths.min() > 0)


def start(decoder: Decoder, memory: Memory) -> Standing:
    """The state before the first token."""
    features, lengths = memory.features, memory.lengths.long().contiguous()
    if compiled.serves(decoder):
        # what is padding in every row is left out
        weights = compiled.stack_of(decoder)
        source = compiled.remember(weights, features[:, : int(lengths.max())])
    else:
        cross = [layer.cross_attention for layer in decoder.layers]
        source = torch.stack([torch.cat((each.key_projection(features), each.value_projection(features)), -1) for each in cross])
        weights = [compiled.joined(layer.self_attention) for layer in decoder.layers]
    every = torch.arange(len(features), device=features.device)[:, None]
    # how many rows there will be is known when the first token comes
    nothing = Written(features.new_empty(len(source), 0, 0, source.shape[-1]))
    return Standing(0, nothing, every[:, :0], source, every, lengths, weights)


def step(decoder: Decoder, embedding: Embedding, state: Standing, tokens: Tensor) -> tuple[Tensor, Standing]:
    """One token (B,) further: its features, (B, E), and the state that includes it."""
    batch, length = len(tokens), state.length
    written = state.written.after(length, batch)
    rows = torch.cat((state.rows, torch.arange(batch, device=tokens.device)[:, None]), 1)
    after = Standing(length + 1, written, rows, state.source, state.origin, state.lengths, state.weights)
    if isinstance(state.weights, list):
        return _stepped(decoder, embedding(tokens[:, None], length)[:, 0], after, state.weights), after
    begun = Start(embedding.tokens, embedding.added(length, 1))
    where = {"rows": rows, "source": state.source, "origin": state.origin, "lengths": state.lengths}
    return compiled.step(state.weights, begun, tokens, written=written.tensor, **where), after


def _stepped(decoder: Decoder, features: Tensor, state: Standing, weights: list[tuple[Tensor, Tensor | None]]) -> Tensor:
    """The same of an embedded token (B, E) in plain PyTorch; the state has a place for it."""
    batch, length = len(features), state.length
    first = decoder.layers[0].self_attention
    heads, groups, width = first.heads, first.key_value_heads, first.key_width
    counts = torch.full_like(state.lengths, length)
    turned = compiled.rotary(first)
    angle = None if turned is None else compiled.angles(turned, width, length - 1, features.device)
    stream = Stream(features)
    for layer, projections, mine, theirs in zip(decoder.layers, weights, state.written.tensor, state.source, strict=True):
        stream, read = layer.around_self.enter(stream)
        projected = F.linear(read, *projections)  # (B, (H + 2G)·D): query, key, value
        query = keep(projected, heads, groups, mine[length - 1, :batch], angle)
        context = looks(query, mine[:length], state.rows, counts, groups, compiled.scale(layer.self_attention))
        stream = layer.around_self.leave(stream, _projected(layer.self_attention.output, context.flatten(1)))
        stream, read = layer.around_cross.enter(stream)
        query = _projected(layer.cross_attention.query_projection, read).view(batch, heads, width)
        context = looks(query, theirs.transpose(0, 1), state.origin, state.lengths, groups, compiled.scale(layer.cross_attention))
        stream = layer.around_cross.leave(stream, _projected(layer.cross_attention.output, context.flatten(1)))
        stream, read = layer.around_feed_forward.enter(stream)
        wide = layer.feed_forward.activation(_projected(layer.feed_forward.widen, read))
        stream = layer.around_feed_forward.leave(stream, _projected(layer.feed_forward.narrow, wide))
    return stream.end(decoder.norm)


def _projected(projection: nn.Module | None, features: Tensor) -> Tensor:
    linear = cast(nn.Linear, projection)
    return F.linear(features, linear.weight, linear.bias)
