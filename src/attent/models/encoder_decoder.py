"""The contract between a model that translates and whatever trains it or searches with it.

    memory = model.encode(source, lengths)
    logits = model.output(model.decode(memory, tokens))                       all steps at once: the tokens are known
    state  = model.start(memory); features, state = model.step(state, tokens)      one step at a time: search

Teacher-forced `decode` and repeated `step` compute the same features. Whoever calls `output` may fuse it with the
loss or the search. Attention weights leave a model only through `attent.attention.capture.watch`; the names under which they
arrive say what attends to what: under `encoder` the source attends to itself, `cross_attention` is the target looking
at the source, any other attention of the decoder is the target looking at its own beginning. Row t of these is labelled with the
token produced by step t; `attent.evaluation.forced_decoding` says when it may be about the token read in.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Generic, Protocol, Self, TypeVar

from torch import Tensor, nn

from attent.models.model import Model
from attent.ops import packed_linear
from attent.types import Features, Lengths, Tokens


@dataclass(frozen=True)
class Memory:
    """The encoded source.

    Args:
        features: one vector a source token, (B, Tk, E).
        lengths: how many of the Tk tokens are real, (B,).
    """

    features: Tensor
    lengths: Tensor

    def select(self, rows: Tensor) -> Memory:
        """These rows of the batch, in this order; a row may be named twice."""
        return Memory(self.features[rows], self.lengths[rows])


class State(Protocol):
    """Where a decoder stands in every row of its batch: a value, never changed in place."""

    def select(self, rows: Tensor) -> Self:
        """These rows of the batch, in this order; a row may be named twice (for beam search)."""
        ...

    def reorder(self, rows: Tensor) -> Self:
        """`select` where each row takes what a row with the same source has written: the source's side stays where it is."""
        ...


S = TypeVar("S", bound=State)


class EncoderDecoder(Model, ABC, Generic[S]):
    """A model that reads one sequence and writes another.

    `to_logits` is its last layer, which a loss may fuse with what follows.
    """

    to_logits: nn.Linear

    @property
    def longest(self) -> int | None:
        """The most tokens, padding included, that a sequence may have on either side; None where there is no limit."""
        return self.limit()

    @property
    def rowwise(self) -> bool:
        """Whether, as things stand, every number of a row is the same however many rows there are, be it of encode, step or output."""
        return False

    @abstractmethod
    def encode(self, source: Tokens, lengths: Lengths) -> Memory:
        """The memory of a right-padded source (B, Tk) of which lengths (B,) are real."""

    @abstractmethod
    def decode(self, memory: Memory, tokens: Tokens) -> Features:
        """Features (B, T, E) after BOS and the target up to each token, (B, T): all steps at once."""

    @abstractmethod
    def start(self, memory: Memory) -> S:
        """The state before the first token."""

    @abstractmethod
    def step(self, state: S, tokens: Tensor) -> tuple[Tensor, S]:
        """Features (B, E) after one further token (B,), and the state that includes it."""

    def output(self, features: Tensor) -> Tensor:
        """Logits over the target vocabulary for the token that comes next, (…, E) → (…, V)."""
        return packed_linear.linear(self.to_logits, features)
