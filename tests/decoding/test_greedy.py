from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from attent.data.tokenizer import PAD, START, STOP
from attent.decoding.greedy import greedy
from attent.models.encoder_decoder import EncoderDecoder, Memory
from attent.models.transformer import Transformer
from attent.models.transformer_settings import TransformerSettings


@dataclass(frozen=True)
class Echoed:
    source: Tensor
    step: int

    def select(self, rows: Tensor) -> "Echoed":
        return Echoed(self.source[rows], self.step)


class Echo(EncoderDecoder[Echoed]):
    """Says its source again and then STOP; with the forbidden tokens always likelier."""

    def __init__(self) -> None:
        super().__init__()
        self.batches: list[int] = []

    def encode(self, source: Tensor, lengths: Tensor) -> Memory:
        ends = torch.nn.functional.pad(source, (0, 1)).scatter(1, lengths[:, None], STOP)
        return Memory(ends, lengths)

    def decode(self, memory: Memory, tokens: Tensor) -> Tensor:
        raise NotImplementedError

    def start(self, memory: Memory) -> Echoed:
        return Echoed(memory.features, 0)

    def step(self, state: Echoed, tokens: Tensor) -> tuple[Tensor, Echoed]:
        self.batches.append(len(tokens))
        expected = state.source[:, state.step - 1] if state.step else torch.full_like(tokens, START)
        # what a finished or repeated row is given does not matter
        assert state.step == 0 or (tokens == expected).any()
        place = min(state.step, state.source.shape[1] - 1)
        return state.source[:, place, None].float(), Echoed(state.source, state.step + 1)

    def output(self, features: Tensor) -> Tensor:
        logits = torch.nn.functional.one_hot(features[..., 0].long(), 11).float()
        return logits.index_fill(-1, torch.tensor([PAD, START]), 5.0)


SOURCE = torch.tensor([[4, 5, 6, 7, 8], [9, 0, 0, 0, 0], [5, 4, 0, 0, 0]])
LENGTHS = torch.tensor([5, 1, 2])
FAR = torch.tensor([31, 31, 31])


def test_each_sentence_ends_at_its_own_stop() -> None:
    assert greedy(Echo(), SOURCE, LENGTHS, FAR) == [[4, 5, 6, 7, 8], [9], [5, 4]]


def test_each_sentence_has_its_own_limit() -> None:
    assert greedy(Echo(), SOURCE, LENGTHS, torch.tensor([2, 31, 0])) == [[4, 5], [9], []]


def test_nothing_is_asked_where_nothing_may_be_said() -> None:
    model = Echo()
    assert greedy(model, SOURCE, LENGTHS, torch.tensor([0, 0, 0])) == [[], [], []]
    assert model.batches == []


def test_finished_sentences_leave_in_eights() -> None:
    lengths = torch.tensor([*[1] * 9, *[3] * 5, *[5] * 5])
    source = torch.full((19, 5), 7).where(torch.arange(5) < lengths[:, None], PAD)
    model = Echo()
    assert [len(tokens) for tokens in greedy(model, source, lengths, lengths + 31)] == lengths.tolist()
    assert model.batches == [24, 24, 16, 16, 8, 8]


@pytest.mark.parametrize("position", ["sinusoidal", "rotary"])
def test_a_translation_does_not_depend_on_its_neighbours(position: str) -> None:
    settings = TransformerSettings(
        encoder_layers=2, decoder_layers=2, width=16, feed_forward=19, heads=2, position=position, share_embeddings="none"
    )
    model = Transformer(settings, 13, 11).eval()
    lengths = torch.randint(1, 16, (21,))
    source = torch.randint(4, 13, (21, 16)).where(torch.arange(16) < lengths[:, None], PAD)
    together = greedy(model, source, lengths, lengths + 7)
    for row in range(21):
        assert greedy(model, source[row : row + 1], lengths[row : row + 1], lengths[row : row + 1] + 7) == [together[row]]


def test_it_is_the_likeliest_token_of_forced_decoding() -> None:
    model = Transformer(TransformerSettings(width=16, heads=2, encoder_layers=1, decoder_layers=2, share_embeddings="none"), 13, 11).eval()
    source, lengths = torch.randint(4, 13, (3, 16)), torch.tensor([16, 16, 16])
    for row, tokens in enumerate(greedy(model, source, lengths, torch.tensor([5, 6, 7]))):
        given = torch.tensor([[START, *tokens]])
        with torch.no_grad():
            logits = model.output(model.decode(model.encode(source[row : row + 1], lengths[:1]), given))
        logits[..., [PAD, START]] = -torch.inf
        assert logits[0].argmax(-1)[: len(tokens)].tolist() == tokens
