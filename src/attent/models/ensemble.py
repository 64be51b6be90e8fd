"""Several encoder–decoders as one, whose distributions are averaged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn

from attent.errors import refuse
from attent.models.model import DecoderState, EncoderDecoder, Memory
from attent.ops.beam_topk import log_mean_softmax
from attent.ops.search import PackedDecoder
from attent.types import Features, Lengths, StepFeatures, Tokens


@dataclass(frozen=True)
class EnsembleMemory(Memory):
    """The source as encoded by every model; `features` are those of the first."""

    memories: tuple[Memory, ...]

    def select(self, rows: Tensor) -> EnsembleMemory:
        """Return these rows of the batch, in this order; rows may repeat."""
        return memory_of([memory.select(rows) for memory in self.memories])


def memory_of(memories: Sequence[Memory]) -> EnsembleMemory:
    """Return the memories of several models as one."""
    return EnsembleMemory(memories[0].features, memories[0].lengths, tuple(memories))


@dataclass(frozen=True)
class EnsembleState:
    """The decoder states of every model."""

    states: tuple[DecoderState, ...]

    def select(self, rows: Tensor) -> EnsembleState:
        """Return these rows of the batch, in this order; rows may repeat."""
        return EnsembleState(tuple(state.select(rows) for state in self.states))

    def reorder(self, rows: Tensor) -> EnsembleState:
        """Return the history of these rows like `select`, while every row keeps its own source."""
        return EnsembleState(tuple(state.reorder(rows) for state in self.states))


class Ensemble(EncoderDecoder[EnsembleState]):
    """The mean of the next token's distributions of models with the same vocabularies.

        p(y_t | y_<t, X) = 1/M Σ_m p_m(y_t | y_<t, X)

    Its features are those of all models, side by side. Source: Sutskever et al. (2014), §3.6, arXiv 1409.3215.

    Args:
        models: at least one, in evaluation mode.

    Raises:
        ArgumentError: there is no model, or their vocabularies differ in size.
    """

    def __init__(self, models: Sequence[EncoderDecoder[Any]]) -> None:
        super().__init__()
        sizes = sorted({model.to_logits.out_features for model in models})
        refuse(
            (not sizes, "an ensemble needs at least one model"),
            (len(sizes) > 1, f"the models of an ensemble must share a vocabulary, got {sizes} tokens"),
        )
        self.models = nn.ModuleList(models)

    @property
    def members(self) -> tuple[EncoderDecoder[Any], ...]:
        """The models."""
        return cast("tuple[EncoderDecoder[Any], ...]", tuple(self.models))

    @property
    def batch_invariant(self) -> bool:
        return all(model.batch_invariant for model in self.members)

    def encode(self, source: Tensor, lengths: Lengths) -> EnsembleMemory:
        return memory_of([model.encode(source, lengths) for model in self.members])

    def decode(self, memory: EnsembleMemory, tokens: Tokens) -> Features:  # pyright: ignore[reportIncompatibleMethodOverride]
        features = [model.decode(own, tokens) for model, own in zip(self.members, memory.memories, strict=True)]
        return torch.cat(features, -1)

    def start(self, memory: EnsembleMemory) -> EnsembleState:  # pyright: ignore[reportIncompatibleMethodOverride]
        return EnsembleState(tuple(model.start(own) for model, own in zip(self.members, memory.memories, strict=True)))

    def step(self, state: EnsembleState, tokens: Tensor) -> tuple[StepFeatures, EnsembleState]:
        steps = [model.step(own, tokens) for model, own in zip(self.members, state.states, strict=True)]
        return torch.cat([features for features, _ in steps], -1), EnsembleState(tuple(own for _, own in steps))

    def packed_decoders(self, source: Tensor, lengths: Lengths, steps: int) -> Sequence[PackedDecoder]:
        decoders = [model.packed_decoders(source, lengths, steps) for model in self.members]
        return [decoder for own in decoders for decoder in own] if all(decoders) else ()

    def output(self, features: Tensor) -> Tensor:
        """Return the logarithms (…, V) of the mean probabilities of the next token, from features (…, E)."""
        widths = [model.to_logits.in_features for model in self.members]
        parts = zip(self.members, features.split(widths, -1), strict=True)
        return log_mean_softmax(torch.stack([model.output(part.contiguous()).float() for model, part in parts]))
