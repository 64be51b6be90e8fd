from dataclasses import replace

import pytest
import torch
from _plain_pytorch import PlainLanguageModel, PlainRnn, PlainTransformer, training_update
from _training import rnn, transformer
from torch import nn

from attent.models.build import build
from attent.models.settings import DecoderSettings, RnnSettings, TransformerSettings
from attent.text.batches import Batch
from attent.training.settings import TrainingSettings

BATCH = Batch(*(torch.tensor(tokens) for tokens in ([[5]], [1], [[2, 4, 0]], [[4, 3, 0]], [2])), tokens=2)


class Table(nn.Module):
    """The logits are the parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.logits = nn.Parameter(torch.zeros(1, 3, 6))

    def forward(self, batch: Batch) -> torch.Tensor:
        return self.logits


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_one_update_of_adam_by_hand(precision) -> None:
    model = Table()
    settings = TrainingSettings(updates=1, batch_tokens=1, learning_rate=0.25, label_smoothing=0.0, clip=None)
    training_update(model, settings, precision)(BATCH)
    # the first step of Adam goes against each gradient's sign, as far as the rate; padding has no gradient
    expected = torch.full((3, 6), -0.25)
    expected[0, 4] = expected[1, 3] = 0.25
    expected[2] = 0
    torch.testing.assert_close(model.logits.detach()[0], expected, atol=1e-4, rtol=0)


def batch(source: list[list[int]], target: list[list[int]]) -> Batch:
    sources, targets = torch.tensor(source), torch.tensor(target)
    lengths = [(tensor != 0).sum(1) for tensor in (sources, targets)]
    return Batch(sources, lengths[0], targets, targets, lengths[1], int(lengths[1].sum()))


RNN = RnnSettings(embedding_width=6, width=8, encoder_width=5)
TRANSFORMER = TransformerSettings(encoder_layers=1, decoder_layers=2, width=8, feed_forward=12, heads=2)


@torch.no_grad()
@pytest.mark.parametrize("model", [PlainRnn(RNN, 13, packed=True), PlainTransformer(TRANSFORMER, 13)])
def test_no_step_sees_later_tokens_or_padding(model: nn.Module) -> None:
    model.eval()
    inputs = batch([[5, 6, 7, 0, 0], [4, 5, 9, 8, 7]], [[2, 5, 6, 7], [2, 4, 8, 9]])
    logits = model(inputs)
    assert logits.shape == (2, 4, 13)
    torch.testing.assert_close(model(batch([[5, 6, 7]], [[2, 5, 6, 7]]))[0], logits[0])
    later = inputs.target_in.clone()
    later[:, 3] = 11
    torch.testing.assert_close(model(replace(inputs, target_in=later))[:, :3], logits[:, :3])


@pytest.mark.parametrize("name", ["rnn", "transformer"])
def test_they_are_about_as_large_as_ours(name: str) -> None:
    settings = rnn() if name == "rnn" else transformer("tiny")
    plain = PlainRnn(settings, 500, packed=True) if name == "rnn" else PlainTransformer(settings, 500)
    sizes = [sum(part.numel() for part in model.parameters()) for model in (plain, build(settings, 500, 500))]
    assert sizes[0] == pytest.approx(sizes[1], rel=0.05 if name == "rnn" else 0.01)


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_a_language_model_writes_what_the_whole_text_makes_likeliest(norm: str) -> None:
    settings = DecoderSettings(layers=2, width=8, feed_forward=12, heads=2, norm=norm)
    model = PlainLanguageModel(settings, 13, longest=5).eval()
    begin = torch.tensor([[2], [7]])
    text = model.generate(begin, 4)
    assert text.shape == (2, 5)
    assert torch.equal(model(text[:, :-1]).argmax(-1), text[:, 1:])
    # longer than what it reads at once, it goes on from the last tokens
    longer = model.generate(begin, 6)
    assert torch.equal(longer[:, :5], text)
    assert torch.equal(longer[:, 6], model(longer[:, 1:6])[:, -1].argmax(-1))
