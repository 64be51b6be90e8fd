import math

import pytest
import torch
from torch import nn

from attent.models.model import Memory
from attent.models.rnn_decoder import DECODERS, BahdanauDecoder, ContextDecoder, LuongDecoder
from attent.models.settings import RnnSettings

# One feature everywhere, so that every number can be worked out.
ONE = {"embedding_width": 1, "width": 1, "encoder_width": 1}
MEMORY = Memory(torch.tensor([[[0.0, 0.5], [0.25, 1.0]]]), torch.tensor([2]))


def make_halving_decoder(**variant: object) -> nn.Module:
    """A decoder whose weights and biases are all 0: its state halves with every step, and n = 0."""
    decoder = DECODERS[str(variant["attention"])](RnnSettings.model_validate(ONE | variant))
    for parameter in decoder.parameters():
        nn.init.zeros_(parameter)
    return decoder


def test_each_kind_has_its_decoder() -> None:
    assert [*DECODERS.items()] == [("none", ContextDecoder), ("bahdanau", BahdanauDecoder), ("luong", LuongDecoder)]


@pytest.mark.parametrize("attention", DECODERS)
@torch.no_grad()
def test_the_first_state_is_made_of_what_each_direction_read_last(attention: str) -> None:
    decoder = make_halving_decoder(attention=attention)
    decoder.first_state.weight.fill_(1.0)
    state = decoder.start(MEMORY)
    # h→ ends at 0.25 and h← at 0.5; without attention c = tanh(V [0.25; 0.5]) comes between, here with V = 1
    expected = math.tanh(0.75)
    if attention == "none":
        decoder.summary.weight.fill_(1.0)
        state, expected = decoder.start(MEMORY), math.tanh(math.tanh(0.75))
    assert state.layers[0].hidden.item() == pytest.approx(expected)


@torch.no_grad()
def test_bahdanau_by_hand() -> None:
    decoder = make_halving_decoder(attention="bahdanau", score="general")
    decoder.first_state.bias.fill_(math.atanh(0.5))
    decoder.readout.weight.copy_(torch.tensor([[1.0, 0.0, 0.0, 2.0]]))
    output, state = decoder(torch.ones(1, 2, 1), decoder.start(MEMORY))
    # W = 0: both tokens weigh 1/2, c = [0.125; 0.75]; z = 1/2 and n = 0 halve s from 0.5
    assert output[0, :, 0].tolist() == pytest.approx([math.tanh(0.25 + 2 * 0.75), math.tanh(0.125 + 2 * 0.75)])
    assert state.layers[0].hidden.item() == pytest.approx(0.125)


@torch.no_grad()
def test_luong_by_hand() -> None:
    decoder = make_halving_decoder(attention="luong")
    decoder.readout.bias.fill_(0.5)
    # n = tanh(h̃): what was fed is all that moves the state
    decoder.recurrent.layers[0].network.weight_ih_l0[2, 1] = 1.0
    output, state = decoder(torch.ones(1, 2, 1), decoder.start(MEMORY))
    fed = math.tanh(0.5)
    assert output[0, :, 0].tolist() == pytest.approx([fed, fed])
    assert state.beside.item() == pytest.approx(fed)
    assert state.layers[0].hidden.item() == pytest.approx(0.5 * math.tanh(fed))


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
