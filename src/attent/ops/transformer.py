"""A Transformer's encoder and decoding step, each in one call of the compiled library.

Every row passes through all layers separately and without padding, so that its numbers do not depend on the rest of the
batch. Keys and values are never moved: a search that reorders its hypotheses only changes row indices.
`attent.models.transformer_packing` converts modules into these operands; the modules are the reference.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor

from attent.ops import native, packed_linear
from attent.ops.eligibility import can_run_native

# Options of a stack, as the library numbers them: a norm ends it; a recurrent unit takes the place of self-attention.
PRE, RECURRENT = 1, 2
# Positions by which a buffer grows; on a CPU, memory that has not been written to costs nothing.
BUFFER_BLOCK = 32

S = TypeVar("S")


class PackedStack(NamedTuple):
    """The concatenated weights of a stack of layers, and its sizes.

    Args:
        weights: bytes in the order in which the library reads them; every layer's key and value projections of the
            memory come last.
        sizes: E, H, G, D, the feed-forward width, the number of layers, the sum of its options, the index of the
            activation, the type of the weights (`packed_linear.native_kind`).
        numbers: the factor on q·k, and the epsilon of layer normalization.
    """

    weights: Tensor
    sizes: tuple[int, ...]
    numbers: tuple[float, float]


class PackedEmbedding(NamedTuple):
    """The embedding of tokens, scale · table[token] + positions, and the angles of rotary positions.

    Args:
        table: (V, E), or packed (`packed_linear.table`).
        scale: the factor on a row of the table.
        positions: (T, E), or None.
        angles: cosine and sine, (T, D/2), or None.
    """

    table: Tensor
    scale: float
    positions: Tensor | None
    angles: tuple[Tensor, Tensor] | tuple[None, None]


class KVBuffer:
    """Every layer's keys and values of the target, with capacity for more, (L, C, S, 2·G·D).

    Of recurrent units, it holds the states, (L, C, S, E).

    Args:
        tensor: the buffer.
        length: the number of positions written. A step from a state with fewer positions writes into a copy.
    """

    def __init__(self, tensor: Tensor, length: int = 0) -> None:
        self.tensor, self.length = tensor, length

    def reserve(self, length: int, rows: int) -> KVBuffer:
        """Return a buffer with room for this many rows at position `length`: this one, or a larger copy."""
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
        length: the number of tokens read, including BOS.
        buffer: the keys and values of these tokens.
        rows: the buffer's row for each token, (B, length).
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
        """Return the history of these rows like `select`, while every row keeps its own source."""
        return replace(self, rows=self.rows.index_select(0, rows))

    def extend(self, batch: int) -> IncrementalState:
        """Return the state with room for one more token of this many rows."""
        rows = torch.cat((self.rows, torch.arange(batch, device=self.rows.device)[:, None]), 1)
        return replace(self, length=self.length + 1, buffer=self.buffer.reserve(self.length, batch), rows=rows)


def encode(
    weight: Tensor,
    operands: Callable[[], tuple[PackedStack, PackedEmbedding]],
    token_ids: Tensor,
    lengths: Tensor,
    reference: Callable[[], Tensor],
) -> Tensor:
    """Return the features (B, T, E) of right-padded tokens (B, T), given the numbers of real tokens, lengths (B,).

    The library returns zeros at padding.

    Args:
        weight: a weight of the encoder; the library needs float32 on a CPU, in inference mode.
        operands: packs the encoder and the embedding, if the library is used.
        token_ids: the tokens.
        lengths: the number of real tokens.
        reference: computes the same with modules.
    """
    if not token_ids.numel() or not can_run_native(weight, in_inference=True):
        return reference()
    stack, (table, scale, positions, angles) = operands()
    batch, length = token_ids.shape
    features = torch.zeros(batch, length, stack.sizes[0])
    tensors = (_int64(token_ids), table, positions, *angles, stack.weights, _int64(lengths), features)
    native.run("attent_transformer_encoder", tensors, batch, length, *stack.sizes, scale, *stack.numbers)
    return features


def start(
    weight: Tensor, pack: Callable[[], PackedStack], memory: Tensor, lengths: Tensor, reference: Callable[[], S]
) -> IncrementalState | S:
    """Return the decoder's state before the first token.

    Args:
        weight: a weight of the decoder; the library needs float32 on a CPU, in inference mode.
        pack: packs the decoder, if the library is used.
        memory: the encoder's features, (B, Tk, E).
        lengths: the number of real positions of the memory, (B,). The library expects every query to see a key.
        reference: returns the state of the modules instead.
    """
    if not memory.numel() or not can_run_native(weight, memory, in_inference=True) or not bool(lengths.min() > 0):
        return reference()
    lengths, stack = _int64(lengths), pack()
    # Columns that are padding in every row are left out.
    keys_values = memory_keys_values(stack, memory[:, : int(lengths.max())])
    rows = torch.arange(len(memory), device=memory.device)[:, None]
    # The first token determines the number of rows.
    width = stack.sizes[0] if stack.sizes[6] & RECURRENT else keys_values.shape[-1]
    buffer = KVBuffer(memory.new_empty(len(keys_values), 0, 0, width))
    return IncrementalState(0, buffer, rows[:, :0], keys_values, rows, lengths, stack)


def start_without_memory(
    weight: Tensor, pack: Callable[[], PackedStack], rows: int, reference: Callable[[], S]
) -> IncrementalState | S:
    """Return the state before the first token of a decoder that attends to no source.

    Args:
        weight: a weight of the decoder; the library needs float32 on a CPU, in inference mode.
        pack: packs the decoder, if the library is used.
        rows: the number of texts.
        reference: returns the state of the modules instead.
    """
    if not rows or not can_run_native(weight, in_inference=True):
        return reference()
    stack = pack()
    _, _, groups, head, _, layers, *_ = stack.sizes
    memory = weight.new_empty(layers, 0, 0, 2 * groups * head)
    memory_rows = torch.zeros(rows, 1, dtype=torch.int64, device=weight.device)
    return IncrementalState(0, KVBuffer(memory), memory_rows[:, :0], memory, memory_rows, memory_rows[:, 0], stack)


def memory_keys_values(stack: PackedStack, features: Tensor) -> Tensor:
    """Return every layer's keys and values of the memory (B, Tk, E), (L, B, Tk, 2·G·D)."""
    features = features.contiguous()
    width, _, groups, head, _, layers, *_, kind = stack.sizes
    columns, kind = 2 * groups * head, packed_linear.kind_of_native(kind)
    size = packed_linear.product_size(width, columns, kind)
    projections = stack.weights[len(stack.weights) - layers * size :].view(layers, size)
    result = features.new_empty(layers, *features.shape[:-1], columns)
    for projection, to in zip(projections, result, strict=True):
        packed_linear.product(projection, features, to, kind)
    return result


def decode_step(
    embedding: PackedEmbedding, state: IncrementalState, token_ids: Tensor
) -> tuple[Tensor, IncrementalState]:
    """Return the features (B, E) of one more token (B,), and the state that includes it.

    The embedding must be that of the token's position.
    """
    batch, stack, memory, (table, scale, positions, angles) = len(token_ids), state.stack, state.memory, embedding
    state = state.extend(batch)
    keys_values, rows, features = state.buffer.tensor, state.rows, torch.empty(batch, stack.sizes[0])
    caches = (keys_values, rows, state.memory_rows, state.lengths, memory)
    tensors = (_int64(token_ids), table, positions, *angles, stack.weights, *caches, features)
    layer_stride, position_stride, row_stride, _ = keys_values.stride()
    strides = (
        batch,
        state.length - 1,
        rows.stride(0),
        layer_stride,
        row_stride,
        position_stride,
        memory.shape[1],
        memory.shape[2],
    )
    native.run("attent_transformer_step", tensors, *strides, *stack.sizes, scale, *stack.numbers)
    return features, state


def _int64(numbers: Tensor) -> Tensor:
    return numbers.long().contiguous()
