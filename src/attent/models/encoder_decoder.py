"""The contract between a model that translates and whatever trains it or searches with it.

    memory = model.encode(source, lengths)
    logits = model.output(model.decode(memory, tokens))                       all steps at once: the tokens are known
    state  = model.start(memory); features, state = model.step(state, tokens)      one step at a time: search

Teacher-forced `decode` and repeated `step` compute the same features. Whoever calls `output` may fuse it with the
loss or the search. Attention weights leave a model only through `attent.attention.watch`; the names under which they
arrive say what attends to what: under `encoder` the source attends to itself, `cross_attention` is the target looking
at the source, any other attention of the decoder is the target looking at its own beginning.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol, Self, TypeVar

from torch import Tensor, nn

from attent.axes import Features, Lengths, Tokens


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


S = TypeVar("S", bound=State)


class EncoderDecoder(Protocol[S]):
    """A model that reads one sequence and writes another, and the part of `nn.Module` that training needs."""

    def encode(self, source: Tokens, lengths: Lengths) -> Memory:
        """The memory of a padded source (B, Tk) of which lengths (B,) are real."""
        ...

    def decode(self, memory: Memory, tokens: Tokens) -> Features:
        """Features (B, T, E) from which token t + 1 is told, given START and the target up to token t, (B, T)."""
        ...

    def start(self, memory: Memory) -> S:
        """The state before the first token."""
        ...

    def step(self, state: S, tokens: Tensor) -> tuple[Tensor, S]:
        """Features (B, E) from which the next token is told, given the last one (B,), and the state after it."""
        ...

    def output(self, features: Tensor) -> Tensor:
        """Logits over the target vocabulary, (…, E) → (…, V)."""
        ...

    def parameters(self, recurse: bool = True) -> Iterator[nn.Parameter]: ...

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, nn.Parameter]]: ...

    def train(self, mode: bool = True) -> Any: ...

    def eval(self) -> Any: ...
