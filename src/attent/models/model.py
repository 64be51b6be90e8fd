"""Base classes of models: the interface that training, decoding and evaluation rely on.

    memory = model.encode(source, lengths)
    logits = model.output(model.decode(memory, tokens))                       all steps together: the tokens are given
    state  = model.start(memory); features, state = model.step(state, tokens)      one step at a time: search

Teacher-forced `decode` and repeated `step` compute the same features. The caller of `output` can fuse it with the loss
or the search. Attention weights leave a model only through `attent.attention.capture.watch`, under names that identify
source and target: `encoder` is the source attending to itself, `cross_attention` the target attending to the source,
and any other attention of the decoder the target attending to its own past. Row t of a decoder's map is labeled with
the token that step t produces; `attent.alignment.forced_decoding` explains when it may belong to the token that step t
reads.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, Self, TypeVar

from torch import Tensor, nn

from attent.attention.base import Score
from attent.attention.maps.attention_map import AttentionMap
from attent.attention.positions.learned import Learned
from attent.errors import ArgumentError, ShapeError, check_known
from attent.layers.embeddings import TokenEmbedding
from attent.ops import packed_linear
from attent.ops.search import PackedDecoder
from attent.types import Features, Lengths, StepFeatures, Tokens


class Model(nn.Module):
    """Base class of trainable models.

    `to_logits` is the last layer, which a loss can fuse with the cross entropy.
    """

    to_logits: nn.Linear

    def train(self, mode: bool = True) -> Self:
        """Switch between training and evaluation mode, and discard packed weights.

        They are discarded because PyTorch does not register every change to parameters.
        """
        packed_linear.forget(self)
        return super().train(mode)

    @property
    def longest(self) -> int | None:
        """The maximum length of a sequence in tokens, including padding, that all scores and positions support.

        None if there is no limit.
        """
        limits = (part.maximum_length for part in self.modules() if isinstance(part, Score | Learned))
        return min((limit for limit in limits if limit is not None), default=None)

    @property
    def embeddings(self) -> Mapping[str, TokenEmbedding]:
        """The token embeddings by tokenizer name; tokenizers may share an embedding."""
        return {}

    @property
    def parts(self) -> Mapping[str, Sequence[nn.Module]]:
        """The parts that can be frozen in training, by name; embeddings may also be the output matrix."""
        stacks = {name: (child,) for name in ("encoder", "decoder") if (child := getattr(self, name, None)) is not None}
        return {"embeddings": (*self.embeddings.values(),), **stacks, "output": (self.to_logits,)}

    def freeze(self, names: Sequence[str]) -> None:
        """Exclude the weights of these parts from training.

        Raises:
            ArgumentError: no weight is left to train.
            UnknownNameError: the model has no such part.
        """
        for name in names:
            check_known("part of the model", name, self.parts)
            for module in self.parts[name]:
                module.requires_grad_(False)
        if names and not any(parameter.requires_grad for parameter in self.parameters()):
            raise ArgumentError(f"nothing is left to train: {', '.join(names)} contain all weights of this model")


@dataclass(frozen=True)
class Memory:
    """The encoded source.

    Args:
        features: one vector per source token, (B, Tk, E).
        lengths: the number of real source tokens, (B,).
    """

    features: Tensor
    lengths: Tensor

    def select(self, rows: Tensor) -> Memory:
        """Return these rows of the batch, in this order; rows may repeat."""
        return Memory(self.features[rows], self.lengths[rows])


def check_source(source: Tensor, lengths: Tensor, input: str, name: str = "source", length: str = "Tk") -> None:
    """Check the axes of a source, and that there is one length per row.

    Args:
        source: tokens (B, Tk) or vectors (B, Tk, D).
        lengths: the number of real positions, (B,).
        input: "tokens" or "vectors".
        name: the name of the source in the message.
        length: the letters of its length in the message.

    Raises:
        ShapeError: the source has other axes, or there is not one length per row.
    """
    shape = f"(B, {length})" if input == "tokens" else f"(B, {length}, D)"
    if source.dim() != shape.count(",") + 1 or lengths.shape != source.shape[:1]:
        raise ShapeError(
            f"{name} must be {shape} and lengths (B,), got {tuple(source.shape)} and {tuple(lengths.shape)}"
        )


class DecoderState(Protocol):
    """An immutable decoder state of a batch."""

    def select(self, rows: Tensor) -> Self:
        """Return these rows of the batch, in this order; rows may repeat (for beam search)."""
        ...

    def reorder(self, rows: Tensor) -> Self:
        """Return the history of these rows like `select`, while every row keeps its own source."""
        ...


S = TypeVar("S", bound=DecoderState)


class EncoderDecoder(Model, ABC, Generic[S]):
    """A model that reads one sequence and writes another."""

    @property
    def batch_invariant(self) -> bool:
        """True if, in the current mode, a row's numbers do not depend on the number of rows in the batch."""
        return False

    @abstractmethod
    def encode(self, source: Tensor, lengths: Lengths) -> Memory:
        """Encode a right-padded source, (B, Tk) of tokens or (B, Tk, D) of vectors, with real lengths (B,)."""

    @abstractmethod
    def decode(self, memory: Memory, tokens: Tokens) -> Features:
        """Return the features (B, T, E) of all steps, given BOS and the target (B, T)."""

    @property
    def source_attention_layers(self) -> int:
        """The number of layers whose attention `source_attention` can currently compute.

        0 if the attention of `decode` is available only through `watch`.
        """
        return 0

    def source_attention(self, memory: Memory, tokens: Tokens, layer: int) -> AttentionMap:
        """Return the map (B, H, T, Tk) of a layer's attention to the source in `decode`, without running later layers.

        Args:
            memory: the encoded source.
            tokens: BOS and the target (B, T).
            layer: below `source_attention_layers`.
        """
        raise NotImplementedError

    @abstractmethod
    def start(self, memory: Memory) -> S:
        """Return the state before the first token."""

    @abstractmethod
    def step(self, state: S, tokens: Tensor) -> tuple[StepFeatures, S]:
        """Return the features (B, E) of one more token (B,), and the state that includes it."""

    def packed_decoders(self, source: Tensor, lengths: Lengths, steps: int) -> Sequence[PackedDecoder]:
        """Encode a source for a search of this many steps in the compiled library, by one decoder or an ensemble's.

        There are none if the library cannot compute the model in its current state.
        """
        return ()

    def output(self, features: Tensor) -> Tensor:
        """Return the logits (…, V) of the next token from features (…, E)."""
        return packed_linear.linear(self.to_logits, features)
