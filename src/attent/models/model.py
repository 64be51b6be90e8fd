"""What training asks of a model, whatever it learns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Self

from torch import nn

from attent.attention.base import Score
from attent.layers.embeddings import TokenEmbedding
from attent.ops import packed_linear


class Model(nn.Module):
    """A model that can be trained; what it computes is its own, and known to the loss that it is trained by."""

    def train(self, mode: bool = True) -> Self:
        """To training mode or back; between the two parameters may change in ways that PyTorch does not count."""
        packed_linear.forget(self)
        return super().train(mode)

    @property
    def units(self) -> Sequence[nn.Module]:
        """The layers, each of which is called as a module and alone uses its weights, so that they are needed one after another."""
        return ()

    @property
    def longest(self) -> int | None:
        """The most places of a sequence; None where there is no limit."""
        return self.limit()

    def limit(self, *others: int | None) -> int | None:
        """The least of these limits and of how many keys the model's scores can tell apart; None where there is no limit."""
        told = (part.maximum_length for part in self.modules() if isinstance(part, Score))
        return min((limit for limit in (*others, *told) if limit is not None), default=None)

    @property
    def embeddings(self) -> Mapping[str, TokenEmbedding]:
        """What makes vectors of tokens, by the name of the tokenizer that they are of; one may serve several."""
        return {}
