"""Greedy and beam search with a packed Transformer, all steps in one call of the compiled library.

`attent.search.search` is the reference: it runs the same steps one at a time and finds the same tokens with the same
log-probabilities.
"""

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
        state: the state before the first token, one row per source.
        embedding: the embedding of tokens and of every position that the search can reach.
        output: the output layer's weights in panels, (V, E), and its bias.
        vocabulary: the size of the vocabulary, V.
        kind: the type of the output layer's weights.
    """

    state: IncrementalState
    embedding: PackedEmbedding
    output: Tensor
    vocabulary: int
    kind: WeightType


class Limits(NamedTuple):
    """Limits on the translations of a batch, one row per sentence.

    Args:
        limits: the maximum number of tokens of each translation, (S,).
        prefixes: the tokens that each translation begins with, padded, (S, P).
        minimum_length: the minimum number of tokens before the end token.
        penalties: the divisors of a hypothesis' log-probability, indexed by its number of tokens, up to the largest
            limit plus the end token.
        prompt_length: the number of leading tokens of each prefix whose log-probability is not counted.
    """

    limits: Tensor
    prefixes: Tensor
    minimum_length: int
    penalties: Sequence[float]
    prompt_length: int = 0


def search(
    decoders: Sequence[PackedDecoder], limits: Limits, beam: int, n_best: int, special: tuple[int, int, int]
) -> list[list[tuple[list[int], float]]]:
    """Return up to n_best hypotheses of each sentence as (tokens, log-probability), best first.

    Args:
        decoders: the packed decoders with their states of the batch; the distributions of several are averaged.
        limits: the limits of each sentence.
        beam: the number of hypotheses, K.
        n_best: the number of hypotheses to return, at most K.
        special: the ids of PAD, BOS and EOS.

    Raises:
        ArgumentError: a prefix has an id outside the vocabulary.
        MemoryError: the library ran out of memory.
    """
    prefixes, vocabulary = limits.prefixes, decoders[0].vocabulary
    if prefixes.numel() and not 0 <= int(prefixes.min()) <= int(prefixes.max()) < vocabulary:
        raise ArgumentError(
            f"a prefix has ids from 0 to {vocabulary - 1}, got {int(prefixes.min())} to {int(prefixes.max())}"
        )
    sentences, steps = len(limits.limits), len(limits.penalties) - 1
    tokens, lengths = (
        torch.empty(sentences, n_best, steps, dtype=torch.int64),
        torch.empty(sentences, n_best, dtype=torch.int64),
    )
    totals = torch.empty(sentences, n_best)
    addresses, sizes, factors = [], [], []
    for state, (table, scale, positions, angles), output, _, kind in decoders:
        tensors = table, positions, *angles, state.stack.weights, output, state.memory
        addresses.append([0 if tensor is None else tensor.data_ptr() for tensor in tensors])
        sizes.append([state.memory.shape[2], native_kind(kind), *state.stack.sizes])
        factors.append([scale, *state.stack.numbers])
    operands = (*map(torch.tensor, (addresses, sizes)), torch.tensor(factors, dtype=torch.float32))
    bounds = (
        decoders[0].state.lengths,
        limits.limits.long().contiguous(),
        prefixes.long().contiguous(),
        torch.tensor(limits.penalties, dtype=torch.float64),
    )
    numbers = (len(decoders), sentences, vocabulary, beam, n_best, limits.minimum_length, prefixes.shape[1])
    others = (limits.prompt_length, steps, *special)
    native.run("attent_transformer_search", (*operands, *bounds, tokens, lengths, totals), *numbers, *others)
    return [
        [(row[:length].tolist(), total) for row, length, total in zip(rows, ends, sums, strict=True) if length >= 0]
        for rows, ends, sums in zip(tokens.numpy(), lengths.tolist(), totals.tolist(), strict=True)
    ]
