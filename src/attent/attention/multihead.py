"""Multi-head attention: project, split heads, attend, merge."""

from collections.abc import Callable
from typing import Literal, Self, cast

import torch
from torch import Tensor, nn

from attent.attention import choices
from attent.attention.arguments import prepare
from attent.attention.attend import run
from attent.attention.base import LoweredSide, Mask, Normalizer, Position, Score
from attent.attention.cache import KeyValueCache
from attent.attention.call import Prepared, lower_key
from attent.attention.capture.watch import is_watched, report, watch
from attent.attention.maps.attention_map import AttentionMap
from attent.errors import ArgumentError, ShapeError
from attent.ops.eligibility import without_autocast
from attent.ops.linear import project


class MultiHeadAttention(nn.Module):
    """H attentions side by side: head_h = Attention(XW_h^Q, MW_h^K, MW_h^V), output = [head_1; …; head_H] W^O.

    Self-attention if no memory is given, cross-attention if one is; grouped heads if there are fewer key/value heads.
    One matrix product projects for all heads, and each head is normalized separately: the result equals that of H
    separate heads. With one head, bias=False and output=None it is the self-attention of introductory texts. Vaswani et
    al. 2017, §3.2.2 (arXiv:1706.03762); grouped heads: Ainslie et al. 2023 (arXiv:2305.13245).

    Args:
        query_width: the width of the queries' features.
        heads: H.
        memory_width: the width of the features from which keys are projected; query_width if not given.
        value_memory_width: the width of the features from which values are projected; memory_width if not given.
        key_head_width: Dk of one head; query_width / heads if not given.
        value_head_width: Dv of one head; key_head_width if not given.
        key_value_heads: G, a divisor of heads; heads if not given.
        bias: whether the projections have biases.
        output: "linear" for W^O back to query_width, None for the merged heads as they are, or your own module.
        score: a name, built for these widths with parameters for each head, or a Score or function.
        normalizer: a name or a Normalizer.
        position: rotary, alibi or relative_bias, by name or as a module.
        sink: whether each head learns a logit without a value in its softmax; see attend.
        soft_cap: see attend.
        dropout: the share of weights dropped in training, in [0, 1).

    Raises:
        ArgumentError: the heads do not divide the width, or the key/value heads do not divide the heads.
    """

    def __init__(
        self,
        query_width: int,
        heads: int,
        *,
        memory_width: int | None = None,
        value_memory_width: int | None = None,
        key_head_width: int | None = None,
        value_head_width: int | None = None,
        key_value_heads: int | None = None,
        bias: bool = True,
        output: Literal["linear"] | nn.Module | None = "linear",
        score: str | Score | nn.Module | Callable[[Tensor, Tensor], Tensor] = "scaled_dot",
        normalizer: str | Normalizer = "softmax",
        position: str | Position | None = None,
        sink: bool = False,
        soft_cap: float | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        if heads < 1 or (key_head_width is None and query_width % heads):
            raise ArgumentError(f"{heads} heads do not divide a width of {query_width}; give key_head_width")
        self.heads, self.key_value_heads = heads, key_value_heads or heads
        if heads % self.key_value_heads:
            raise ArgumentError(f"key_value_heads must divide heads = {heads}, got {self.key_value_heads}")
        self.key_width = key_head_width or query_width // heads
        self.value_width = value_head_width or self.key_width
        memory_width = memory_width or query_width
        self.query_projection = nn.Linear(query_width, heads * self.key_width, bias=bias)
        self.key_projection = nn.Linear(memory_width, self.key_value_heads * self.key_width, bias=bias)
        self.value_projection = nn.Linear(
            value_memory_width or memory_width, self.key_value_heads * self.value_width, bias=bias
        )
        self.output = nn.Linear(heads * self.value_width, query_width, bias=bias) if output == "linear" else output
        self.score = choices.score_for(score, self.key_width, self.key_width, heads)
        # the attribute's name is part of the state_dict of a normalizer with parameters
        self.normalizer = choices.normalizer(normalizer)
        self.position = choices.position_for(position, heads)
        self.sink = nn.Parameter(torch.zeros(heads)) if sink else None
        self.soft_cap, self.dropout = soft_cap, dropout

    @classmethod
    def from_torch(cls, original: nn.MultiheadAttention) -> Self:
        """Convert PyTorch's module by copying its parameters; the result is batch first.

        The results agree with the original's. Note that masks have the opposite meaning: in the original, True hides a
        pair.

        Raises:
            ArgumentError: the original has bias_k, bias_v or add_zero_attn, which add keys that are not in the memory.
        """
        if original.bias_k is not None or original.bias_v is not None or original.add_zero_attn:
            raise ArgumentError("from_torch does not support bias_k, bias_v or add_zero_attn")
        module = cls(
            original.embed_dim,
            original.num_heads,
            memory_width=original.kdim,
            value_memory_width=original.vdim,
            bias=original.in_proj_bias is not None,
            dropout=original.dropout,
        )
        weights = (
            original.in_proj_weight.chunk(3)
            if original.in_proj_weight is not None
            else (original.q_proj_weight, original.k_proj_weight, original.v_proj_weight)
        )
        layers = (*module._projections(), cast(nn.Linear, module.output))
        with torch.no_grad():
            for layer, weight in zip(layers, (*weights, original.out_proj.weight), strict=True):
                layer.weight.copy_(weight)
            if original.in_proj_bias is not None:
                for layer, part in zip(layers, (*original.in_proj_bias.chunk(3), original.out_proj.bias), strict=True):
                    layer.bias.copy_(part)
        return module.to(original.out_proj.weight).train(original.training)

    @property
    def context_projection(self) -> Tensor | nn.Module | None:
        """The weight W^O, (E, H·Dv), that multiplies merged contexts; None if they are the output.

        If the projection is not linear, the module itself.
        """
        return self.output.weight if isinstance(self.output, nn.Linear) else self.output

    def _projections(self) -> tuple[nn.Linear, nn.Linear, nn.Linear]:
        return self.query_projection, self.key_projection, self.value_projection

    def forward(
        self,
        query: Tensor,
        memory: Tensor | None = None,
        value_memory: Tensor | None = None,
        *,
        mask: str | Mask | Tensor | None = None,
        bias: Tensor | None = None,
        lengths: Tensor | None = None,
        query_start: int | Tensor | None = None,
        return_map: bool = False,
    ) -> Tensor | tuple[Tensor, AttentionMap]:
        """Attend from a sequence to itself, or to a memory.

        Args:
            query: (B, Tq, query_width), or (Tq, query_width) for a single sequence.
            memory: (B, Tk, memory_width), or (Tk, memory_width); the query itself if not given.
            value_memory: (B, Tk, value_memory_width), or (Tk, value_memory_width), if values are projected from
                different features than keys.
            mask: as in attend.
            bias: as in attend.
            lengths: as in attend.
            query_start: as in attend; 0 if there is no memory.
            return_map: as in attend; `attent.watch` captures every attention of a whole model.

        Returns:
            (B, Tq, query_width), or as wide as `output` makes it; (Tq, …) for a single sequence. With return_map, a
            pair of that and the map of the weights, (B, H, Tq, Tk).
        """
        if return_map:
            with watch(self) as maps:
                features = self(
                    query, memory, value_memory, mask=mask, bias=bias, lengths=lengths, query_start=query_start
                )
            return features, maps[""]
        if query.dim() == 2:
            memory, value_memory = (
                None if features is None else _as_batch(features) for features in (memory, value_memory)
            )
            merged = self(
                query[None], memory, value_memory, mask=mask, bias=bias, lengths=lengths, query_start=query_start
            )
            return merged.squeeze(0)
        if memory is None:
            # queries and keys are the same tokens, padding included: query i is at the position of key i, regardless of
            # the lengths
            query_start = 0 if query_start is None else query_start
        query, key, value = self._project_query_key_value(query, memory, value_memory)
        return self._attend(query, key, value, mask=mask, bias=bias, lengths=lengths, query_start=query_start)

    def remember(
        self, memory: Tensor, cache: KeyValueCache | None = None, *, value_memory: Tensor | None = None
    ) -> KeyValueCache:
        """Project and lower the keys and values of a memory (B, Tk, memory_width), and append them to a cache."""
        key, value = self._project_key_value(memory, value_memory)
        lowered = self._lower(key, cache)
        # a score with parameters for each head has a key side per head
        value = (
            value
            if lowered.features.shape[1] == value.shape[1]
            else value.repeat_interleave(self.heads // value.shape[1], 1)
        )
        return KeyValueCache(lowered, value) if cache is None else cache.append(lowered, value)

    def recall(
        self,
        query: Tensor,
        cache: KeyValueCache,
        *,
        mask: str | Mask | Tensor | None = None,
        bias: Tensor | None = None,
        lengths: Tensor | None = None,
        query_start: int | Tensor | None = None,
    ) -> Tensor:
        """Attend from a sequence (B, Tq, query_width) to a cache: a step of `forward` with the same memory."""
        (query,) = self._project_and_split_heads(query, self.query_projection)
        return self._attend(
            query, cache.key, cache.value, mask=mask, bias=bias, lengths=lengths, query_start=query_start
        )

    def recall_map(self, query: Tensor, memory: Tensor, *, lengths: Tensor | None = None) -> AttentionMap:
        """Return only the map of `recall` for a memory: no values are projected and no contexts computed.

        Args:
            query: (B, Tq, query_width).
            memory: (B, Tk, memory_width).
            lengths: as in attend.
        """
        (query,) = self._project_and_split_heads(query, self.query_projection)
        (key,) = self._project_and_split_heads(memory, self.key_projection)
        lowered = self._lower(key)
        return AttentionMap.of(self._prepared(query, lowered, lowered.features, lengths=lengths))

    def _lower(self, key: Tensor, cache: KeyValueCache | None = None) -> LoweredSide:
        """Lower projected keys (B, heads, T, D) that follow those of a cache, rotated if positions rotate."""
        start = 0 if cache is None else cache.length
        if self.position is not None and self.position.rotates:
            key = self.position.rotate(key, torch.arange(start, start + key.shape[2], device=key.device)[None])
        with without_autocast(key.device):
            return lower_key(self.score, key, self.heads, None if cache is None else cache.key.center, start)

    def _attend(
        self,
        query: Tensor,
        key: Tensor | LoweredSide,
        value: Tensor,
        *,
        mask: str | Mask | Tensor | None,
        bias: Tensor | None,
        lengths: Tensor | None,
        query_start: int | Tensor | None,
    ) -> Tensor:
        prepared = self._prepared(query, key, value, mask=mask, bias=bias, lengths=lengths, query_start=query_start)
        context = run(prepared)  # (B, H, Tq, Dv)
        if is_watched():
            report(self, AttentionMap.of(prepared), prepared.value, context)
        merged = context.transpose(1, 2).flatten(2)  # (B, Tq, H·Dv)
        if isinstance(self.output, nn.Linear):
            return project(merged, self.output)[0]
        return merged if self.output is None else self.output(merged)

    def _prepared(
        self,
        query: Tensor,
        key: Tensor | LoweredSide,
        value: Tensor,
        *,
        mask: str | Mask | Tensor | None = None,
        bias: Tensor | None = None,
        lengths: Tensor | None = None,
        query_start: int | Tensor | None = None,
    ) -> Prepared:
        """Return the call for projected queries, keys and values."""
        dropout = self.dropout if self.training else 0.0
        return prepare(
            query,
            key,
            value,
            score=self.score,
            normalizer=self.normalizer,
            mask=mask,
            bias=bias,
            sink=self.sink,
            soft_cap=self.soft_cap,
            position=self.position,
            query_start=query_start,
            lengths=lengths,
            dropout=dropout,
            # from torch's default generator, so that the seed of a run determines it
            seed=torch.randint(2**31 - 1, (1,), device=query.device) if dropout else None,
        )

    def _project_query_key_value(
        self, query: Tensor, memory: Tensor | None, value_memory: Tensor | None
    ) -> tuple[Tensor, ...]:
        """Project queries, keys and values, (B, heads, T, D) each; those that share features in one product."""
        if memory is None and value_memory is None:
            return self._project_and_split_heads(query, *self._projections())
        return *self._project_and_split_heads(query, self.query_projection), *self._project_key_value(
            query if memory is None else memory, value_memory
        )

    def _project_key_value(self, memory: Tensor, value_memory: Tensor | None) -> tuple[Tensor, ...]:
        _, key, value = self._projections()
        if value_memory is None:
            return self._project_and_split_heads(memory, key, value)
        return *self._project_and_split_heads(memory, key), *self._project_and_split_heads(value_memory, value)

    def _project_and_split_heads(self, features: Tensor, *projections: nn.Linear) -> tuple[Tensor, ...]:
        """Apply projections to the same features and split heads, (B, heads, T, D) each."""
        for projection in projections:
            if features.dim() != 3 or features.shape[-1] != projection.in_features:
                raise ShapeError(f"features must be (B, T, {projection.in_features}), got {tuple(features.shape)}")
        heads = [
            self.heads if projection is self.query_projection else self.key_value_heads for projection in projections
        ]
        projected = zip(project(features, *projections), heads, strict=True)
        return tuple(merged.unflatten(-1, (count, -1)).transpose(1, 2) for merged, count in projected)


def _as_batch(features: Tensor) -> Tensor:
    """Return the features (T, E) of a single sequence as a batch of one."""
    if features.dim() != 2:
        raise ShapeError(f"features of a single sequence must be (T, E), like the query, got {tuple(features.shape)}")
    return features[None]
