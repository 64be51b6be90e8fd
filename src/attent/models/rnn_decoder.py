"""Recurrent decoders: without attention, Bahdanau's and Luong's."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import cast

import torch
from torch import Tensor, nn

from attent.attention.cache import KeyValueCache
from attent.attention.capture.interventions import is_intervened
from attent.attention.capture.watch import is_watched
from attent.layers.recurrent import RecurrentStack, RecurrentState, ends
from attent.models.model import Memory
from attent.models.rnn_attention import Local, RecurrentAttention
from attent.models.settings import RnnSettings
from attent.ops import attention_rnn
from attent.ops.attention_rnn import Layer, Source, bahdanau, luong
from attent.ops.eligibility import autocast_dtype
from attent.types import Features


@dataclass(frozen=True)
class RnnState:
    """Immutable decoder state; exported graphs contain the names of its fields.

    Args:
        layers: the state of each layer.
        beside: the input that each step concatenates to the token's embedding, (B, n): the source's vector (attention
            "none"), the previous attentional vector (luong with input feeding), or nothing (n = 0).
        lengths: the number of real source tokens, (B,).
        source: the memory's lowered keys and its values; None without attention.
        steps: the number of steps so far, (B,), for local attention; None otherwise.
    """

    layers: tuple[RecurrentState, ...]
    beside: Tensor
    lengths: Tensor
    source: KeyValueCache | None = None
    steps: Tensor | None = None

    def select(self, rows: Tensor) -> RnnState:
        """Return these rows of the batch, in this order; rows may repeat."""
        source = None if self.source is None else self.source.select(rows)
        steps = None if self.steps is None else self.steps[rows]
        return replace(self.reorder(rows), lengths=self.lengths[rows], source=source, steps=steps)

    def reorder(self, rows: Tensor) -> RnnState:
        """Return the history of these rows like `select`, while every row keeps its own source."""
        # Rows with the same source have the same number of steps.
        return replace(self, layers=tuple(layer.select(rows) for layer in self.layers), beside=self.beside[rows])

    def advance(self, layers: tuple[RecurrentState, ...], count: int, input_feed: Tensor | None = None) -> RnnState:
        """Return the state after `count` more steps."""
        steps = None if self.steps is None else self.steps + count
        return replace(self, layers=layers, beside=self.beside if input_feed is None else input_feed, steps=steps)


class RnnDecoder(nn.Module, ABC):
    """Base class of recurrent decoders: a stack of recurrent layers, their first state, and the output.

    A step's output is as wide as an embedding, so that the target embedding can compute the logits.

    Args:
        settings: the settings of the model.
        input_feed_width: features that enter the recurrent layers together with a token's embedding.
        readout_width: features from which the output is computed.
    """

    def __init__(self, settings: RnnSettings, input_feed_width: int, readout_width: int) -> None:
        super().__init__()
        self.settings = settings
        self.recurrent = RecurrentStack(
            settings.cell, settings.embedding_width + input_feed_width, settings.width, settings.decoder_layers
        )
        self.parts = 2 if settings.cell == "lstm" else 1
        summary_width = settings.width if settings.attention == "none" else settings.memory_width
        self.first_state = linear(summary_width, settings.decoder_layers * self.parts * settings.width)
        self.readout = linear(readout_width, settings.embedding_width)
        self.norm = nn.LayerNorm(settings.embedding_width) if settings.layer_norm else nn.Identity()

    @abstractmethod
    def start(self, memory: Memory) -> RnnState:
        """Return the state before the first token."""

    @abstractmethod
    def forward(self, embedded: Features, state: RnnState) -> tuple[Features, RnnState]:
        """Return the output (B, T, embedding_width) of the next T steps, and the state after them.

        The embedded tokens have the shape of the output. Row t of the attention map belongs to the token that step t
        produces.
        """

    def teacher_forced(self, embedded: Features, memory: Memory) -> Features:
        """Return the output of a whole target, given its embedded tokens (B, T, embedding_width)."""
        return self(embedded, self.start(memory))[0]

    def first_states(self, summary: Tensor) -> tuple[RecurrentState, ...]:
        """Return every layer's first state, tanh(W summary + b), including the cell of an LSTM."""
        parts = torch.tanh(self.first_state(summary).to(self.first_state.weight.dtype)).chunk(
            self.settings.decoder_layers * self.parts, -1
        )
        if self.parts == 1:
            return tuple(RecurrentState(hidden) for hidden in parts)
        return tuple(RecurrentState(*pair) for pair in zip(parts[::2], parts[1::2], strict=True))

    def summary_of(self, memory: Memory) -> Tensor:
        """Return the vector of a memory from which the first state is computed, (B, memory_width).

        Both ends of a recurrent encoder's memory, or the mean of the annotations of vectors: Xu et al. (2015), §3.1.2,
        arXiv 1502.03044.
        """
        features, lengths = memory.features, memory.lengths
        if self.settings.input == "tokens":
            return ends(features, lengths)
        is_real = torch.arange(features.shape[1], device=lengths.device) < lengths[:, None]
        return features.masked_fill(~is_real[..., None], 0).sum(1) / lengths.clamp(min=1)[:, None]

    def output(self, *features: Tensor) -> Tensor:
        """Return the output, tanh(W [features] + b)."""
        return torch.tanh(self.norm(self.readout(torch.cat(features, -1))))


