from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path

import grammar
import numpy as np
import pytest
from grammar import Example, examples, interval, nearest, score_heads, score_trees, verb_objects

from attent.tasks.phrases.corpus import phrases
from attent.tasks.phrases.grammar import EXAMPLES


def pointing(sentences: list[Example]) -> grammar.Weights:
    """Two heads: the first gives every query of these sentences' key the most, the second the next word."""
    keys = {(each.text, each.query): each.key for each in sentences}

    def weights(text: str) -> np.ndarray:
        count = len(text.split())
        both = np.full((2, count, count), 0.01)
        for query in range(count):
            both[0, query, keys.get((text, query), 0)] = 0.5
            both[1, query, min(query + 1, count - 1)] = 0.5
        return both

    return weights


def test_queries_and_keys_are_those_of_the_main_clause() -> None:
    assert examples(EXAMPLES, "root", "nsubj") == [
        Example("the black dog sings", 3, 2),
        Example("the cat sat on the mat", 2, 1),
    ]
    assert examples(EXAMPLES, "root", "obj") == []
    sentences = phrases(5, 300)["test"]
    for text, query, key in examples(sentences, "root", "obj"):
        words = text.split()
        assert words[query] in grammar.VERB_FORMS and words[key] in grammar.NOUN_FORMS and key > query


def test_a_head_that_points_to_the_subject_is_chosen_and_is_better_than_an_offset() -> None:
    parts = phrases(5, 120)
    choice, test = (examples(parts[name], "root", "nsubj") for name in ("valid", "test"))
    result = score_heads(choice, test, pointing([*choice, *test]))
    assert (result["head"], result["share"], result["offset"]) == (0, [100, 100, 100], -1)
    by_hand = 100 * np.mean([each.key - each.query == -1 for each in test])
    assert result["share of the offset"][0] == pytest.approx(by_hand) and 20 < by_hand < 60
    assert result["difference"][0] == pytest.approx(100 - by_hand)
    assert result["share of the nearest"][0] == pytest.approx(
        100 * np.mean([nearest(each) == each.key for each in test])
    )
    reverse = score_heads(
        *([Example(each.text, each.key, each.query) for each in part] for part in (choice, test)), pointing([])
    )
    # the second head attends to the next word, so it is as good as the best offset
    assert (reverse["head"], reverse["offset"], reverse["difference"]) == (1, 1, [0, 0, 0])


def test_trees_of_weights_on_heads_are_right_in_one_direction() -> None:
    sentences = phrases(5, 20)["test"]
    by_text = {sentence.english: sentence for sentence in sentences}

    def weights(text: str) -> np.ndarray:
        heads = by_text[text].heads
        matrix = np.zeros((2, len(heads), len(heads)))
        for word, head in enumerate(heads):
            matrix[1, head, word] = head >= 0
        return matrix

    result = score_trees(sentences[:10], sentences[10:], weights, 2)
    assert (result["chosen"], result["is reversed"], result["tree"][0]) == (1, True, 100)
    assert result["a random tree"][0] < 40 and result["the word before"][0] < result["the word after"][0] < 60


def test_intervals_are_of_the_mean() -> None:
    values = np.random.default_rng(1).random(400)
    mean, low, high = interval(values)
    assert mean == pytest.approx(100 * values.mean())
    assert high - low == pytest.approx(200 * 1.96 * values.std() / 20, rel=0.1)
    assert interval(np.array([1.0, 0.0]), np.array([3.0, 1.0]))[0] == 75


@pytest.mark.parametrize(
    ("caption", "pair"),
    [
        ("a man riding a bike .", ("riding", "bike")),
        ("a girl is holding the small red ball with both hands .", ("holding", "ball")),
        ("two men playing a card game", ("playing", "game")),
        ("a man riding a bike holding a bike .", None),
        ("a man running a race .", None),
    ],
)
def test_objects_end_their_noun_phrase(caption: str, pair: tuple[str, str] | None) -> None:
    assert verb_objects([caption]) == ([] if pair is None else [(caption, *pair)])


def test_the_lines_about_dogs_lack_the_template_of_the_question() -> None:
    example = runpy.run_path(str(grammar.CONFIGS.parent / "examples" / "happy.py"))
    lines = [line for template in example["TEMPLATES"] for line in example["fill"](template)]
    assert len(lines) == len(set(lines)) == 420
    assert "the dog was happy , so he wagged his tail" in example["fill"](example["QUESTION"])
    assert not set(lines) & set(example["fill"](example["QUESTION"]))
    assert not [line for line in lines if ", so he" in line]


@pytest.mark.slow
def test_cells_are_computed_once_and_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(grammar, "phrases", lambda: phrases(40, 12))
    for cell in ("translate", "heads", "dog"):
        arguments = ["grammar.py", cell, "--out", str(tmp_path), "--set", "training.updates=1"]
        monkeypatch.setattr(sys, "argv", [*arguments, "--set", "model.width=8"])
        grammar.main()
        first = (tmp_path / f"{cell}-0.json").read_bytes()
        grammar.main()
        assert (tmp_path / f"{cell}-0.json").read_bytes() == first
    assert len(json.loads(first)["right"]) == 60
    capsys.readouterr()
    monkeypatch.setattr(sys, "argv", ["grammar.py", "report", "--out", str(tmp_path)])
    grammar.main()
    assert capsys.readouterr().out.count("verb → subject") == 1
