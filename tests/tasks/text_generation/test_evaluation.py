import math

import numpy as np
import pytest
import torch

from attent.tasks.text_generation.task import evaluate_language_model
from attent.tasks.text_generation.text_generator import TextGenerator
from attent.text.ngrams import Trigrams
from attent.text.tokenizer import BOS, EOS

TRAINED = ["the dog was tired , so it slept .", "the cat was happy .", "the dog slept ."] * 3
LINES = ["the dog was happy .", "", "the cat slept , so it was tired ."]


@pytest.fixture
def trigrams(generator: TextGenerator) -> Trigrams:
    return Trigrams([generator.tokenizer.encode(line) for line in TRAINED], generator.tokenizer.size)


def test_every_token_and_every_end_counts(generator: TextGenerator, trigrams: Trigrams) -> None:
    report = evaluate_language_model(generator, LINES, trigrams)
    encoded = [generator.tokenizer.encode(line) for line in LINES if line]
    assert (report.lines, report.tokens, report.unknown, report.long) == (2, sum(map(len, encoded)) + 2, 0, 0)
    assert report.bytes == len("\n".join([LINES[0], LINES[2], ""]))
    nats = 0.0
    for line in encoded:
        with torch.no_grad():
            logits = generator.model.double().output(generator.model(torch.tensor([[BOS, *line]])))[0]
        nats -= float(logits.log_softmax(-1)[range(len(line) + 1), [*line, EOS]].sum())
    model = report.scores["model"]
    assert model.nats == pytest.approx(nats / report.tokens, abs=1e-5)
    assert model.bits == pytest.approx(model.nats / math.log(2))
    assert model.bits_per_byte == pytest.approx(model.bits * report.tokens / report.bytes)
    assert model.perplexity == pytest.approx(math.exp(model.nats))


def test_baselines_are_distributions_of_the_same_tokens(generator: TextGenerator, trigrams: Trigrams) -> None:
    report = evaluate_language_model(generator, LINES[:1], trigrams)
    line = [*generator.tokenizer.encode(LINES[0]), EOS]
    by_hand = [math.log(trigrams.left_context(line, index)[token]) for index, token in enumerate(line)]
    assert report.scores["trigram"].nats == pytest.approx(-sum(by_hand) / len(line))
    counts = trigrams.unigrams + 1
    assert report.scores["unigram"].nats == pytest.approx(-np.log(counts[line] / counts.sum()).mean())
    assert report.scores["trigram"].nats < report.scores["unigram"].nats


def test_without_counts_there_is_the_model_alone(generator: TextGenerator) -> None:
    report = evaluate_language_model(generator, LINES)
    assert list(report.scores) == ["model"]
    assert evaluate_language_model(generator, ["", ""]) is None


def test_unknown_words_are_counted_and_long_lines_left_out(generator: TextGenerator) -> None:
    report = evaluate_language_model(generator, ["the bird was a bird ."])
    assert report.unknown == 3
    generator.model.__class__ = type("Short", (type(generator.model),), {"longest": 5})
    report = evaluate_language_model(generator, ["the dog slept .", "the dog was tired ."])
    assert (report.lines, report.long) == (1, 1)


def test_running_text_is_read_across_its_lines(generator: TextGenerator) -> None:
    running = TextGenerator(generator.model, generator.tokenizer, context=5, stops_at_line_end=False)
    by_line, by_window = evaluate_language_model(generator, LINES), evaluate_language_model(running, LINES)
    text = [token for line in LINES if line for token in (*generator.tokenizer.encode(line), EOS)]
    assert by_window.tokens == by_line.tokens == len(text)
    assert by_window.scores["model"].nats == pytest.approx(-float(running.log_probs(text).mean()))
    assert by_window.scores["model"].nats != pytest.approx(by_line.scores["model"].nats, abs=1e-6)
