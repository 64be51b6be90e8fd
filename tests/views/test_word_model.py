"""The trained model of `attent walk`: what it learned, and what it does with words that it does not know."""

from __future__ import annotations

from importlib.resources import files

import pytest
import torch

from attent.views.walk import WORD_MODEL, walk, word_model


def weights(text: str) -> dict[str, str]:
    """Return the word with the largest weight of each word, which occurs once."""
    step = walk(text).steps["weights"]
    return {word: step.columns[row.argmax()] for word, row in zip(step.rows, step.values[0, 0], strict=True)}


def test_the_file_is_small() -> None:
    assert len(files("attent.views").joinpath(WORD_MODEL).read_bytes()) <= 50_000
    model = word_model()
    assert model.tensors["embeddings"].shape == (len(model.words), model.width)
    assert model.tensors["logits.weight"].shape == (len(model.forms), model.width)


@pytest.mark.parametrize(
    ("text", "pairs"),
    [
        ("the black dog sings", {"the": "dog", "black": "dog", "sings": "dog"}),
        ("The cat sat on the mat", {"sat": "cat", "the": "mat"}),
        ("the dog was happy", {"happy": "dog"}),
        ("I ate pizza yesterday", {"ate": "I"}),
    ],
)
def test_a_verb_attends_to_its_subject_and_an_adjective_to_its_noun(text: str, pairs: dict[str, str]) -> None:
    largest = weights(text)
    assert {word: largest[word] for word in pairs} == pairs


@pytest.mark.parametrize(
    ("text", "forms"),
    [
        ("the black dog sings", "le noir chien chante"),
        ("the black cows sing", "les noires vaches chantent"),
        ("the small cow near two black dogs sings", "la petite vache près de deux noirs chiens chante"),
    ],
)
def test_the_whole_layer_ends_in_the_french_form_of_each_word(text: str, forms: str) -> None:
    steps = walk(text, whole=True).steps
    assert " ".join(row[0] for row in steps["probabilities"].cells) == forms
    torch.testing.assert_close(steps["norm"].values, torch.nn.functional.layer_norm(steps["residual"].values, (16,)))


def test_what_was_not_trained_is_random() -> None:
    assert walk("the dog").parts.endswith("trained")
    assert list(walk("the dog").steps)[:3] == ["E", "PE", "X"]
    for options in ({"seed": 0}, {"heads": 2}, {"score": "additive"}, {"position": "rotary"}, {"cross": "the cat"}):
        assert walk("the dog", **options).parts.endswith("seed 0")
    assert torch.equal(walk("the dog", scale=False).steps["Q"].values, walk("the dog", mask="causal").steps["Q"].values)


def test_words_that_the_model_does_not_know_are_named() -> None:
    walkthrough = walk("the zebra sings to the okapi")
    assert walkthrough.parts.endswith(
        "\nThe trained model does not know zebra, to, okapi: one vector for every unknown word."
    )
    embeddings = walkthrough.steps["E"].values[0]
    assert torch.equal(embeddings[1], embeddings[5]) and not torch.equal(embeddings[0], embeddings[1])
    walkthrough = walk("wir kennen nichts")
    assert walkthrough.parts.endswith("\nThe trained model knows none of these words, so the numbers are random.")
    assert torch.equal(walkthrough.steps["X"].values, walk("wir kennen nichts", seed=0).steps["X"].values)