class ContextDecoder(RnnDecoder):
    """A decoder without attention, which receives the source as a single vector c.

        c = tanh(V [h→_T; h←_1]),  s_0 = tanh(V' c)
        s_t = f(s_{t−1}, [e_t; c]),  output = tanh(W [s_t; e_t; c])

    e_t is the embedding of the token read at step t, BOS first. Source: Cho et al. (2014), §2.2 and A.1, arXiv
    1406.1078, whose encoder is unidirectional and whose output has a maxout in place of the tanh. Without
    context_every_step c only enters s_0 (Sutskever et al. 2014, §2, arXiv 1409.3215, where s_0 is the encoder's last
    state).
    """

    def __init__(self, settings: RnnSettings) -> None:
        context_width = settings.width if settings.context_every_step else 0
        super().__init__(settings, context_width, settings.width + settings.embedding_width + context_width)
        self.summary = linear(settings.memory_width, settings.width)

    def start(self, memory: Memory) -> RnnState:
        context = torch.tanh(self.summary(self.summary_of(memory)))  # (B, E)
        return RnnState(
            self.first_states(context), context if self.settings.context_every_step else context[:, :0], memory.lengths
        )

    def forward(self, embedded: Features, state: RnnState) -> tuple[Features, RnnState]:
        context = state.beside[:, None].expand(-1, embedded.shape[1], -1)  # (B, T, n)
        states, layers = self.recurrent(torch.cat((embedded, context), -1), state.layers)
        return self.output(states, embedded, context), replace(state, layers=layers)


