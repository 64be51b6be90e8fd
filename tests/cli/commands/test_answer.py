from __future__ import annotations

import json
from pathlib import Path

import pytest

PASSAGE = "Anna went to the hall. Ben went to the attic."


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of some updates."""
    from attent.tasks.recipe import follow
    from attent.tasks.settings import parse

    folder = tmp_path_factory.mktemp("answers")
    lines = [f"{PASSAGE}\tWhere is {name}?\t{place}\n" for name, place in (("Anna", "hall"), ("Ben", "attic"))] * 5
    lines += [f"Clara stays in the {place}.\tWhere is Clara?\t{place}\n" for place in ("hall", "attic")] * 5
    (folder / "train.tsv").write_text("".join(lines), encoding="utf-8")
    (folder / "valid.tsv").write_text("Ben is in the hall.\tWhere is Ben?\thall\n", encoding="utf-8")
    settings = f"""
    task = "answer"
    labelled = {{ train = {json.dumps(str(folder / "train.tsv"))}, valid = {json.dumps(str(folder / "valid.tsv"))} }}
    model = {{ layers = 1, width = 16, feed_forward = 16, heads = 2 }}
    training = {{ updates = 3, batch_pairs = 8, precision = "float32", threads = 1 }}
    """.replace("labelled = {", 'labelled = { tokenizer = "word",')
    follow(parse(settings, "small"), folder / "run")
    return folder / "run"


def test_an_answer_is_printed_with_its_probability(attent, run: Path, tmp_path: Path) -> None:
    done = attent("answer", run, PASSAGE, "Where is Anna?")
    assert done.code == 0
    text, probability = done.out[0].split("\t")
    assert text in PASSAGE and 0 < float(probability) < 1
    (tmp_path / "story.txt").write_text(PASSAGE.replace(". ", ".\n") + "\n", encoding="utf-8")
    done = attent("answer", run, tmp_path / "story.txt", "Where is Anna?", "--json")
    result = json.loads(done.out[0])
    assert (done.err, list(result)) == ([], ["text", "begin", "end", "probability"])
    assert PASSAGE.replace(". ", ".\n")[result["begin"] : result["end"]] == result["text"]


def test_unknown_words_are_named_and_wrong_input_is_one_line(attent, run: Path, tmp_path: Path) -> None:
    done = attent("answer", run, "Anna went to the zoo.", "Where is Anna?")
    assert (done.code, done.err) == (0, ["unknown to this run: 'zoo'"])
    for arguments, message in (
        ((PASSAGE, " "), "the question has no words"),
        (("", "Where is Anna?"), "the passage has no words"),
        (("Anna " * 300, "Where is Anna?"), "have 305 tokens, more than the 256 that this run can read"),
        ((tmp_path, "Where is Anna?"), "is a folder, neither a file nor text"),
    ):
        done = attent("answer", run, *arguments)
        assert (done.code, len(done.err)) == (2, 1)
        assert message in done.err[0]


def test_other_commands_take_the_run(attent, run: Path, tmp_path: Path) -> None:
    done = attent("show", run, f"{PASSAGE}\tWhere is Anna?", "--out", tmp_path / "a.html")
    assert done.code == 0 and (tmp_path / "a.html").is_file()
    assert any("Where" in line for line in done.out)
    assert not any("Unknown" in line for line in done.out)
    done = attent("show", run, f"{PASSAGE}\tWhere is the zebra?")
    assert (done.code, done.out[-1]) == (0, "Unknown to this run: 'zebra'.")
    assert attent("walk", run, f"{PASSAGE}\tWhere is Anna?").code == 0
    done = attent("ablate", run, tmp_path / "a.html")
    assert (done.code, "answers questions: attent answer" in done.err[-1]) == (2, True)
    done = attent("evaluate", run)
    assert (done.code, "exact match" in done.out[0], "F1" in done.out[0]) == (0, True, True)
    done = attent("classify", run, PASSAGE)
    assert "answers questions: attent answer" in done.err[-1]
    done = attent("show", run, PASSAGE)
    assert "give a passage, a tab and a question, got 0 tabs" in done.err[-1]
