"""Attention of a recurrent decoder to the source, global or local."""

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from attent.attention import choices
from attent.attention.arguments import prepare
from attent.attention.attend import run
from attent.attention.base import Score
from attent.attention.cache import KeyValueCache
from attent.attention.call import Prepared, lower_key
from attent.attention.capture.watch import report
from attent.attention.maps.attention_map import AttentionMap
from attent.attention.masks import Around
from attent.attention.normalizers.softmax import Softmax
from attent.attention.scores import Additive, Concat, General, Location
from attent.attention.weightings import GaussianWindow
from attent.errors import refuse
from attent.models.model import Memory


class Local(nn.Module):
    """Local attention: the window [p_t − D, p_t + D] of the source that a query attends to.

        p_t = t ("m"),  or p_t = S · sigmoid(v_pᵀ tanh(W_p h_t)) ("p")

    With "p" the weights are then multiplied by exp(−(s − p_t)² / 2σ²), σ = D/2, and not normalized again. S is the
    length of the source without padding; positions and steps are counted from 0. With "m" a step more than D beyond the
    source's end attends to no key. Source: Luong et al. (2015), §3.2, equations 9 and 10, arXiv 1508.04025.

    Args:
        kind: monotonic ("m") or predictive ("p") alignment.
        distance: D, in tokens.
        query_width: features of the states h_t.
    """

    def __init__(self, kind: Literal["m", "p"], distance: int, query_width: int) -> None:
        super().__init__()
        self.kind, self.distance = kind, distance
        if kind == "p":
            self.hidden = nn.Linear(query_width, query_width, bias=False)
            self.v = nn.Linear(query_width, 1, bias=False)
            for layer in (self.hidden, self.v):
                nn.init.xavier_uniform_(layer.weight)

    def centers(self, queries: Tensor, lengths: Tensor, steps: Tensor) -> Tensor:
        """Return p_t, (B, T) in tokens, of queries (B, T, query_width) at steps (B, T) over sources of lengths (B,)."""
        if self.kind == "m":
            return steps
        # 16 bits are not precise enough for positions in a long source.
        with torch.autocast(queries.device.type, enabled=False):
            relative = torch.sigmoid(self.v(torch.tanh(self.hidden(queries.to(self.v.weight.dtype)))))  # (B, T, 1)
        return lengths[:, None] * relative[..., 0]

    def forward(self, queries: Tensor, lengths: Tensor, steps: Tensor) -> tuple[Around, GaussianWindow | None]:
        """Return the mask and the weighting of these queries."""
        centers = self.centers(queries, lengths, steps)
        return Around(centers, self.distance), GaussianWindow(centers, self.distance / 2) if self.kind == "p" else None

    def extra_repr(self) -> str:
        """Return the kind and D."""
        return f"kind={self.kind!r}, distance={self.distance}"


class RecurrentAttention(nn.Module):
    """Attention from a decoder's states to the memory, whose features are both keys and values.

        c_t = Σⱼ α(s, h_j) h_j

    Sources: Bahdanau et al. (2015), §3.1, arXiv 1409.0473; Luong et al. (2015), §3.1, arXiv 1508.04025.

    Args:
        query_width: features of the states.
        memory_width: features of the memory.
        score: the name of the score, built for these widths.
        hidden: features inside an additive or concat score; by default the memory's width.
        normalizer: the name of the normalizer.
        local: the window of local attention; None for global attention.
        scaled: whether the general score is divided by √memory_width.

    Raises:
        ShapeError: the score needs equal widths.
        ArgumentError: the score has no hidden width.
    """

    def __init__(
        self,
        query_width: int,
        memory_width: int,
        score: str,
        hidden: int | None = None,
        normalizer: str = "softmax",
        local: Local | None = None,
        scaled: bool = False,
    ) -> None:
        super().__init__()
        self.local = local
        self.score = _build_score(score, query_width, memory_width, hidden, memory_width**-0.5 if scaled else 1.0)
        self.score.check(query_width, memory_width, 1)
        self.normalizer = choices.normalizer(normalizer)

    def cache_kv(self, memory: Memory) -> KeyValueCache:
        """Return a memory's lowered keys and its values, for all steps."""
        features = memory.features[:, None]  # (B, 1, Tk, memory_width)
        with torch.autocast(features.device.type, enabled=False):
            return KeyValueCache(lower_key(self.score, features, 1), features)

    def prepare(self, queries: Tensor, source: KeyValueCache, lengths: Tensor, steps: Tensor | None = None) -> Prepared:
        """Return a checked call; without a window it can be reused for any queries of this shape.

        Args:
            queries: (B, T, query_width).
            source: keys and values.
            lengths: the number of real keys, (B,).
            steps: the queries' steps, (B, T), for local attention.
        """
        mask, weighting = (None, None) if self.local is None or steps is None else self.local(queries, lengths, steps)
        return prepare(
            queries[:, None],
            source.key,
            source.value,
            score=self.score,
            normalizer=self.normalizer,
            mask=mask,
            weighting=weighting,
            lengths=lengths,
            query_start=0,
        )

    def context(self, prepared: Prepared, queries: Tensor) -> Tensor:
        """Return the contexts (B, T, memory_width) of queries (B, T, query_width)."""
        return run(prepared._replace(query=queries[:, None].to(prepared.query.dtype)))[:, 0]

    @property
    def fused_parameters(self) -> tuple[Tensor, Tensor | None, Tensor | None] | None:
        """Return W, b and v of v·tanh(W q + b + k'), or W of W q·k', for a global softmax; None for other attention."""
        score = self.score
        if self.local is not None or not isinstance(self.normalizer, Softmax):
            return None
        if isinstance(score, General):
            return score.weight if score.factor == 1.0 else score.weight * score.factor, None, None
        return (
            (score.query_weight, score.bias, score.v) if isinstance(score, Additive) and score.v is not None else None
        )

    @property
    def context_projection(self) -> None:
        """Always None, since the contexts are the output."""
        return None

    def report_map(
        self,
        queries: Tensor,
        contexts: Tensor | Sequence[Tensor],
        source: KeyValueCache,
        lengths: Tensor,
        steps: Tensor | None = None,
    ) -> None:
        """Report one map to watchers, for the queries (B, T, query_width) of all steps.

        Their contexts, (B, T, memory_width), are reported with it.
        """
        report(self, AttentionMap.of(self.prepare(queries, source, lengths, steps)), source.value, contexts)


def _build_score(name: str, query_width: int, key_width: int, hidden: int | None, scale: float) -> Score:
    score = choices.score_for(name, query_width, key_width, 1)
    # Parameters have no axis of heads, since products would otherwise be computed row by row.
    if isinstance(score, Additive | Concat):
        return type(score)(query_width, key_width, hidden or key_width)
    refuse((hidden is not None, f"attention_hidden applies only to the scores additive and concat, got score {name!r}"))
    if isinstance(score, Location):
        return Location(query_width)
    return General(query_width, key_width, scale=scale) if isinstance(score, General) else score
