"""The hierarchical encoder, beside two recurrent encoders that read one sentence after another."""

from typing import Any

import pytest
import torch
from torch import Tensor

from attent.attention.capture.watch import watch
from attent.errors import ArgumentError
from attent.layers import sentences as layer
from attent.layers.recurrent import ends
from attent.layers.sentences import SentenceEncoder, Sentences
from attent.models.rnn import RNN
from attent.models.settings import RnnSettings

END = 5
# Two sentences and a half; one sentence without an end; three sentences, the second of a single word.
SOURCE = torch.tensor([[6, 7, 5, 8, 9, 4, 5, 7], [9, 8, 7, 0, 0, 0, 0, 0], [4, 5, 6, 5, 8, 8, 9, 0]])
LENGTHS = torch.tensor([8, 3, 7])
SENTENCES = [[(0, 3), (3, 7), (7, 8)], [(0, 3)], [(0, 2), (2, 4), (4, 7)]]


def make(kind: str, **settings: Any) -> RNN:
    torch.manual_seed(0)
    values = {"embedding_width": 6, "width": 10, "sentences": kind, "sentence_ends": (END,), **settings}
    return RNN(RnnSettings.model_validate(values), 11, 13).eval()


def test_a_sentence_ends_with_the_last_of_its_ends() -> None:
    is_end = torch.tensor([[0, 0, 1, 0, 1, 1, 1, 0], [1, 0, 0, 0, 0, 0, 0, 1]], dtype=torch.bool)
    number, word = Sentences.of(is_end)
    assert number.tolist() == [[0, 0, 0, 1, 1, 1, 1, 2], [0, 1, 1, 1, 1, 1, 1, 1]]
    assert word.tolist() == [[0, 1, 2, 0, 1, 2, 3, 0], [0, 0, 1, 2, 3, 4, 5, 6]]
    assert Sentences.of(is_end).spans == [(0, 3), (3, 7), (7, 8)]


def test_a_long_sentence_is_split(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layer, "LONGEST", 3)
    is_end = torch.tensor([[0, 0, 0, 0, 0, 0, 0, 1, 0, 1]], dtype=torch.bool)
    assert Sentences.of(is_end).spans == [(0, 3), (3, 6), (6, 8), (8, 10)]


@pytest.mark.parametrize("cell", ["gru", "lstm"])
@pytest.mark.parametrize("kind", ["vectors", "words"])
@torch.no_grad()
def test_features_are_those_of_sentences_read_one_by_one(kind: str, cell: str) -> None:
    model = make(kind, cell=cell, encoder_layers=2)
    encoder, embedded = model.encoder, model.source_embedding(SOURCE)
    assert isinstance(encoder, SentenceEncoder)
    features = model.encode(SOURCE, LENGTHS).features
    assert features.shape == (3, 8, model.settings.memory_width)
    for text, (row, sentences) in enumerate(zip(embedded, SENTENCES, strict=True)):
        words = [encoder.words(row[None, begin:end], torch.tensor([end - begin])) for begin, end in sentences]
        vectors = [ends(each, torch.tensor([each.shape[1]])) for each in words]
        states = encoder.sentences(torch.stack(vectors, 1), torch.tensor([len(vectors)]))[0]
        for (begin, end), of_words, state in zip(sentences, words, states, strict=True):
            expected = state.expand(end - begin, -1)
            if kind == "words":
                (ahead, back), (state_ahead, state_back) = of_words[0].chunk(2, -1), expected.chunk(2, -1)
                expected = torch.cat((ahead, state_ahead, back, state_back), -1)
            torch.testing.assert_close(features[text, begin:end], expected)
        assert not features[text, LENGTHS[text] :].any()


def weights_of(model: RNN) -> tuple[Tensor, Tensor, Tensor]:
    """Return the features, the queries and the weights of a first step."""
    memory = model.encode(SOURCE, LENGTHS)
    with watch(model) as maps:
        model.decode(memory, torch.full((3, 1), 2))
    weights = maps["decoder.cross_attention"]
    return memory.features, weights.query[:, 0, 0], weights.dense()[:, 0, 0]


@torch.no_grad()
def test_sentences_share_their_weight_among_their_words() -> None:
    model = make("vectors", attention="luong", input_feeding=False)
    features, queries, weights = weights_of(model)
    scores = torch.einsum("be,ed,btd->bt", queries, model.decoder.cross_attention.score.weight, features)
    for text, sentences in enumerate(SENTENCES):
        shares = torch.tensor([(end - begin) * float(scores[text, begin].exp()) for begin, end in sentences])
        for (begin, end), share in zip(sentences, shares / shares.sum(), strict=True):
            assert weights[text, begin:end].tolist() == pytest.approx([float(share) / (end - begin)] * (end - begin))


@torch.no_grad()
def test_the_attention_to_words_is_the_product_of_one_to_words_and_one_to_sentences() -> None:
    model = make("words", attention="luong", input_feeding=False)
    features, queries, weights = weights_of(model)
    weight = model.decoder.cross_attention.score.weight
    is_word = torch.tensor([True, False] * 2).repeat_interleave(5)  # [h→; s→; h←; s←]
    for text, sentences in enumerate(SENTENCES):
        product = torch.zeros(8)
        words, states = (
            torch.einsum("e,ed,td->t", queries[text], weight[:, mask], features[text][:, mask])
            for mask in (is_word, ~is_word)
        )
        for begin, end in sentences:
            product[begin:end] = words[begin:end].exp() * states[begin].exp()
        torch.testing.assert_close(weights[text], product / product.sum())


@torch.no_grad()
def test_a_map_shows_both_levels() -> None:
    model = make("words")
    with watch(model) as maps:
        model.decode(model.encode(SOURCE[2:, :7], LENGTHS[2:]), torch.tensor([[2, 7]]))
    spans = model.sentence_spans(SOURCE[2, :7].tolist())
    assert spans == SENTENCES[2]
    weights = maps["decoder.cross_attention"]
    by_sentence = weights.grouped([(0, 1), (1, 2)], spans)[0, 0]
    assert by_sentence.shape == (2, 3)
    torch.testing.assert_close(by_sentence[:, 1], weights.dense()[0, 0, :, 2:4].sum(-1))
    torch.testing.assert_close(by_sentence.sum(-1), torch.ones(2))


@pytest.mark.parametrize("kind", ["vectors", "words"])
@torch.no_grad()
def test_a_text_does_not_change_by_a_bit_with_its_neighbors(kind: str) -> None:
    model, source = make(kind, width=32), torch.randint(4, 11, (8, 16))
    other = source.clone()
    other[1:] = torch.randint(6, 11, (7, 16))
    alone, beside = ([9, 1, 2, 3, 2, 1, 4, 5], [9, 16, 15, 16, 16, 16, 13, 12])
    first, second = (model.encode(each, torch.tensor(lengths)) for each, lengths in ((source, alone), (other, beside)))
    assert torch.equal(first.features[0], second.features[0])
    tokens = torch.randint(2, 13, (8, 5))
    assert torch.equal(model.decode(first, tokens)[0], model.decode(second, tokens)[0])


def test_sentences_need_tokens_that_end_them() -> None:
    with pytest.raises(ArgumentError, match='sentences = "words" needs sentence_ends, the ids of tokens'):
        make("words", sentence_ends=())
    with pytest.raises(ValueError, match='sentence_ends needs sentences = "vectors" or "words"'):
        make("none")
    with pytest.raises(ValueError, match='got "words" and "vectors"'):
        make("words", input="vectors")
