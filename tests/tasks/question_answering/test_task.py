from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pytest
import torch

import attent
from attent.errors import ArgumentError, DataError
from attent.models.build import build
from attent.runs.config import read_config
from attent.tasks.loading import StoredRun
from attent.tasks.question_answering.question_answerer import QuestionAnswerer, answer_log_probs, question_examples
from attent.tasks.question_answering.task import answer_cross_entropy, answer_scores, occurrences, read_questions
from attent.tasks.recipe import follow, resume
from attent.tasks.settings import RunSettings, parse
from attent.tasks.task import task_of
from attent.text.text import ReadReport
from attent.training.progress import Progress

PEOPLE, PLACES = ("Anna", "Ben", "Clara", "David"), ("hall", "attic", "garden", "kitchen")
LINES = [
    f"{first} went to the {place} . {second} went to the {other} .\tWhere is {person} ?\t{answer}"
    for first, second in (("Anna", "Ben"), ("Ben", "Clara"), ("Clara", "David"), ("David", "Anna"))
    for place in PLACES
    for other in PLACES
    if place != other
    for person, answer in ((first, place), (second, other))
]


def settings(folder: Path, lines: list[str] = LINES, **training: object) -> RunSettings:
    (folder / "train.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    base = {"updates": 6, "batch_pairs": 16, "precision": "float32", "threads": 1, "learning_rate": 1e-2}
    values = "\n".join(f"{name} = {json.dumps(value)}" for name, value in (base | training).items())
    return parse(
        f"""
        task = "answer"
        [labelled]
        train = {json.dumps(str(folder / "train.tsv"))}
        validation = 0.2
        tokenizer = "word"
        [model]
        layers = 2
        width = 32
        feed_forward = 33
        heads = 2
        dropout = 0.0
        [training]
        {values}
        """,
        "small.toml",
    )


def test_a_run_answers_questions_of_other_passages(tmp_path: Path) -> None:
    stream = io.StringIO()
    results = follow(settings(tmp_path, updates=250), tmp_path / "run", progress=Progress(stream))
    assert results["validation"]["exact match"] > 90
    assert results["validation"]["F1"] >= results["validation"]["exact match"]
    assert "examples to train on" in stream.getvalue() and "classes" not in stream.getvalue()
    config = read_config(tmp_path / "run")
    assert (config.task, config.tokenizers, list(config.corpus)) == ("answer", {"text": "word"}, ["labelled"])
    tool = attent.load(tmp_path / "run")
    assert isinstance(tool, QuestionAnswerer)
    passage = "David went to the hall . Clara went to the garden ."
    answer = tool.answer(passage, "Where is Clara ?")
    assert (answer.text, answer.span) == ("garden", (43, 49))
    run = StoredRun(tmp_path / "run")
    said: list[str] = []
    evaluation = task_of("answer").evaluate(run, said.append)
    assert evaluation.table["validation"]["exact match"] == results["validation"]["exact match"]
    (tmp_path / "other.tsv").write_text(f"{passage}\tWhere is Clara ?\tthe garden\nno tab\n", encoding="utf-8")
    evaluation = task_of("answer").evaluate(run, said.append, labelled=tmp_path / "other.tsv")
    assert evaluation.table == {str(tmp_path / "other.tsv"): {"examples": 1, "exact match": 100, "F1": 100}}
    assert "1 dropped: not passage, tab, question, tab, answer (line 2)" in said[-1]


def test_a_resumed_training_reads_the_same_examples(tmp_path: Path) -> None:
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    follow(settings(tmp_path), whole)
    follow(settings(tmp_path, updates=3), stopped)
    stream = io.StringIO()
    resume(stopped, {"updates": 6}, progress=Progress(stream))
    assert "warning" not in stream.getvalue()
    assert read_config(stopped).digests["train"] == read_config(whole).digests["train"]


def test_the_loss_sums_over_all_occurrences(tmp_path: Path) -> None:
    model = build(settings(tmp_path).model, 20, 2)
    # the answers of the first are tokens 3 and 4, or 6; that of the second is 2
    batch = question_examples([[5, 6, 3, 7, 8, 9, 7], [5, 3, 9]], [[3, 3, 4, 6, 6], [2, 2, 2]]).batch(np.arange(2))
    probs = answer_log_probs(model, batch).exp()
    first = probs[0, 3, 0] * probs[0, 4, 1] + probs[0, 6, 0] * probs[0, 6, 1]
    expected = -(first.log() + probs[1, 2].log().sum()) / 2
    loss = answer_cross_entropy(model, batch, 0.0, "float32")
    torch.testing.assert_close(loss, expected)
    loss.backward()
    assert all(bool(parameter.grad.isfinite().all()) for parameter in model.parameters() if parameter.grad is not None)
    assert model.to_logits.weight.grad.any()


def test_scores_are_those_of_squad() -> None:
    assert answer_scores(["The hall!"], ["hall"]) == {"exact match": 100, "F1": 100}
    # two of three words of the answer are two of the reference's four: P = 2/3, R = 1/2
    scores = answer_scores(["old red hat", "x"], ["the big, red old hat of", "y"])
    precision, recall = 3 / 3, 3 / 5
    assert scores == {"exact match": 0, "F1": pytest.approx(100 * 2 * precision * recall / (precision + recall) / 2)}
    assert answer_scores(["red red"], ["red"])["F1"] == pytest.approx(100 * 2 / 3)
    # nothing but an article is left of both
    assert answer_scores(["the"], ["a"]) == {"exact match": 100, "F1": 100}


def test_occurrences_are_whole_words() -> None:
    assert occurrences("the hat", "The hat , the hat ; the hats, the\nhat") == [(3, 4), (9, 10)]
    assert occurrences("hat.", "hats. hat .") == [(2, 3)]
    assert occurrences("a b c", "a b") == []


def test_lines_without_an_answer_are_dropped_with_their_numbers(tmp_path: Path) -> None:
    path, report = tmp_path / "a.tsv", ReadReport("a.tsv")
    content = ["a b\twhat?\tb", "a b\twhat?\tc", "", "a b\twhat?", "a b\t?\t ", "a\tb\tc\td", "ab\twhat?\tb", "\t\t"]
    path.write_text("\n".join(content), encoding="utf-8")
    assert [(number, example.text) for number, example in read_questions(str(path), report)] == [(1, content[0])]
    assert report.summary() == [
        "a.tsv: 8 lines read, 1 kept",
        "  2 dropped: the answer is not in the passage, as whole words (lines 2, 7)",
        "  2 dropped: empty line (lines 3, 8)",
        "  3 dropped: not passage, tab, question, tab, answer (lines 4, 5, 6)",
    ]
    path.write_text("a b\twhat?\tc\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"^no line has a passage, a question and an answer; .*\(line 1\)$"):
        read_questions(str(path), ReadReport("a.tsv"))


def test_long_passages_are_left_out(tmp_path: Path) -> None:
    stream = io.StringIO()
    long = "Anna " * 300 + "hall\tWhere ?\thall"
    follow(settings(tmp_path, [*LINES, long]), tmp_path / "run", progress=Progress(stream))
    assert "1 dropped: longer than the 256 tokens" in stream.getvalue()
    with pytest.raises(ArgumentError, match="304 tokens, more than the 256"):
        attent.load(tmp_path / "run").answer(*long.split("\t")[:2])


def test_files_of_labels_are_to_classify_unless_the_task_is_named() -> None:
    from attent.tasks.overrides import tasks_of_table

    assert [task.name for task in tasks_of_table("labelled")] == ["classify", "answer"]
    assert task_of("answer").sizes(None, [type("T", (), {"size": 9})()]) == (9, 2)
