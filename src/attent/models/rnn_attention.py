"""How a recurrent decoder looks at the source."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from attent.attention import choices
from attent.attention.attend import run
from attent.attention.base import Score
from attent.attention.cache import KeyValueCache
from attent.attention.call import Prepared, lower_key, prepare
from attent.attention.capture.watch import is_watched, report
from attent.attention.maps.attention_map import AttentionMap
from attent.attention.normalizers.softmax import Softmax
from attent.attention.scores import Additive, Concat, General, Location
from attent.errors import ArgumentError
from attent.models.model import Memory
from attent.models.rnn_local import Local


class RecurrentAttention(nn.Module):
    """Attention from a decoder's states to the memory: keys and values are the memory's own features.

        c_t = Σⱼ α(s, h_j) h_j

    Sources: Bahdanau et al. (2015), §3.1, arXiv 1409.0473; Luong et al. (2015), §3.1, arXiv 1508.04025.

    Args:
        query_width: features of the states.
        memory_width: features of the memory.
        score: its name, built for these widths.
        hidden: features inside an additive or concat score; as many as the memory has unless given.
        normalizer: its name.
        local: where each query looks; everywhere unless given.

    Raises:
        ShapeError: the score needs both widths to be one, and they are not.
        ArgumentError: hidden is given to a score that has no such width.
    """

    def __init__(
        self,
        query_width: int,
        memory_width: int,
        score: str,
        hidden: int | None = None,
        normalizer: str = "softmax",
        local: Local | None = None,
    ) -> None:
        super().__init__()
        self.local = local
        self.score = _score(score, query_width, memory_width, hidden)
        self.score.check(query_width, memory_width, 1)
        self.normaliser = choices.normalizer(normalizer)

    def remember(self, memory: Memory) -> KeyValueCache:
        """The keys of a memory, lowered once for all steps, and its values."""
        features = memory.features[:, None]  # (B, 1, Tk, memory_width)
        with torch.autocast(features.device.type, enabled=False):
            return KeyValueCache(lower_key(self.score, features, 1), features)

    def look(self, queries: Tensor, source: KeyValueCache, lengths: Tensor, steps: Tensor | None = None) -> Prepared:
        """The call, checked once: unless it is local it serves any queries as many as these, one after another.

        Args:
            queries: (B, T, query_width).
            source: the keys and values.
            lengths: how many of them are real, (B,).
            steps: which steps the queries belong to, (B, T), which local attention needs.
        """
        mask, weighting = (None, None) if self.local is None or steps is None else self.local(queries, lengths, steps)
        return prepare(
            queries[:, None],
            source.key,
            source.value,
            score=self.score,
            normalizer=self.normaliser,
            mask=mask,
            weighting=weighting,
            lengths=lengths,
            query_start=0,
        )

    def context(self, prepared: Prepared, queries: Tensor) -> Tensor:
        """The contexts (B, T, memory_width) of queries (B, T, query_width), as many as the call was prepared for."""
        return run(prepared._replace(query=queries[:, None].to(prepared.query.dtype)))[:, 0]

    def parts(self) -> tuple[Tensor, Tensor | None, Tensor | None] | None:
        """W, b and v of v·tanh(W q + b + k'), or W alone of W q·k', under a softmax over all keys; None for anything else."""
        score = self.score
        if self.local is not None or not isinstance(self.normaliser, Softmax):
            return None
        if isinstance(score, General):
            return score.weight, None, None
        return (score.query_weight, score.bias, score.v) if isinstance(score, Additive) and score.v is not None else None

    def tell(self, queries: Tensor, source: KeyValueCache, lengths: Tensor, steps: Tensor | None = None) -> None:
        """Hand the map of all steps' queries (B, T, query_width), as one, to those who watch."""
        report(self, AttentionMap.of(self.look(queries, source, lengths, steps)))

    @property
    def watched(self) -> bool:
        """Whether anybody watches, so that queries are worth collecting."""
        return is_watched()


def _score(name: str, query_width: int, key_width: int, hidden: int | None) -> Score:
    score = choices.score_for(name, query_width, key_width, 1)
    # One head needs no axis of heads in the parameters, with which a step's products would be taken row by row.
    if isinstance(score, Additive | Concat):
        return type(score)(query_width, key_width, hidden or key_width)
    if hidden is not None:
        raise ArgumentError(f"attention_hidden is for the scores additive and concat, got score {name!r}")
    if isinstance(score, Location):
        return Location(query_width)
    return General(query_width, key_width) if isinstance(score, General) else score