class AttendingDecoder(RnnDecoder):
    """Base class of decoders with attention; see `RnnDecoder.summary_of` for their first state."""

    def __init__(
        self, settings: RnnSettings, input_feed_width: int, readout_width: int, feedback_width: int = 0
    ) -> None:
        super().__init__(settings, input_feed_width, readout_width)
        self.feedback_width = feedback_width
        local = None if settings.local == "none" else Local(settings.local, settings.local_window, settings.width)
        self.cross_attention = RecurrentAttention(
            settings.width,
            settings.memory_width,
            settings.score_name,
            settings.attention_hidden,
            settings.normalizer,
            local,
            settings.scaled_score,
        )

    def start(self, memory: Memory) -> RnnState:
        input_feed = memory.features.new_zeros(memory.lengths.shape[0], self.feedback_width)
        source = self.cross_attention.cache_kv(memory)
        steps = None if self.cross_attention.local is None else torch.zeros_like(memory.lengths)
        return RnnState(self.first_states(self.summary_of(memory)), input_feed, memory.lengths, source, steps)

    @property
    def has_fused_form(self) -> bool:
        """True if `fused` computes the same as the steps."""
        return self.cross_attention.fused_parameters is not None

    @abstractmethod
    def fused(self, embedded: Features, source: Source, layers: list[Layer]) -> Features:
        """Compute `teacher_forced` with `attent.ops.attention_rnn`, given the attention and the recurrent layers."""

    def teacher_forced(self, embedded: Features, memory: Memory) -> Features:
        reference = partial(super().teacher_forced, embedded, memory)
        if not self.training or not self.has_fused_form or is_watched() or is_intervened([self.cross_attention]):
            return reference()
        inputs = embedded, memory.features
        return attention_rnn.decode(
            lambda: self.fused(embedded, *self._fused_operands(memory)), reference, inputs, self.parameters()
        )

    def _fused_operands(self, memory: Memory) -> tuple[Source, list[Layer]]:
        parameters, values = self.cross_attention.fused_parameters, memory.features.to(autocast_dtype(memory.features))
        assert parameters is not None
        source = Source(values, self.cross_attention.score.lower_key(values).features, memory.lengths, *parameters)
        layers = zip(self.recurrent.layers, self.first_states(self.summary_of(memory)), strict=True)
        return source, [Layer(state.hidden, state.cell, *layer.parameters()) for layer, state in layers]


class BahdanauDecoder(AttendingDecoder):
    """Attention from the state before the step; the context enters the step.

        c_t = Σⱼ α(s_{t−1}, h_j) h_j,  s_t = f(s_{t−1}, [e_t; c_t]),  output = tanh(W [s_t; e_t; c_t])

    Source: Bahdanau et al. (2015), §3.1 and A.1.2, arXiv 1409.0473; there the output is a maxout of s_{t−1}, e_t and
    c_t. With token_in_query the query is s_{t−1} + P e_t + b.
    """

    def __init__(self, settings: RnnSettings) -> None:
        super().__init__(
            settings, settings.memory_width, settings.width + settings.embedding_width + settings.memory_width
        )
        # P and b; the name is fixed by checkpoints.
        self.asked = linear(settings.embedding_width, settings.width) if settings.token_in_query else None

    def forward(self, embedded: Features, state: RnnState) -> tuple[Features, RnnState]:
        layers, lowest, attention, source = (
            state.layers,
            self.recurrent.layers[0],
            self.cross_attention,
            cast(KeyValueCache, state.source),
        )
        project_context = lowest.share(embedded.shape[-1])
        query_terms = None if self.asked is None else self.asked(embedded)  # (B, T, E)
        prepared = attention.prepare(layers[-1].hidden[:, None], source, state.lengths)
        states: list[Tensor] = []
        contexts: list[Tensor] = []
        queries: list[Tensor] = []
        # The products of gates and tokens are computed for all steps together.
        for step, gates in enumerate(lowest.gates(embedded).unbind(1)):
            query = layers[-1].hidden if query_terms is None else layers[-1].hidden + query_terms[:, step]
            context = attention.context(prepared, query[:, None])[:, 0]  # (B, memory_width)
            layers = self.recurrent.step(gates + project_context(context), layers)
            states.append(layers[-1].hidden)
            contexts.append(context)
            queries.append(query)
        if is_watched():
            attention.report_map(torch.stack(queries, 1), contexts, source, state.lengths)
        return self.output(torch.stack(states, 1), embedded, torch.stack(contexts, 1)), replace(state, layers=layers)

    def fused(self, embedded: Features, source: Source, layers: list[Layer]) -> Features:
        inputs = embedded.transpose(0, 1).to(source.values.dtype)  # (T, B, embedding_width)
        query_terms = None if self.asked is None else torch.matmul(self.asked(inputs), source.weight)
        states, contexts = bahdanau(inputs, source, layers, query_terms)
        return self.output(states, inputs, contexts).transpose(0, 1)


