"""A Transformer's encoder, and a decoding step, each in one call of the compiled library.

Every row goes through all layers by itself and without padding, so that its numbers do not depend on the rest of the batch.
`attent.models.transformer_packing` reads modules into these operands.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from attent.ops import native, packed_linear


class PackedStack(NamedTuple):
    """The weights of a stack of layers, end to end, and its sizes.

    Args:
        weights: in the order in which the library reads them, at the end every layer's key and value projections of the memory.
        sizes: E, H, G, D, the feed-forward width, the number of layers, whether a norm ends the stack, whether GELU is the activation.
        numbers: the factor on q·k, and the layer norm's epsilon.
    """

    weights: Tensor
    sizes: tuple[int, ...]
    numbers: tuple[float, float]


class PackedEmbedding(NamedTuple):
    """The embedding of tokens, scale · table[token] + positions, and the angles of rotary positions.

    Args:
        table: (V, E).
        scale: the factor on a row of the table.
        positions: (T, E), or None.
        angles: cosine and sine, (T, D/2), or None.
    """

    table: Tensor
    scale: float
    positions: Tensor | None
    angles: tuple[Tensor, Tensor] | tuple[None, None]


def encode(stack: PackedStack, embedding: PackedEmbedding, token_ids: Tensor, lengths: Tensor) -> Tensor:
    """Return the features (B, T, E) of right-padded tokens (B, T) of which lengths (B,) are real; zeros at padding."""
    batch, length = token_ids.shape
    features = torch.zeros(batch, length, stack.sizes[0])
    table, scale, positions, angles = embedding
    tensors = (_int64(token_ids), table, positions, *angles, stack.weights, _int64(lengths), features)
    native.run("attent_transformer_encoder", tensors, batch, length, *stack.sizes, scale, *stack.numbers)
    return features


def memory_keys_values(stack: PackedStack, features: Tensor) -> Tensor:
    """Return every layer's keys and values of the memory (B, Tk, E), (L, B, Tk, 2·G·D)."""
    features = features.contiguous()
    width, _, groups, head, _, layers, *_ = stack.sizes
    columns = 2 * groups * head
    size = (width + 1) * packed_linear.padded(columns)
    projections = stack.weights[len(stack.weights) - layers * size :].view(layers, size)
    result = features.new_empty(layers, *features.shape[:-1], columns)
    for projection, to in zip(projections, result, strict=True):
        packed_linear.product(projection, features, to)
    return result


def decode_step(
    stack: PackedStack,
    embedding: PackedEmbedding,
    token_ids: Tensor,
    *,
    keys_values: Tensor,
    rows: Tensor,
    memory: Tensor,
    memory_rows: Tensor,
    lengths: Tensor,
) -> Tensor:
    """Return the features (B, E) of the next token (B,), and write its keys and values.

    Args:
        stack: the decoder.
        embedding: of this position.
        token_ids: the tokens.
        keys_values: every layer's keys and values of the target, (L, C, S, 2·G·D).
        rows: the index in S of each position's keys and values, (B, t + 1); the last column is where this step writes.
        memory: every layer's keys and values of the memory, (L, S, Tk, 2·G·D).
        memory_rows: the index in S of each row's memory, (B, 1).
        lengths: the number of real keys in each row's memory, (B,).
    """
    batch, length = rows.shape
    features = torch.empty(batch, stack.sizes[0])
    table, scale, positions, angles = embedding
    tensors = (_int64(token_ids), table, positions, *angles, stack.weights, keys_values, rows, memory_rows, lengths, memory, features)
    layer_stride, position_stride, row_stride, _ = keys_values.stride()
    strides = (batch, length - 1, rows.stride(0), layer_stride, row_stride, position_stride, memory.shape[1], memory.shape[2])
    native.run("attent_transformer_step", tensors, *strides, *stack.sizes, scale, *stack.numbers)
    return features


def _int64(numbers: Tensor) -> Tensor:
    return numbers.long().contiguous()
