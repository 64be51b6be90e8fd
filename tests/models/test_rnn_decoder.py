import math

import pytest
import torch
from torch import nn

from attent.models.model import Memory
from attent.models.rnn import RNN
from attent.models.rnn_attention import Local, RecurrentAttention
from attent.models.rnn_decoder import DECODERS, BahdanauDecoder
from attent.models.settings import RnnSettings

# One feature everywhere, so that every number can be worked out.
ONE = {"embedding_width": 1, "width": 1, "encoder_width": 1}
MEMORY = Memory(torch.tensor([[[0.0, 0.5], [0.25, 1.0]]]), torch.tensor([2]))


@pytest.mark.parametrize("attention", DECODERS)
@torch.no_grad()
def test_the_first_state_is_made_of_what_each_direction_read_last(attention: str) -> None:
    decoder = DECODERS[attention](RnnSettings.model_validate(ONE | {"attention": attention}))
    for parameter in decoder.parameters():
        nn.init.zeros_(parameter)
    decoder.first_state.weight.fill_(1.0)
    state = decoder.start(MEMORY)
    # h→ ends at 0.25 and h← at 0.5; without attention c = tanh(V [0.25; 0.5]) comes between, here with V = 1
    expected = math.tanh(0.75)
    if attention == "none":
        decoder.summary.weight.fill_(1.0)
        state, expected = decoder.start(MEMORY), math.tanh(math.tanh(0.75))
    assert state.layers[0].hidden.item() == pytest.approx(expected)


@pytest.mark.parametrize("cell", ["gru", "lstm"])
@torch.no_grad()
def test_every_layer_starts_from_its_own_part(cell: str) -> None:
    decoder = BahdanauDecoder(RnnSettings(cell=cell, decoder_layers=3, width=4, embedding_width=2))
    state = decoder.start(Memory(torch.randn(5, 7, 4), torch.full((5,), 7)))
    hidden = torch.stack([layer.hidden for layer in state.layers])
    assert hidden.shape == (3, 5, 4)
    assert len(hidden.unique(dim=0)) == 3
    assert all((layer.cell is not None) is (cell == "lstm") for layer in state.layers)


@pytest.mark.parametrize("cell", ["gru", "lstm"])
@pytest.mark.parametrize(("attention", "token_in_query"), [*((name, False) for name in DECODERS), ("bahdanau", True)])
@torch.no_grad()
def test_every_kind_is_what_its_paper_writes_step_by_step(attention: str, cell: str, token_in_query: bool) -> None:
    values = {"attention": attention, "cell": cell, "embedding_width": 3, "width": 4, "token_in_query": token_in_query}
    settings = RnnSettings.model_validate(values)
    decoder, memory, embedded = (
        DECODERS[attention](settings),
        Memory(torch.randn(2, 5, 4), torch.tensor([3, 5])),
        torch.randn(2, 6, 3),
    )
    start = decoder.start(memory)
    output, _ = decoder(embedded, start)
    network = decoder.recurrent.layers[0].network
    textbook = (nn.GRUCell if cell == "gru" else nn.LSTMCell)(network.input_size, 4)
    for name, parameter in textbook.named_parameters():
        parameter.copy_(network.get_parameter(f"{name}_l0"))
    state = start.layers[0].hidden if cell == "gru" else (start.layers[0].hidden, start.layers[0].cell)
    hidden, extra = start.layers[0].hidden, start.beside
    hides = torch.arange(5) >= memory.lengths[:, None]

    def context(query: torch.Tensor) -> torch.Tensor:
        scores = decoder.cross_attention.score(query[:, None, None], memory.features[:, None])[:, 0, 0]
        return (scores.masked_fill(hides, -torch.inf).softmax(-1)[:, None] @ memory.features)[:, 0]

    for step, token in enumerate(embedded.unbind(1)):
        if attention == "bahdanau":
            extra = context(hidden + decoder.asked(token) if token_in_query else hidden)
        state = textbook(torch.cat((token, extra), -1), state)
        hidden = state if cell == "gru" else state[0]
        displayed = (context(hidden), hidden) if attention == "luong" else (hidden, token, extra)
        expected = torch.tanh(decoder.readout(torch.cat(displayed, -1)))
        if attention == "luong":
            extra = expected
        torch.testing.assert_close(output[:, step], expected)


@torch.no_grad()
def test_a_scaled_score_is_divided_by_the_root_of_the_memorys_width() -> None:
    scaled, plain = RecurrentAttention(6, 9, "general", scaled=True), RecurrentAttention(6, 9, "general")
    plain.load_state_dict({"score.weight": scaled.get_parameter("score.weight") / 3})
    memory, queries = Memory(torch.randn(2, 5, 9), torch.tensor([3, 5])), torch.randn(2, 4, 6)
    contexts = []
    for attention in (scaled, plain):
        source = attention.cache_kv(memory)
        contexts.append(attention.context(attention.prepare(queries, source, memory.lengths), queries))
    torch.testing.assert_close(*contexts)
    parameters = scaled.fused_parameters
    assert parameters is not None
    torch.testing.assert_close(parameters[0], plain.get_parameter("score.weight"))


def test_centres_are_not_rounded_to_16_bits() -> None:
    local = Local("p", 4, 5)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        centers = local.centers(torch.randn(2, 3, 5).bfloat16(), torch.tensor([9, 4]), torch.zeros(2, 3))
    assert centers.dtype == torch.float32


@torch.no_grad()
def test_a_step_far_behind_the_end_sees_nothing() -> None:
    model = RNN(RnnSettings(attention="luong", local="m", local_window=1, width=8, embedding_width=4), 13, 11).eval()
    state = model.start(model.encode(torch.randint(4, 13, (1, 2)), torch.tensor([2])))
    for step in range(5):
        features, state = model.step(state, torch.tensor([5]))
        assert features.isfinite().all()
        observed = model.decoder.cross_attention.prepare(
            state.layers[-1].hidden[:, None], state.source, state.lengths, torch.tensor([[step]])
        )
        assert bool(observed.call.allowed(observed.call.pairs()).any()) == (step <= 2)
