from __future__ import annotations

import numpy as np
import pytest
import torch

from attent.errors import ArgumentError
from attent.models.encoder import EncoderModel
from attent.models.settings import EncoderSettings
from attent.tasks.question_answering.question_answerer import (
    MAX_ANSWER,
    QuestionAnswerer,
    answer_log_probs,
    best_spans,
    encode_question,
    question_examples,
    words_of,
)
from attent.text.tokenizer import EOS, UNK, CharTokenizer, WordTokenizer
from attent.text.tokenizers import BpeTokenizer

PASSAGE = "Anna went to the hall. Ben,  who is 7, took\nthe hat."
WORDS = WordTokenizer([" Anna", " went", " to", " the", " hall", " .", " ,", " Ben", " where", " is", " ?"])


def answerer(longest: int = 100, **settings: object) -> QuestionAnswerer:
    sizes = {"layers": 2, "width": 16, "feed_forward": 17, "heads": 2} | settings
    model = EncoderModel(EncoderSettings.model_validate(sizes), WORDS.size, 2)
    return QuestionAnswerer(model, WORDS, longest)


@pytest.mark.parametrize("tokenizer", [WORDS, CharTokenizer("abc"), BpeTokenizer.learn([PASSAGE] * 9, 290)])
def test_tokens_are_those_of_words(tokenizer) -> None:
    words = words_of(PASSAGE)
    assert words[:7] == ["Anna", "went", "to", "the", "hall", ".", "Ben"]
    tokens, starts = encode_question(PASSAGE, "where?", tokenizer)
    assert (len(starts), starts[-1], tokens[starts[0] - 1]) == (len(words) + 1, len(tokens), EOS)
    assert tokens[: starts[0] - 1] == [*tokenizer.encode("where"), *tokenizer.encode("?")]
    for word, begin, end in zip(words, starts, starts[1:], strict=False):
        assert tokens[begin:end] == tokenizer.encode(word)
    # a text that the tokenizer skips still has a token
    assert len(starts) == len(set(starts))


def test_probabilities_are_those_of_the_passage_alone() -> None:
    tool = answerer()
    encoded = [encode_question(*pair, WORDS) for pair in ((PASSAGE, "where is Anna ?"), ("Ben went .", "where ?"))]
    examples = question_examples([tokens for tokens, _ in encoded], [starts[:1] for _, starts in encoded])
    batch = examples.batch(np.arange(2))
    probs = answer_log_probs(tool.model, batch).exp()
    torch.testing.assert_close(probs.sum(1), torch.ones(2, 2))
    for row, (tokens, starts) in enumerate(encoded):
        outside = [index for index in range(probs.shape[1]) if not starts[0] <= index < len(tokens)]
        assert not probs[row, outside].any()
    # neither the other passage nor padding changes anything
    alone = question_examples([encoded[1][0]], [encoded[1][1][:1]]).batch(np.zeros(1, np.int64))
    torch.testing.assert_close(answer_log_probs(tool.model, alone).exp()[0, :16], probs[1, :16], rtol=1e-5, atol=1e-6)


def test_the_best_span_is_that_of_a_search_over_all() -> None:
    log_probs = torch.randn(7, 47, 2).log_softmax(1)
    log_probs[:, :5] = -torch.inf
    spans, values = best_spans(log_probs)
    for row in range(7):
        expected = max(
            (float(log_probs[row, first, 0] + log_probs[row, last, 1]), first, last)
            for first in range(47)
            for last in range(first, min(first + MAX_ANSWER, 47))
        )
        assert (spans[row].tolist(), float(values[row])) == ([expected[1], expected[2]], pytest.approx(expected[0]))
    # an end before the begin is no span
    log_probs = torch.full((1, 3, 2), -9.0)
    log_probs[0, 2, 0] = log_probs[0, 0, 1] = 0
    assert best_spans(log_probs)[0].tolist() in ([[0, 0]], [[2, 2]])


def test_an_answer_is_a_part_of_the_passage_as_given() -> None:
    tool = answerer()
    answer = tool.answer(PASSAGE, "where is Anna ?")
    assert answer.text == PASSAGE[answer.span.begin : answer.span.end]
    assert answer.text.split()[0].strip(",.") in PASSAGE
    assert 0 < answer.probability < 1
    both = tool.answers([("Ben went", "where"), (PASSAGE, "where is Anna ?")])
    assert (both[1].text, both[1].span) == (answer.text, answer.span)
    assert both[1].probability == pytest.approx(answer.probability, rel=1e-4)
    assert tool.answers([]) == []


def test_what_cannot_be_read_is_refused() -> None:
    tool = answerer(longest=12)
    for passage, question, message in (
        ("  ", "where ?", "the passage has no words"),
        ("Anna went", "", "the question has no words"),
        ("Anna " * 10, "where ?", "question and passage have 13 tokens, more than the 12 that this run can read"),
    ):
        with pytest.raises(ArgumentError, match=message):
            tool.answer(passage, question)
    assert tool.answer("Anna " * 9, "where ?").text
    # learned positions have a limit of their own
    assert answerer(100, position="learned", maximum_length=16).longest == 16
    assert answerer(100, position="learned", maximum_length=16).answer("Anna " * 13, "where ?").text


def test_maps_have_the_question_and_then_the_passage() -> None:
    tool = answerer()
    maps = tool.map("Anna went to the unknown hall .\twhere is Anna ?", gradients=True)
    assert len(maps) == 2
    for labelled in maps.values():
        assert labelled.rows == labelled.columns
        labels = [label.strip() for label in labelled.rows]
        assert labels == ["where", "is", "Anna", "?", "[SEP]", "Anna", "went", "to", "the", "unknown", "hall", "."]
        assert labelled.weights.shape == labelled.gradients.shape == (1, 2, 12, 12)
    for text in ("Anna went to the hall .", "a\tb\tc"):
        with pytest.raises(ArgumentError, match="give a passage, a tab and a question"):
            tool.map(text)
    assert UNK in encode_question("unknown", "where", WORDS)[0]
