import math

import pytest
import torch

from attent.attention.capture.watch import watch
from attent.errors import ArgumentError, DataError
from attent.models.encoder import EncoderModel
from attent.models.settings import EncoderSettings
from attent.tasks.fill_mask.fill_mask import FillMask
from attent.tasks.fill_mask.task import evaluate_masked_lm
from attent.text.tokenizer import SPECIALS
from attent.text.tokenizers import learn

TEXTS = ["the dog was tired , so it slept .", "the cat was happy ."] * 9
TEXT = "the dog was [MASK] , so it [MASK] ."


def test_every_blank_has_its_best_words_and_where_it_looked(filler: FillMask) -> None:
    first, second = filler.fill(TEXT, best=3)
    assert (first.position, second.position) == (3, 7)
    for blank in (first, second):
        chances = [guess.probability for guess in blank.guesses]
        assert len(chances) == 3
        assert chances == sorted(chances, reverse=True)
        assert [entry.piece for entry in blank.attention] == TEXT.split()
        assert sum(entry.weight for entry in blank.attention) == pytest.approx(1, abs=1e-5)
        assert blank.top_attended(2)[0].weight == max(entry.weight for entry in blank.attention)
    texts = [TEXT, "the [MASK]"]
    assert filler.fill(texts, 2, layer=1) == [filler.fill(text, 2, layer=1) for text in texts]
    assert filler.fill([]) == []


def test_probabilities_are_those_of_all_words_and_of_nothing_else(filler: FillMask) -> None:
    (only,) = filler.fill("the [MASK]", best=1000)
    assert len(only.guesses) == filler.tokenizer.size - SPECIALS
    assert sum(guess.probability for guess in only.guesses) == pytest.approx(1)
    assert {guess.word for guess in only.guesses} >= {"dog", "slept", "."}


@pytest.mark.parametrize("kind", ["bpe", "char"])
def test_bytes_of_characters_are_not_guessed(kind: str) -> None:
    torch.manual_seed(3)
    tokenizer = learn(kind, TEXTS)
    settings = EncoderSettings(layers=1, width=8, feed_forward=7, heads=2)
    model = EncoderModel(settings, tokenizer.size + 1, tokenizer.size)
    (only,) = FillMask(model, tokenizer).fill("the [MASK]", best=1000)
    words = [guess.word for guess in only.guesses]
    assert len(words) == sum(bool(tokenizer.piece(token)) for token in range(tokenizer.size))
    assert "s" in words
    assert not any("\ufffd" in word for word in words)


def test_the_looks_are_the_mean_of_heads_and_layers_or_of_those_named(filler: FillMask) -> None:
    with watch(filler.model) as captured:
        filler.fill(TEXT)
    weights = torch.stack([item[0, head, 3] for item in captured.values() for head in range(2)])
    cases = (({}, weights.mean(0)), ({"layer": 1}, weights[2:].mean(0)), ({"layer": 0, "head": 1}, weights[1]))
    for options, expected in cases:
        selectors = filler.fill(TEXT, **options)[0].attention
        assert [selector.weight for selector in selectors] == pytest.approx(expected.tolist(), abs=1e-6)


def test_maps_have_the_pieces_at_both_axes(filler: FillMask) -> None:
    maps = filler.map("the [MASK] slept")
    assert list(maps) == ["encoder.layers.0.self_attention", "encoder.layers.1.self_attention"]
    for attention_map in maps.values():
        assert attention_map.rows == attention_map.columns == (" the", "[MASK]", " slept")
        assert attention_map.weights.shape == (1, 2, 3, 3)
        assert attention_map.gradients is None
    for attention_map in filler.map("the [MASK] slept", gradients=True).values():
        assert attention_map.gradients is not None
        # the guess is made from the position of the mask
        assert bool(attention_map.gradients.dense()[:, :, 1].any())


def test_a_text_without_a_blank_has_maps_and_a_forward_pass(filler: FillMask) -> None:
    text = "the dog slept"
    with watch(filler.model) as captured:
        filler.features(text)
    for attention_map, expected in zip(filler.map(text, gradients=True).values(), captured.values(), strict=True):
        assert attention_map.rows == (" the", " dog", " slept")
        torch.testing.assert_close(attention_map.weights.dense(), expected.dense())
        assert attention_map.gradients is None
    assert filler.forward_pass(text).rows is None
    assert filler.forward_pass("the _____ slept").rows == [1]
    with pytest.raises(DataError, match="a text without tokens has no attention to show"):
        filler.map("")


def test_what_cannot_be_filled_is_said(filler: FillMask) -> None:
    with pytest.raises(ArgumentError, match="layer must be from 0 to 1, got 2"):
        filler.fill(TEXT, layer=2)
    with pytest.raises(ArgumentError, match="head must be from 0 to 1, got -1"):
        filler.fill(TEXT, head=-1)


def test_features_begin_with_the_embeddings_and_end_with_what_predicts(filler: FillMask) -> None:
    text = "the dog was happy ."
    features = filler.features(text)
    layers, width = filler.model.settings.layers, filler.model.settings.width
    assert features.shape == (layers + 1, 5, width)
    tokens = torch.tensor([filler.tokenizer.encode(text)])
    torch.testing.assert_close(features[-1], filler.model(tokens, torch.tensor([5]))[0])
    assert filler.features(text, "dog").equal(features[:, 1])
    assert filler.features("the [MASK] was happy .", "[MASK]").shape == (layers + 1, width)
    with pytest.raises(DataError, match="'cow' is not one of the pieces of 'the dog': the, dog"):
        filler.features("the dog", "cow")
    with pytest.raises(DataError, match="not one of the pieces"):
        filler.features("")


LINES = ["the dog was tired , so it slept .", "the cat was happy .", "the dog slept ."] * 3


@pytest.fixture
def short() -> FillMask:
    """A model that reads nine positions."""
    torch.manual_seed(3)
    tokenizer = learn("word", LINES)
    settings = EncoderSettings(layers=1, width=8, feed_forward=7, heads=2, position="learned", maximum_length=9)
    return FillMask(EncoderModel(settings, tokenizer.size + 1, tokenizer.size), tokenizer)


def test_every_known_word_is_a_blank_in_turn(short: FillMask) -> None:
    lines = ["the dog was happy .", "the bird slept .", "the dog " * 7, ""]
    evaluation = evaluate_masked_lm(short, lines)
    # the bird is unknown, and the third line has more tokens than positions
    assert (evaluation.lines, evaluation.blanks, evaluation.unknown, evaluation.long) == (2, 8, 1, 1)
    right, nats = 0, 0.0
    for line in lines[:2]:
        tokens = short.tokenizer.encode(line)
        for index, token in enumerate(tokens):
            if token >= SPECIALS:
                text = " ".join("[MASK]" if at == index else word for at, word in enumerate(line.split()))
                (blank,) = short.fill(text, best=1000)
                word = short.tokenizer.decode([token])
                right += blank.guesses[0].word == word
                nats -= math.log(next(guess.probability for guess in blank.guesses if guess.word == word))
    assert evaluation.accuracy == pytest.approx(100 * right / 8)
    assert evaluation.perplexity == pytest.approx(math.exp(nats / 8), rel=1e-4)
    assert evaluate_masked_lm(short, ["", "bird"]) is None
