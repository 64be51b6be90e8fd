import math

import pytest
import torch

from attent.models.encoder import EncoderModel
from attent.models.settings import EncoderSettings
from attent.tasks.fill_mask.fill_mask import FillMask
from attent.tasks.fill_mask.task import evaluate_masked_lm
from attent.text.ngrams import Trigrams
from attent.text.tokenizer import SPECIALS
from attent.text.tokenizers import learn

TEXT = ["the dog was tired , so it slept .", "the cat was happy .", "the dog slept ."] * 3


@pytest.fixture
def filler() -> FillMask:
    torch.manual_seed(3)
    tokenizer = learn("word", TEXT)
    settings = EncoderSettings(layers=1, width=8, feed_forward=7, heads=2, position="learned", maximum_length=9)
    return FillMask(EncoderModel(settings, tokenizer.size + 1, tokenizer.size), tokenizer)


def test_every_known_word_is_a_blank_in_turn(filler: FillMask) -> None:
    lines = ["the dog was happy .", "the bird slept .", "the dog " * 7, ""]
    evaluation = evaluate_masked_lm(filler, lines)
    # the bird is unknown, and the third line has more tokens than positions
    assert (evaluation.lines, evaluation.blanks, evaluation.unknown, evaluation.long) == (2, 8, 1, 1)
    assert list(evaluation.scores) == ["model"]
    right, nats = 0, 0.0
    for line in lines[:2]:
        tokens = filler.tokenizer.encode(line)
        for index, token in enumerate(tokens):
            if token >= SPECIALS:
                text = " ".join("[MASK]" if at == index else word for at, word in enumerate(line.split()))
                (blank,) = filler.fill(text, best=1000)
                word = filler.tokenizer.decode([token])
                right += blank.guesses[0].word == word
                nats -= math.log(next(guess.probability for guess in blank.guesses if guess.word == word))
    assert evaluation.scores["model"].accuracy == pytest.approx(100 * right / 8)
    assert evaluation.scores["model"].perplexity == pytest.approx(math.exp(nats / 8), rel=1e-4)


def test_yardsticks_guess_the_same_blanks(filler: FillMask) -> None:
    counted = Trigrams([filler.tokenizer.encode(line) for line in TEXT], filler.tokenizer.size)
    evaluation = evaluate_masked_lm(filler, TEXT[:3], counted)
    assert list(evaluation.scores) == ["model", "unigram", "trigram, left", "trigram, both sides"]
    left, combined = evaluation.scores["trigram, left"], evaluation.scores["trigram, both sides"]
    # "." is the commonest, as "the" is: three each of 18
    assert evaluation.scores["unigram"].accuracy == pytest.approx(100 * 3 / 18)
    assert left.accuracy < combined.accuracy == 100
    assert left.perplexity > combined.perplexity > 1


def test_where_there_is_no_word_nothing_is_guessed(filler: FillMask) -> None:
    assert evaluate_masked_lm(filler, ["", "bird"]) is None
