from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from _plain_pytorch import (
    PlainLanguageModel,
    PlainRnn,
    PlainTransformer,
    sdpa,
    sdpa_scale,
    tanh_scores,
    textbook_attention,
    training_update,
)
from torch import nn

from attent.attention import attend, choices
from attent.attention.scores import SCORES, Additive, Dot, ScaledDot
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


@pytest.mark.parametrize("name", sorted(SCORES))
@pytest.mark.parametrize("causal", [False, True])
def test_the_textbook_is_the_formula(name: str, causal: bool) -> None:
    query, key, value = (torch.randn(2, 3, 7, 5) for _ in range(3))
    score = choices.score_for(name, 5, 5, 3)
    expected = attend(query, key, value, score=score, mask="causal" if causal else None, implementation="reference")
    torch.testing.assert_close(textbook_attention(query, key, value, score, causal=causal), expected)


def test_scores_of_tanh_form_by_hand() -> None:
    score = Additive(1, 1, 1, bias=False, v=False)
    torch.nn.init.ones_(score.query_weight)
    torch.nn.init.ones_(score.key_weight)
    scores = tanh_scores(torch.tensor([[[[0.5]]]]), torch.tensor([[[[0.5], [-0.5]]]]), score)
    assert scores.flatten().tolist() == pytest.approx([0.761594, 0.0], abs=1e-6)


def test_the_fused_function_has_two_scores() -> None:
    query, key, value = (torch.randn(2, 3, 7, 5) for _ in range(3))
    for score in (Dot(), ScaledDot(), ScaledDot(scale=0.3)):
        scale = sdpa_scale(score, 5)
        torch.testing.assert_close(
            sdpa(query, key, value, scale, causal=True), textbook_attention(query, key, value, score, causal=True)
        )
    assert sdpa_scale(choices.score("cosine"), 5) is None


def test_dropout_drops() -> None:
    query = torch.randn(1, 1, 9, 4)
    assert not torch.equal(
        textbook_attention(query, query, query, Dot(), dropout=0.5), textbook_attention(query, query, query, Dot())
    )


RNN = RnnSettings(embedding_width=6, width=8, encoder_width=5)


def batch(source: list[list[int]], target: list[list[int]]) -> Batch:
    sources, targets = torch.tensor(source), torch.tensor(target)
    lengths = [(tensor != 0).sum(1) for tensor in (sources, targets)]
    return Batch(sources, lengths[0], targets, targets, lengths[1], int(lengths[1].sum()))


@torch.no_grad()
def test_packed_sequences_are_read_without_their_padding() -> None:
    model = PlainRnn(RNN, 13, packed=True).eval()
    inputs = batch([[5, 6, 7, 0, 0], [4, 5, 9, 8, 7]], [[2, 5, 6, 7], [2, 4, 8, 9]])
    logits = model(inputs)
    assert logits.shape == (2, 4, 13)
    torch.testing.assert_close(model(batch([[5, 6, 7]], [[2, 5, 6, 7]]))[0], logits[0])
    later = inputs.target_in.clone()
    later[:, 3] = 11
    torch.testing.assert_close(model(replace(inputs, target_in=later))[:, :3], logits[:, :3])


@torch.no_grad()
def test_without_padding_packed_or_not_is_the_same() -> None:
    packed, padded = (PlainRnn(RNN, 13, packed=packed).eval() for packed in (True, False))
    padded.load_state_dict(packed.state_dict())
    inputs = batch([[5, 6, 7], [4, 5, 9]], [[2, 5], [2, 4]])
    torch.testing.assert_close(packed(inputs), padded(inputs))


def test_it_is_about_as_large_as_ours() -> None:
    from _training import rnn

    from attent.models.build import build

    def size(model: torch.nn.Module) -> int:
        return sum(parameter.numel() for parameter in model.parameters())

    plain, attent = size(PlainRnn(rnn(), 500, packed=True)), size(build(rnn(), 500, 500))
    assert abs(plain - attent) < 0.05 * attent


TRANSFORMER = TransformerSettings(encoder_layers=1, decoder_layers=2, width=8, feed_forward=12, heads=2)


@torch.no_grad()
def test_no_step_sees_later_tokens_or_padding() -> None:
    model = PlainTransformer(TRANSFORMER, 13).eval()
    inputs = batch([[5, 6, 7, 0, 0], [4, 5, 9, 8, 7]], [[2, 5, 6, 7], [2, 4, 8, 9]])
    logits = model(inputs)
    assert logits.shape == (2, 4, 13)
    later = inputs.target_in.clone()
    later[:, 3] = 11
    torch.testing.assert_close(model(replace(inputs, target_in=later))[:, :3], logits[:, :3])
    single = batch([[5, 6, 7]], [[2, 5, 6, 7]])
    torch.testing.assert_close(model(single)[0], logits[0])


def test_it_is_as_large_as_ours() -> None:
    from _training import transformer

    from attent.models.build import build

    def size(model: torch.nn.Module) -> int:
        return sum(parameter.numel() for parameter in model.parameters())

    plain, attent = size(PlainTransformer(transformer("tiny"), 500)), size(build(transformer("tiny"), 500, 500))
    assert abs(plain - attent) < 0.01 * attent


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
