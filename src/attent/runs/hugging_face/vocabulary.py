"""Our ids for another's vocabulary: PAD, UNK, BOS and EOS first, then every other id of theirs in their order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from attent.text.tokenizer import PAD, SPECIALS

# The bias of a token that their model does not have: such a token has no probability, and a loss stays finite.
ABSENT = -100.0


class SpecialIds(NamedTuple):
    """Their special ids: padding, unknown, the one that a decoder starts from, and the end."""

    pad: int
    unk: int
    start: int
    eos: int


@dataclass(frozen=True)
class Vocabulary:
    """The ids of one side of a translator.

    The decoder's start is our BOS. Where it is their padding (Marian), BOS has its output too, and our PAD has none;
    where it is another token, such as the end (M2M100), BOS is a copy of its row, without an output of its own.

    Args:
        names: of their ids; one without a name is in no text.
        size: rows of their embedding.
        special: their special ids.
    """

    names: Mapping[int, str]
    size: int
    special: SpecialIds

    @property
    def ordinary(self) -> list[int]:
        """Their ids that are none of PAD, UNK and EOS."""
        special = {self.special.pad, self.special.unk, self.special.eos}
        return [token for token in range(self.size) if token not in special]

    @property
    def pieces(self) -> list[str]:
        """The pieces of our ids from 4 on."""
        return [self.names.get(token) or self.unused(token) for token in self.ordinary]

    @property
    def unnamed(self) -> list[str]:
        """Those of the pieces that are in no text since they have no name."""
        return [self.unused(token) for token in self.ordinary if not self.names.get(token)]

    @staticmethod
    def unused(token: int) -> str:
        """Return a name for an id without one."""
        return f"<unused {token}>"

    def rows(self, table: Tensor) -> Tensor:
        """Return our embedding (V, E) from theirs; PAD is zero where its row belongs to BOS."""
        pad, unk, start, eos = self.special
        result = table[torch.tensor([pad, unk, start, eos, *self.ordinary])]
        if start == pad:
            result[PAD] = 0
        return result

    def bias(self, bias: Tensor) -> Tensor:
        """Return our output's bias (V,) from theirs.

        So negative that there is no probability where they have no such token.
        """
        pad, unk, start, eos = self.special
        result = bias[torch.tensor([pad, unk, start, eos, *self.ordinary])]
        result[PAD if start == pad else SPECIALS - 2] = ABSENT
        return result
