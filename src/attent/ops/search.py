"""Greedy and beam search by a packed Transformer, all steps in one call of the compiled library.

`attent.search.search` is the reference: it takes the same steps one at a time and finds the same tokens with the same
log-probabilities.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from attent.errors import ArgumentError
from attent.ops import native
from attent.ops.packed_linear import WeightType, native_kind
from attent.ops.transformer import IncrementalState, PackedEmbedding


class PackedDecoder(NamedTuple):
    """A decoder before the first token of a batch.

    Args:
        state: before the first token, each row its own source.
        embedding: of tokens, and of every position that the search may reach.
        output: the output layer's weights in panels, (V, E), and its bias.
        vocabulary: V.
        kind: of the output layer's weights.
    """

    state: IncrementalState
    embedding: PackedEmbedding
    output: Tensor
    vocabulary: int
    kind: WeightType


class Limits(NamedTuple):
    """Limits of the translations of a batch, a row a sentence.

    Args:
        limits: the most tokens of each translation, (S,).
        prefixes: the tokens that each begins with, padded, (S, P).
        minimum_length: tokens before the end.
        penalties: the divisor of a hypothesis' log-probability by its number of tokens, up to the largest limit and the
            end token.
        prompt_length: tokens of every prefix that count no log-probability.
    """

    limits: Tensor
    prefixes: Tensor
    minimum_length: int
    penalties: Sequence[float]
    prompt_length: int = 0


def search(
    decoder: PackedDecoder, limits: Limits, beam: int, n_best: int, special: tuple[int, int, int]
) -> list[list[tuple[list[int], float]]]:
    """Return the n_best hypotheses of each sentence, tokens and log-probability, the best first.

    Fewer if there are no more.

    Args:
        decoder: of the batch.
        limits: of each sentence.
        beam: the number of hypotheses, K.
        n_best: at most K.
        special: PAD, BOS and EOS.

    Raises:
        ArgumentError: a prefix has an id outside the vocabulary.
        MemoryError: the library ran out of memory.
    """
    prefixes = limits.prefixes
    if prefixes.numel() and not 0 <= int(prefixes.min()) <= int(prefixes.max()) < decoder.vocabulary:
        raise ArgumentError(
            f"a prefix is of ids from 0 to {decoder.vocabulary - 1}, got {int(prefixes.min())} to {int(prefixes.max())}"
        )
    state, (table, scale, positions, angles), output, vocabulary, kind = decoder
    sentences, steps = len(limits.limits), len(limits.penalties) - 1
    tokens, lengths = (
        torch.empty(sentences, n_best, steps, dtype=torch.int64),
        torch.empty(sentences, n_best, dtype=torch.int64),
    )
    totals = torch.empty(sentences, n_best)
    operands = (table, positions, *angles, state.stack.weights, output, state.memory, state.lengths)
    bounds = (
        limits.limits.long().contiguous(),
        prefixes.long().contiguous(),
        torch.tensor(limits.penalties, dtype=torch.float64),
    )
    sizes = (
        sentences,
        state.memory.shape[2],
        vocabulary,
        native_kind(kind),
        beam,
        n_best,
        limits.minimum_length,
        prefixes.shape[1],
        limits.prompt_length,
        steps,
        *special,
    )
    numbers = (*sizes, *state.stack.sizes, scale, *state.stack.numbers)
    native.run("attent_transformer_search", (*operands, *bounds, tokens, lengths, totals), *numbers)
    return [
        [(row[:length].tolist(), total) for row, length, total in zip(rows, ends, sums, strict=True) if length >= 0]
        for rows, ends, sums in zip(tokens.numpy(), lengths.tolist(), totals.tolist(), strict=True)
    ]
