"""The decoder of a Transformer one token at a time, as a search runs it: dot products, softmax, float32, nobody watching.

A step is a few dozen small products, and what surrounds them in the general way costs more than they do. Here keys and
values stay where they were written, and a search that moves its hypotheses moves the numbers of rows alone; padding is
told by lengths; queries, keys and values come of one product.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attent.attention.kernels.looks import keep, looks
from attent.attention.multihead import MultiHeadAttention
from attent.attention.normalisers.softmax import Softmax
from attent.attention.parts import DotScore
from attent.attention.positions.rotary import Rotary
from attent.attention.scores.dot import Dot
from attent.attention.scores.scaled_dot import ScaledDot
from attent.attention.watch import watched
from attent.layers.residual import Stream
from attent.models.encoder_decoder import Memory
from attent.models.transformer_layers import Decoder

# Room is made for so many tokens at a time: on a CPU what is not written yet takes no memory. And so many positions' angles are computed
# at a time.
ROOM, TURNS = 64, 16


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
        length: tokens written so far, START included.
        written: their keys and values.
        rows: which row holds each of them, (B, length).
        source: every layer's keys and values of the memory, (Tk, S, 2·G·D) each.
        origin: which of the S sources each row reads, (B, 1).
        lengths: how many of the source's tokens are real, (B,).
        weights: every layer's three projections of self-attention as one.
        angles: cosine and sine of what turns queries and keys at TURNS positions, (TURNS, D/2); None where nothing does, or at first.
    """

    length: int
    written: Written
    rows: Tensor
    source: tuple[Tensor, ...]
    origin: Tensor
    lengths: Tensor
    weights: tuple[tuple[Tensor, Tensor | None], ...]
    angles: tuple[Tensor, Tensor] | None = None

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
    if not torch.is_inference_mode_enabled() or decoder.training or watched() or torch.compiler.is_compiling():
        return False
    features = memory.features
    if features.dtype != torch.float32 or torch.is_autocast_enabled(features.device.type) or not features.numel():
        return False
    every = [attention for layer in decoder.layers for attention in (layer.self_attention, layer.cross_attention)]
    # a query that may see nothing is not looked after here
    return bool(every) and all(map(_plain, every)) and bool(memory.lengths.min() > 0)


def _plain(attention: MultiHeadAttention) -> bool:
    position = attention.position
    turned = position is None or (type(position) is Rotary and not position.halves)
    dots = type(attention.score) in (Dot, ScaledDot) and type(attention.normaliser) is Softmax and attention.soft_cap is None
    return turned and dots and isinstance(attention.output, nn.Linear) and attention.key_width == attention.value_width


def start(decoder: Decoder, memory: Memory) -> Standing:
    """The state before the first token."""
    features, lengths = memory.features, memory.lengths.long()
    cross = [layer.cross_attention for layer in decoder.layers]
    source = tuple(torch.cat((each.key_projection(features), each.value_projection(features)), -1).transpose(0, 1) for each in cross)
    every = torch.arange(len(features), device=features.device)[:, None]
    # how many rows there will be is known when the first token comes
    nothing = Written(features.new_empty(len(source), 0, 0, source[0].shape[2]))
    return Standing(0, nothing, every[:, :0], source, every, lengths, tuple(_joined(layer.self_attention) for layer in decoder.layers))


def _joined(attention: MultiHeadAttention) -> tuple[Tensor, Tensor | None]:
    """The weight and the bias of all three projections as one."""
    projections = (attention.query_projection, attention.key_projection, attention.value_projection)
    weight = _together([each.weight for each in projections], attention)
    return weight, None if projections[0].bias is None else _together([each.bias for each in projections], attention)


def _together(parts: list[Tensor], attention: MultiHeadAttention) -> Tensor:
    if attention.position is not None:
        parts = [*(_halved(part, attention.key_width) for part in parts[:2]), parts[2]]
    return torch.cat(parts)


def _halved(rows: Tensor, width: int) -> Tensor:
    """Each head's rows with the first of every pair before all of the second; a product of two heads does not change."""
    return rows.unflatten(0, (-1, width // 2, 2)).transpose(1, 2).flatten(0, 2)


def step(decoder: Decoder, state: Standing, features: Tensor) -> tuple[Tensor, Standing]:
    """One embedded token (B, E) further: its features, (B, E), and the state that includes it."""
    batch, length = len(features), state.length
    first = decoder.layers[0].self_attention
    heads, groups, width = first.heads, first.key_value_heads, first.key_width
    written = state.written.after(length, batch)
    angles = state.angles if length % TURNS else _angles(first, length, features)
    rows = torch.cat((state.rows, torch.arange(batch, device=features.device)[:, None]), 1)
    counts = torch.full_like(state.lengths, length + 1)
    angle = None if angles is None else (angles[0][length % TURNS], angles[1][length % TURNS])
    stream = Stream(features)
    for layer, weights, mine, theirs in zip(decoder.layers, state.weights, written.tensor, state.source, strict=True):
        stream, read = layer.around_self.enter(stream)
        projected = F.linear(read, *weights)  # (B, (H + 2G)·D): query, key, value
        query = keep(projected, heads, groups, mine[length, :batch], angle)
        context = looks(query, mine[: length + 1], rows, counts, groups, _scale(layer.self_attention))
        stream = layer.around_self.leave(stream, _projected(layer.self_attention.output, context.flatten(1)))
        stream, read = layer.around_cross.enter(stream)
        query = _projected(layer.cross_attention.query_projection, read).view(batch, heads, width)
        context = looks(query, theirs, state.origin, state.lengths, groups, _scale(layer.cross_attention))
        stream = layer.around_cross.leave(stream, _projected(layer.cross_attention.output, context.flatten(1)))
        stream, read = layer.around_feed_forward.enter(stream)
        wide = layer.feed_forward.activation(_projected(layer.feed_forward.widen, read))
        stream = layer.around_feed_forward.leave(stream, _projected(layer.feed_forward.narrow, wide))
    return stream.end(decoder.norm), replace(state, length=length + 1, written=written, rows=rows, angles=angles)


def _angles(attention: MultiHeadAttention, start: int, like: Tensor) -> tuple[Tensor, Tensor] | None:
    """Cosine and sine, (TURNS, D/2) each, at the positions from start on; None where nothing is turned."""
    if attention.position is None:
        return None
    ones = like.new_tensor([1.0, 0.0]).repeat(attention.key_width // 2).expand(1, 1, TURNS, -1)
    turned = attention.position.turn(ones, torch.arange(start, start + TURNS, device=like.device)[None])
    cosine, sine = turned[0, 0].unflatten(-1, (-1, 2)).permute(2, 0, 1).contiguous().unbind()
    return cosine, sine


def _projected(projection: nn.Module | None, features: Tensor) -> Tensor:
    linear = cast(nn.Linear, projection)
    return F.linear(features, linear.weight, linear.bias)


def _scale(attention: MultiHeadAttention) -> float:
    return cast(DotScore, attention.score).scale(attention.key_width)
