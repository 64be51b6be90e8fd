"""The three ways in which a recurrent decoder sees the source."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from attent.attention.cache import KeyValueCache
from attent.layers.recurrent import RecurrentStack, RecurrentState, ends
from attent.models.model import Memory
from attent.models.rnn_attention import RecurrentAttention
from attent.models.rnn_local import Local
from attent.models.settings import RnnSettings
from attent.ops.attention_rnn import Layer, Source, bahdanau, luong
from attent.ops.eligibility import can_run_native
from attent.ops.rnn import DTYPES, product_dtype
from attent.types import Features


@dataclass(frozen=True)
class RnnState:
    """Where a recurrent decoder stands: a value.

    Args:
        layers: each layer's state.
        beside: what enters each step beside the token, (B, n): the source's vector (attention "none"), the attentional vector
            of the step before (luong with input feeding); n = 0 where nothing does.
        lengths: how many of the source's tokens are real, (B,).
        source: the memory's keys, lowered, and its values; None without attention.
        steps: how many steps were taken, (B,), which local attention counts; None elsewhere.
    """

    layers: tuple[RecurrentState, ...]
    beside: Tensor
    lengths: Tensor
    source: KeyValueCache | None = None
    steps: Tensor | None = None

    def select(self, rows: Tensor) -> RnnState:
        """These rows of the batch, in this order; a row may be named twice."""
        return RnnState(
            tuple(layer.select(rows) for layer in self.layers),
            self.beside[rows],
            self.lengths[rows],
            None if self.source is None else self.source.select(rows),
            None if self.steps is None else self.steps[rows],
        )

    def reorder(self, rows: Tensor) -> RnnState:
        """`select` where each row takes what a row with the same source has written."""
        # rows with one source have taken as many steps
        return replace(self, layers=tuple(layer.select(rows) for layer in self.layers), beside=self.beside[rows])

    def ahead(self, count: int) -> Tensor | None:
        """The next steps by number, (B, count), where they are counted."""
        return None if self.steps is None else self.steps[:, None] + torch.arange(count, device=self.steps.device)

    def taken(self, count: int) -> Tensor | None:
        """How many steps are taken once so many more are, (B,), where they are counted."""
        return None if self.steps is None else self.steps + count


class RnnDecoder(nn.Module, ABC):
    """What the three have in common: a stack of recurrent layers, its first state, and the way to its output.

    The output of a step is as wide as an embedding, so that the target's embedding may compute the logits.

    Args:
        settings: of the model.
        beside: features that enter the recurrent layers beside a token's embedding.
        readout: features that the output is computed from.
    """

    def __init__(self, settings: RnnSettings, beside: int, readout: int) -> None:
        super().__init__()
        self.settings = settings
        self.recurrent = RecurrentStack(settings.cell, settings.embedding_width + beside, settings.width, settings.decoder_layers)
        self.parts = 2 if settings.cell == "lstm" else 1
        first = settings.width if settings.attention == "none" else settings.memory_width
        self.first_state = linear(first, settings.decoder_layers * self.parts * settings.width)
        self.readout = linear(readout, settings.embedding_width)
        self.norm = nn.LayerNorm(settings.embedding_width) if settings.layer_norm else nn.Identity()

    @abstractmethod
    def start(self, memory: Memory) -> RnnState:
        """The state before the first token."""

    @abstractmethod
    def forward(self, embedded: Features, state: RnnState) -> tuple[Features, RnnState]:
        """Any number of further steps: embedded tokens (B, T, embedding_width) → output of as many features, and the state.

        Row t of the attention's map is about the token that step t produces.
        """

    def forced(self, embedded: Features, memory: Memory) -> Features:
        """The output of a whole known target from its beginning: embedded tokens (B, T, embedding_width) → as many features."""
        return self(embedded, self.start(memory))[0]

    def first(self, summary: Tensor) -> tuple[RecurrentState, ...]:
        """Every layer's first state, tanh(W summary + b); an LSTM's cell too."""
        parts = torch.tanh(self.first_state(summary).to(self.first_state.weight.dtype)).chunk(self.settings.decoder_layers * self.parts, -1)
        if self.parts == 1:
            return tuple(RecurrentState(hidden) for hidden in parts)
        return tuple(RecurrentState(*pair) for pair in zip(parts[::2], parts[1::2], strict=True))

    def shown(self, *features: Tensor) -> Tensor:
        """The output, tanh(W [features] + b)."""
        return torch.tanh(self.norm(self.readout(torch.cat(features, -1))))


class ContextDecoder(RnnDecoder):
    """Without attention: one vector c holds the whole source.

        c = tanh(V [h→_T; h←_1]),  s_0 = tanh(V' c)
        s_t = f(s_{t−1}, [e_t; c]),  output = tanh(W [s_t; e_t; c])

    e_t is the embedding of the token given at step t, BOS first. Source: Cho et al. (2014), §2.2 and A.1, arXiv 1406.1078,
    whose encoder reads one way and whose output has a maxout for the tanh. Without context_every_step c enters s_0 alone
    (Sutskever et al. 2014, §2, arXiv 1409.3215; there the encoder's state itself is s_0).
    """

    def __init__(self, settings: RnnSettings) -> None:
        beside = settings.width if settings.context_every_step else 0
        super().__init__(settings, beside, settings.width + settings.embedding_width + beside)
        self.summary = linear(settings.memory_width, settings.width)

    def start(self, memory: Memory) -> RnnState:
        context = torch.tanh(self.summary(ends(memory.features, memory.lengths)))  # (B, E)
        return RnnState(self.first(context), context if self.settings.context_every_step else context[:, :0], memory.lengths)

    def forward(self, embedded: Features, state: RnnState) -> tuple[Features, RnnState]:
        context = state.beside[:, None].expand(-1, embedded.shape[1], -1)  # (B, T, n)
        states, layers = self.recurrent(torch.cat((embedded, context), -1), state.layers)
        return self.shown(states, embedded, context), replace(state, layers=layers)


class AttendingDecoder(RnnDecoder):
    """What both kinds with attention have in common; the first state is made of the memory's two ends, as without."""

    def __init__(self, settings: RnnSettings, beside: int, readout: int) -> None:
        super().__init__(settings, beside, readout)
        self.fed = 0
        local = None if settings.local == "none" else Local(settings.local, settings.local_window, settings.width)
        self.cross_attention = RecurrentAttention(
            settings.width, settings.memory_width, settings.score_name, settings.attention_hidden, settings.normaliser, local
        )

    def start(self, memory: Memory) -> RnnState:
        nothing = memory.features.new_zeros(memory.lengths.shape[0], self.fed)
        source = self.cross_attention.remember(memory)
        steps = None if self.cross_attention.local is None else torch.zeros_like(memory.lengths)
        return RnnState(self.first(ends(memory.features, memory.lengths)), nothing, memory.lengths, source, steps)

    def read(self, embedded: Features, memory: Memory) -> tuple[Source, list[Layer]] | None:
        """What the function of all steps takes of the source and of each layer; None where it does not serve."""
        attention, parts = self.cross_attention, self.cross_attention.parts()
        if (
            parts is None
            or not self.training
            or attention.watched
            or not can_run_native(embedded, memory.features, *self.parameters(), dtypes=DTYPES, in_training=True)
        ):
            return None
        if any(parameter.dtype != torch.float32 for parameter in self.parameters()):
            return None
        values = memory.features.to(product_dtype(memory.features))
        source = Source(values, attention.score.lower_key(values).features, memory.lengths, *parts)
        first = self.first(ends(memory.features, memory.lengths))
        return source, [Layer(one.hidden, one.cell, *layer.parameters()) for layer, one in zip(self.recurrent.layers, first, strict=True)]

    def remembered(self, state: RnnState) -> KeyValueCache:
        """The source's keys and values."""
        assert state.source is not None
        return state.source

    def tell(self, queries: list[Tensor], state: RnnState) -> None:
        """Report one map of all steps, whose queries (B, E) these are; nothing where nobody watched."""
        if queries:
            self.cross_attention.tell(torch.stack(queries, 1), self.remembered(state), state.lengths, state.ahead(len(queries)))


class BahdanauDecoder(AttendingDecoder):
    """Attention from the state before the step; the context enters the step.

        c_t = Σⱼ α(s_{t−1}, h_j) h_j,  s_t = f(s_{t−1}, [e_t; c_t]),  output = tanh(W [s_t; e_t; c_t])

    Source: Bahdanau et al. (2015), §3.1 and A.1.2, arXiv 1409.0473; there the output is a maxout of s_{t−1}, e_t and c_t, here
    a tanh of s_t, e_t and c_t. With token_in_query it is asked by s_{t−1} + P e_t + b instead.
    """

    def __init__(self, settings: RnnSettings) -> None:
        super().__init__(settings, settings.memory_width, settings.width + settings.embedding_width + settings.memory_width)
        self.asked = linear(settings.embedding_width, settings.width) if settings.token_in_query else None

    def forward(self, embedded: Features, state: RnnState) -> tuple[Features, RnnState]:
        layers, attention, share = state.layers, self.cross_attention, self.recurrent.share(embedded.shape[-1])
        asked = None if self.asked is None else self.asked(embedded)  # (B, T, E)
        prepared = attention.look(layers[-1].hidden[:, None], self.remembered(state), state.lengths)
        states: list[Tensor] = []
        contexts: list[Tensor] = []
        queries: list[Tensor] = []
        # The tokens are known, so their share in the gates is computed for all steps at once.
        for place, gates in enumerate(self.recurrent.gates(embedded).unbind(1)):
            query = layers[-1].hidden if asked is None else layers[-1].hidden + asked[:, place]
            context = attention.context(prepared, query[:, None])[:, 0]  # (B, memory_width)
            layers = self.recurrent.step(gates + share(context), layers)
            states.append(layers[-1].hidden)
            contexts.append(context)
            if attention.watched:
                queries.append(query)
        self.tell(queries, state)
        return self.shown(torch.stack(states, 1), embedded, torch.stack(contexts, 1)), replace(state, layers=layers)

    def forced(self, embedded: Features, memory: Memory) -> Features:
        """All steps as one function while training on a CPU, where the extension can; elsewhere one after another."""
        read = self.read(embedded, memory)
        if read is None:
            return super().forced(embedded, memory)
        steps = embedded.transpose(0, 1).to(read[0].values.dtype)  # (T, B, embedding_width)
        asked = None if self.asked is None else torch.matmul(self.asked(steps), read[0].weight)
        states, contexts = bahdanau(steps, *read, asked)
        return self.shown(states, steps, contexts).transpose(0, 1)


class LuongDecoder(AttendingDecoder):
    """Attention from the state behind the step; the context enters the output, and with input feeding the next step.

        s_t = f(s_{t−1}, [e_t; h̃_{t−1}]),  c_t = Σⱼ α(s_t, h_j) h_j,  output = h̃_t = tanh(W [c_t; s_t])

    h̃_0 = 0; without input feeding h̃ does not enter f, and all steps are computed at once. Source: Luong et al. (2015), §3,
    equation 5, and §3.3, arXiv 1508.04025; their attentional vector h̃ is as wide as the state, ours as an embedding.
    """

    def __init__(self, settings: RnnSettings) -> None:
        fed = settings.embedding_width if settings.input_feeding else 0
        super().__init__(settings, fed, settings.memory_width + settings.width)
        self.fed = fed

    def forward(self, embedded: Features, state: RnnState) -> tuple[Features, RnnState]:
        if self.fed:
            return self._one_by_one(embedded, state)
        attention, source, steps = self.cross_attention, self.remembered(state), state.ahead(embedded.shape[1])
        queries, layers = self.recurrent(embedded, state.layers)  # (B, T, E)
        contexts = attention.context(attention.look(queries, source, state.lengths, steps), queries)
        if attention.watched:
            attention.tell(queries, source, state.lengths, steps)
        return self.shown(contexts, queries), replace(state, layers=layers, steps=state.taken(embedded.shape[1]))

    def forced(self, embedded: Features, memory: Memory) -> Features:
        """With input feeding as Bahdanau's; without it, all steps are at once as it is."""
        read = self.read(embedded, memory) if self.fed and isinstance(self.norm, nn.Identity) else None
        if read is None:
            return super().forced(embedded, memory)
        return luong(embedded.transpose(0, 1), *read, self.readout.weight, self.readout.bias).transpose(0, 1)

    def _one_by_one(self, embedded: Features, state: RnnState) -> tuple[Features, RnnState]:
        layers, fed, attention = state.layers, state.beside, self.cross_attention
        share, source = self.recurrent.share(embedded.shape[-1]), self.remembered(state)
        steps = state.ahead(embedded.shape[1])
        prepared = attention.look(layers[-1].hidden[:, None], source, state.lengths, None if steps is None else steps[:, :1])
        outputs: list[Tensor] = []
        queries: list[Tensor] = []
        for place, gates in enumerate(self.recurrent.gates(embedded).unbind(1)):
            layers = self.recurrent.step(gates + share(fed), layers)
            query = layers[-1].hidden
            if steps is not None:
                # each looks about a place of its own
                prepared = attention.look(query[:, None], source, state.lengths, steps[:, place : place + 1])
            fed = self.shown(attention.context(prepared, query[:, None])[:, 0], query)  # (B, embedding_width)
            outputs.append(fed)
            if attention.watched:
                queries.append(query)
        self.tell(queries, state)
        return torch.stack(outputs, 1), replace(state, layers=layers, beside=fed, steps=state.taken(embedded.shape[1]))


DECODERS: dict[str, Callable[[RnnSettings], RnnDecoder]] = {"none": ContextDecoder, "bahdanau": BahdanauDecoder, "luong": LuongDecoder}


def linear(inputs: int, outputs: int) -> nn.Linear:
    """A linear map that starts by Glorot's rule, its bias at 0."""
    layer = nn.Linear(inputs, outputs)
    nn.init.xavier_uniform_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer
