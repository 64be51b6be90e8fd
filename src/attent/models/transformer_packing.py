"""A Transformer's modules read into packed weights, with which `attent.ops.transformer` encodes and decodes on a CPU.

This replaces the modules in inference mode for dot products, softmax and float32, while nothing watches. Keys and values stay where
they are written: a search that reorders its hypotheses moves row indices only.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attent.attention.base import DotScore
from attent.attention.capture.watch import is_watched
from attent.attention.multihead import MultiHeadAttention
from attent.attention.normalizers.softmax import Softmax
from attent.attention.positions.rotary import Rotary
from attent.attention.scores.dot import Dot
from attent.attention.scores.scaled_dot import ScaledDot
from attent.models.model import Memory
from attent.models.transformer_layers import Decoder, DecoderLayer, Embedding, Encoder, EncoderLayer
from attent.ops import packed_linear, transformer
from attent.ops.eligibility import can_run_native
from attent.ops.transformer import PackedEmbedding, PackedStack

# Positions for which rotary angles are computed at a time.
ANGLE_BLOCK = 16
# Positions by which a buffer grows; on a CPU memory that is not written yet costs nothing.
BUFFER_BLOCK = 32


class KVBuffer:
    """Every layer's keys and values of the target, with capacity for more, (L, C, S, 2·G·D).

    Args:
        tensor: the buffer.
        length: positions written. A state with fewer positions that takes a step writes into a copy.
    """

    def __init__(self, tensor: Tensor, length: int = 0) -> None:
        self.tensor, self.length = tensor, length

    def reserve(self, length: int, rows: int) -> KVBuffer:
        """Return a buffer in which this many rows can write position `length`: this one, or a larger copy."""
        layers, capacity, row_capacity, width = self.tensor.shape
        if length == self.length and length < capacity and rows <= row_capacity:
            self.length += 1
            return self
        shape = layers, length // BUFFER_BLOCK * BUFFER_BLOCK + BUFFER_BLOCK, max(rows, row_capacity), width
        copy = KVBuffer(self.tensor.new_empty(shape), length + 1)
        copy.tensor[:, :length, :row_capacity] = self.tensor[:, :length]
        return copy


@dataclass(frozen=True)
class IncrementalState:
    """Immutable decoder state. `select` permutes row indices only; cached keys and values are never copied.

    Args:
        length: tokens read, BOS included.
        buffer: their keys and values.
        rows: the buffer's row of each of them, (B, length).
        memory: every layer's keys and values of the memory, (L, S, Tk, 2·G·D).
        memory_rows: the index in S of each row's memory, (B, 1).
        lengths: the number of real source tokens, (B,).
        stack: the decoder's packed weights.
    """

    length: int
    buffer: KVBuffer
    rows: Tensor
    memory: Tensor
    memory_rows: Tensor
    lengths: Tensor
    stack: PackedStack

    def select(self, rows: Tensor) -> IncrementalState:
        """Return these rows of the batch, in this order; rows may repeat."""
        indices = (tensor.index_select(0, rows) for tensor in (self.rows, self.memory_rows, self.lengths))
        return replace(self, **dict(zip(("rows", "memory_rows", "lengths"), indices, strict=True)))

    def reorder(self, rows: Tensor) -> IncrementalState:
        """Return these rows' pasts, as `select` does, where every row keeps its source."""
        return replace(self, rows=self.rows.index_select(0, rows))


def is_packable(stack: Encoder | Decoder) -> bool:
    """Return whether the packed stack can replace the modules."""
    if stack.training or is_watched() or _has_hooks(stack) or not all(map(_is_unmodified, stack.layers)):
        return False
    attentions = [attention for layer in stack.layers for attention in _attentions(layer)]
    return can_run_native(stack.layers[0].feed_forward.widen.weight, in_inference=True) and all(map(_is_plain, attentions))


def _is_plain(attention: MultiHeadAttention) -> bool:
    """Return whether an attention is dot products under softmax, with rotary positions at most."""
    position = attention.position
    has_plain_position = position is None or (type(position) is Rotary and position.interleaved)
    is_dot = type(attention.score) in (Dot, ScaledDot) and type(attention.normaliser) is Softmax and attention.soft_cap is None
    return has_plain_position and is_dot and isinstance(attention.output, nn.Linear) and attention.key_width == attention.value_width


def _is_unmodified(layer: EncoderLayer | DecoderLayer) -> bool:
    """Return whether a layer has neither replaced modules nor hooks."""
    modules = [layer.feed_forward.widen, layer.feed_forward.narrow]
    for attention in _attentions(layer):
        modules += [attention, attention.query_projection, attention.key_projection, attention.value_projection, attention.output]
    if _has_hooks(layer) or _has_hooks(layer.feed_forward):
        return False
    return all(type(module) in (nn.Linear, MultiHeadAttention) and not _has_hooks(module) for module in modules)


def _has_hooks(module: nn.Module) -> bool:
    return bool(module._forward_hooks or module._forward_pre_hooks)


def _attentions(layer: EncoderLayer | DecoderLayer) -> Sequence[MultiHeadAttention]:
    return (layer.self_attention, layer.cross_attention) if isinstance(layer, DecoderLayer) else (layer.self_attention,)


def pack(stack: Encoder | Decoder) -> PackedStack:
    """Return the packed weights of a stack; they are cached until a parameter changes."""
    layer, attention, feed_forward = stack.layers[0], stack.layers[0].self_attention, stack.layers[0].feed_forward
    heads = attention.heads, attention.key_value_heads, attention.key_width
    flags = isinstance(stack.norm, nn.LayerNorm), feed_forward.activation is F.gelu
    sizes = feed_forward.widen.in_features, *heads, feed_forward.widen.out_features, len(stack.layers), *flags
    scale = cast(DotScore, attention.score).scale(attention.key_width)
    return PackedStack(packed_linear.packed_weights(stack, lambda: _pieces(stack)), sizes, (scale, _first_norm(layer).eps))


def _first_norm(layer: EncoderLayer | DecoderLayer) -> nn.LayerNorm:
    return (layer.around_self if isinstance(layer, DecoderLayer) else layer.around_attention).norm


def _pieces(stack: Encoder | Decoder) -> Iterator[Tensor]:
    for layer in stack.layers:
        attention = layer.self_attention
        rotary_width = 0 if attention.position is None else attention.key_width
        projections = attention.query_projection, attention.key_projection, attention.value_projection
        yield from _norm(_first_norm(layer))
        yield from packed_linear.panels(*_concatenated(projections, [rotary_width, rotary_width, 0]))
        yield from _linear(attention.output)
        if isinstance(layer, DecoderLayer):
            yield from _norm(layer.around_cross.norm)
            yield from _linear(layer.cross_attention.query_projection)
            yield from _linear(layer.cross_attention.output)
        yield from _norm(layer.around_feed_forward.norm)
        yield from _linear(layer.feed_forward.widen)
        yield from _linear(layer.feed_forward.narrow)
    if isinstance(stack.norm, nn.LayerNorm):
        yield from _norm(stack.norm)
    # `memory_keys_values` reads these from the end.
    for layer in stack.layers:
        if isinstance(layer, DecoderLayer):
            projections = layer.cross_attention.key_projection, layer.cross_attention.value_projection
            yield from packed_linear.panels(*_concatenated(projections, [0, 0]))


def _norm(norm: nn.LayerNorm) -> Iterator[Tensor]:
    for parameter in (norm.weight, norm.bias):
        yield packed_linear.vector(parameter, norm.normalized_shape[0])


def _linear(layer: nn.Module | None) -> list[Tensor]:
    linear = cast(nn.Linear, layer)
    return packed_linear.panels(linear.weight, linear.bias)


def _concatenated(projections: Sequence[nn.Linear], rotary_widths: Sequence[int]) -> tuple[Tensor, Tensor | None]:
    """Concatenate projections to one weight and bias; a rotary width is the head width of a projection to be rotated, else 0."""

    def concatenate(tensors: Sequence[Tensor]) -> Tensor:
        return torch.cat([_split_pairs(rows, width) if width else rows for rows, width in zip(tensors, rotary_widths, strict=True)])

    biases = [projection.bias for projection in projections]
    return concatenate([projection.weight for projection in projections]), None if biases[0] is None else concatenate(biases)


def _split_pairs(rows: Tensor, width: int) -> Tensor:
    """Reorder each head's rows to put the first of every pair before all the second ones; q·k does not change."""
    return rows.unflatten(0, (-1, width // 2, 2)).transpose(1, 2).flatten(0, 2)


def _packed_embedding(embedding: Embedding, attention: MultiHeadAttention, start: int, count: int, angle_count: int) -> PackedEmbedding:
    tokens, positions = embedding.tokens, embedding.position_features(start, count)
    if attention.position is None:
        return PackedEmbedding(tokens.weight, tokens.scale, positions, (None, None))
    base, first = cast(Rotary, attention.position).base, start // ANGLE_BLOCK * ANGLE_BLOCK
    cosine, sine = _cosine_and_sine(base, attention.key_width, first, angle_count, tokens.weight.device)
    return PackedEmbedding(tokens.weight, tokens.scale, positions, (cosine[start - first :], sine[start - first :]))


@lru_cache(maxsize=64)
def _cosine_and_sine(base: float, width: int, start: int, count: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return cosine and sine of rotary positions from start on, (T, D/2)."""
    ones = torch.tensor([1.0, 0.0], device=device).repeat(width // 2).expand(1, 1, count, -1)
    rotated = Rotary(base).rotate(ones, torch.arange(start, start + count, device=device)[None])
    cosine, sine = rotated[0, 0].unflatten(-1, (-1, 2)).permute(2, 0, 1).contiguous().unbind()
    return cosine, sine


def encode(encoder: Encoder, embedding: Embedding, source: Tensor, lengths: Tensor) -> Tensor:
    """Return the memory's features (B, Tk, E) of a right-padded source (B, Tk) of which lengths (B,) are real; zeros at padding."""
    length = source.shape[1]
    angle_count = packed_linear.padded(length)
    packed = _packed_embedding(embedding, encoder.layers[0].self_attention, 0, length, angle_count)
    return transformer.encode(pack(encoder), packed, source, lengths)


def start(decoder: Decoder, memory: Memory) -> IncrementalState | None:
    """Return the state before the first token, or None if the packed decoder cannot continue from this memory."""
    features = memory.features
    # The library expects every query to see a key.
    if not is_packable(decoder) or features.dtype != torch.float32 or not features.numel() or not bool(memory.lengths.min() > 0):
        return None
    lengths, stack = memory.lengths.long().contiguous(), pack(decoder)
    # Columns that are padding in every row are left out.
    keys_values = transformer.memory_keys_values(stack, features[:, : int(lengths.max())])
    rows = torch.arange(len(features), device=features.device)[:, None]
    # The first token determines the number of rows.
    buffer = KVBuffer(features.new_empty(len(keys_values), 0, 0, keys_values.shape[-1]))
    return IncrementalState(0, buffer, rows[:, :0], keys_values, rows, lengths, stack)


def decode_step(decoder: Decoder, embedding: Embedding, state: IncrementalState, tokens: Tensor) -> tuple[Tensor, IncrementalState]:
    """Return the features (B, E) of one more token (B,), and the state that includes it."""
    length, batch = state.length, len(tokens)
    rows = torch.cat((state.rows, torch.arange(batch, device=tokens.device)[:, None]), 1)
    after = replace(state, length=length + 1, buffer=state.buffer.reserve(length, batch), rows=rows)
    features = transformer.decode_step(
        state.stack,
        _packed_embedding(embedding, decoder.layers[0].self_attention, length, 1, ANGLE_BLOCK),
        tokens,
        keys_values=after.buffer.tensor,
        rows=rows,
        memory=state.memory,
        memory_rows=state.memory_rows,
        lengths=state.lengths,
    )
    return features, after