class LuongDecoder(AttendingDecoder):
    """Attention from the state after the step; the context enters the output, and with input feeding the next step.

        s_t = f(s_{t−1}, [e_t; h̃_{t−1}]),  c_t = Σⱼ α(s_t, h_j) h_j,  output = h̃_t = tanh(W [c_t; s_t])

    h̃_0 = 0; without input feeding h̃ does not enter f, and all steps are computed together. Source: Luong et al.
    (2015), §3, equation 5, and §3.3, arXiv 1508.04025; their attentional vector h̃ is as wide as the state, here as an
    embedding.
    """

    def __init__(self, settings: RnnSettings) -> None:
        feedback_width = settings.embedding_width if settings.input_feeding else 0
        super().__init__(settings, feedback_width, settings.memory_width + settings.width, feedback_width)

    def forward(self, embedded: Features, state: RnnState) -> tuple[Features, RnnState]:
        attention, source, count = self.cross_attention, cast(KeyValueCache, state.source), embedded.shape[1]
        steps = (
            None if state.steps is None else state.steps[:, None] + torch.arange(count, device=state.steps.device)
        )  # (B, T)
        if self.feedback_width:
            return self._forward_stepwise(embedded, state, steps)
        queries, layers = self.recurrent(embedded, state.layers)  # (B, T, E)
        contexts = attention.context(attention.prepare(queries, source, state.lengths, steps), queries)
        if is_watched():
            attention.report_map(queries, contexts, source, state.lengths, steps)
        return self.output(contexts, queries), state.advance(layers, count)

    @property
    def has_fused_form(self) -> bool:
        return self.feedback_width > 0 and isinstance(self.norm, nn.Identity) and super().has_fused_form

    def fused(self, embedded: Features, source: Source, layers: list[Layer]) -> Features:
        return luong(embedded.transpose(0, 1), source, layers, self.readout.weight, self.readout.bias).transpose(0, 1)

    def _forward_stepwise(self, embedded: Features, state: RnnState, steps: Tensor | None) -> tuple[Features, RnnState]:
        layers, input_feed, lowest = state.layers, state.beside, self.recurrent.layers[0]
        attention, source = self.cross_attention, cast(KeyValueCache, state.source)
        project_feed = lowest.share(embedded.shape[-1])
        prepared = attention.prepare(
            layers[-1].hidden[:, None], source, state.lengths, None if steps is None else steps[:, :1]
        )
        outputs: list[Tensor] = []
        contexts: list[Tensor] = []
        queries: list[Tensor] = []
        for step, gates in enumerate(lowest.gates(embedded).unbind(1)):
            layers = self.recurrent.step(gates + project_feed(input_feed), layers)
            query = layers[-1].hidden
            if steps is not None:
                # The window of local attention moves with the step.
                prepared = attention.prepare(query[:, None], source, state.lengths, steps[:, step : step + 1])
            context = attention.context(prepared, query[:, None])[:, 0]  # (B, memory_width)
            input_feed = self.output(context, query)  # (B, embedding_width)
            contexts.append(context)
            outputs.append(input_feed)
            queries.append(query)
        if is_watched():
            attention.report_map(torch.stack(queries, 1), contexts, source, state.lengths, steps)
        return torch.stack(outputs, 1), state.advance(layers, embedded.shape[1], input_feed)


DECODERS: dict[str, Callable[[RnnSettings], RnnDecoder]] = {
    "none": ContextDecoder,
    "bahdanau": BahdanauDecoder,
    "luong": LuongDecoder,
}


def linear(inputs: int, outputs: int) -> nn.Linear:
    """Build a linear layer with Glorot's initialization and a bias of 0."""
    layer = nn.Linear(inputs, outputs)
    nn.init.xavier_uniform_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer
