import io
import json
import sys
from pathlib import Path

import pytest

TEXT = "the dog was [MASK] , so it [MASK] ."


def test_each_blank_has_its_words_and_what_it_looked_at(attent, filling_folder: Path) -> None:
    done = attent("fill", filling_folder, TEXT, "--top-k", 3)
    assert (done.code, done.err) == (0, [])
    assert done.out[0] == TEXT
    assert [line for line in done.out if line.startswith("  blank")] == ["  blank 1", "  blank 2"]
    assert len([line for line in done.out if " %  " in line]) == 6
    assert len([line for line in done.out if line.startswith("  looked at  ")]) == 2


def test_a_blank_may_be_underscores(attent, filling_folder: Path) -> None:
    done = attent("fill", filling_folder, "the dog was _____, so it ___ .")
    assert (done.code, done.err, done.out[0]) == (0, [], "the dog was _____, so it ___ .")
    assert done.out[1:] == attent("fill", filling_folder, TEXT).out[1:]


def test_json_has_every_weight(attent, filling_folder: Path) -> None:
    done = attent("fill", filling_folder, TEXT, "--json", "--layer", 0, "--head", 1)
    report = json.loads(done.out[0])
    assert [blank["place"] for blank in report["blanks"]] == [3, 7]
    assert [entry["piece"] for entry in report["blanks"][0]["looks"]] == TEXT.split()
    assert sum(entry["weight"] for entry in report["blanks"][0]["looks"]) == pytest.approx(1, abs=1e-5)


def test_lines_come_from_a_file_or_standard_input(
    attent, filling_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "lines.txt"
    file.write_text("the [MASK] slept\n\nthe dog [MASK]\n", encoding="utf-8")
    done = attent("fill", filling_folder, file, "--json")
    assert (done.code, done.err) == (0, [])
    assert [len(json.loads(line)["blanks"]) for line in done.out] == [1, 0, 1]
    assert attent("fill", filling_folder, file).out.count("") == 1
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a [MASK]\n")))
    assert attent("fill", filling_folder, "--json").code == 0


def test_a_line_that_cannot_be_filled_is_named_and_the_others_are(attent, filling_folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "lines.txt"
    file.write_text("the cat\nthe [MASK] slept\nthe un[MASK]\nthe [MASK]\n", encoding="utf-8")
    done = attent("fill", filling_folder, file, "--json")
    assert (done.code, [len(json.loads(line)["blanks"]) for line in done.out]) == (2, [0, 1, 0, 1])
    assert done.err == [
        "line 1: not filled: there is no [MASK] or _____ in 'the cat': write one of them for each blank, as a separate "
        "word",
        "line 3: not filled: [MASK] stands for a whole word: put spaces around it in ' un[MASK]'",
    ]
    plain = attent("fill", filling_folder, file)
    assert (plain.code, plain.out[0], plain.out[1]) == (2, "", "the [MASK] slept")
    # what is asked for by options is no line's fault
    assert attent("fill", filling_folder, file, "--head", 2)[:2] == (2, [""])


def test_words_are_read_as_the_model_knows_them(attent, filling_folder: Path) -> None:
    printed, second = (attent("fill", filling_folder, text) for text in (TEXT, "The Dog was [MASK], so it [MASK]."))
    assert second.err == []
    assert [line for line in second.out if "%" in line] == [line for line in printed.out if "%" in line]
    assert attent("fill", filling_folder, "the bird [MASK]").err == ["line 1: unknown to this model: 'bird'"]
