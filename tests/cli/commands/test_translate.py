from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from attent.search.settings import SearchSettings
from attent.tasks.loading import load
from attent.tasks.translation.glossary import missing

# how `translate` ends where an answer is no date: two updates teach nobody to write them
NO_DATES = 2


def typing(monkeypatch: pytest.MonkeyPatch, text: bytes, *, terminal: bool = False) -> None:
    stream = io.BytesIO(text)
    stream.isatty = lambda: terminal
    monkeypatch.setattr(sys, "stdin", type("Stdin", (), {"buffer": stream})())


def test_one_line_in_one_line_out_in_order(attent, run_folder: Path, tmp_path: Path) -> None:
    lines = ["fr | mardi 3 mars 2026", "", "en | 3/3/26", "fr | 1 mars 1999"]
    file = tmp_path / "lines.txt"
    file.write_text("\n".join(lines), encoding="utf-8")
    done = attent("translate", run_folder, file)
    assert (done.code, len(done.out)) == (NO_DATES, 4)
    assert done.out[1] == ""
    single = [attent("translate", run_folder, line) for line in lines if line]
    assert [(item.code, *item.out) for item in single] == [(NO_DATES, line) for line in (done.out[0], *done.out[2:])]


def test_standard_input_is_what_a_filter_reads(attent, run_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "fr | mardi 3 mars 2026"
    expected = attent("translate", run_folder, text, "--max-length", 4)[:2]
    assert expected[0] == NO_DATES
    for encoding, end, arguments, terminal in (("utf-8", "\n", (), True), ("utf-8-sig", "\r\n", ("-",), False)):
        typing(monkeypatch, f"{text}{end}".encode(encoding), terminal=terminal)
        assert attent("translate", run_folder, *arguments, "--max-length", 4)[:2] == expected
    typing(monkeypatch, b"")
    assert attent("translate", run_folder) == (0, [], ["standard input is empty: nothing to translate"])
    assert attent("translate", run_folder, "") == (0, [], ["the text is empty: nothing to translate"])


def test_unknown_characters_and_refused_lines_are_reported(attent, run_folder: Path, tmp_path: Path) -> None:
    done = attent("translate", run_folder, "en | Ж 3, 2026\nno date at all\n\nen | 3/3/2026")
    assert (done.code, len(done.out)) == (NO_DATES, 4)
    assert done.err[0] == "line 1: unknown to this model: 'Ж' (CYRILLIC CAPITAL LETTER ZHE)"
    assert done.err[1].startswith("line 1: the answer ")
    assert done.err[2].startswith("line 2: 'no date at all' has no four-digit year")
    assert done.out[1] == ""
    assert done.err[3].startswith("line 4: the answer ") and done.err[3].endswith(" is not a date")
    # a refused line has no score
    file = tmp_path / "lines.txt"
    file.write_text("en | 3/3/2026\nbanana\n\n", encoding="utf-8")
    done = attent("translate", run_folder, file, "--format", "jsonl")
    assert done.code == NO_DATES
    written, refused, empty = map(json.loads, done.out)
    assert written["translations"][0]["score"] < 0
    absent = [{"text": "", "score": None, "log_probability": None, "length_penalty": None}]
    why = "'banana' has no four-digit year from 1800 to 2200"
    assert refused == {"source": "banana", "translations": absent, "error": why}
    assert empty == {"source": "", "translations": absent}
    for command in ("show", "walk"):
        assert attent(command, run_folder, "banana")[::2] == (2, [f"attent: {why}"])
    file.write_bytes(b"fine\n\xff\xfe\n")
    done = attent("translate", run_folder, file)
    # the good line before it has its answer
    assert (done.code, len(done.out)) == (2, 1)
    assert done.err[-1].startswith(f"attent: {file}, line 2: not UTF-8")


def test_a_damaged_run(refused, run_folder: Path, tmp_path: Path) -> None:
    for name in ("config.json", "source.tokenizer.json"):
        (tmp_path / name).write_bytes((run_folder / name).read_bytes())
    (tmp_path / "target.tokenizer.json").write_text("{")
    assert "target.tokenizer.json" in refused("translate", tmp_path, "text")


def test_with_n_best_each_translation_has_a_line(attent, run_folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "lines.txt"
    file.write_text("en | 3/3/2026\n\nen | 3/4/2026\n", encoding="utf-8")
    options = ("--beam", 3, "--max-length", 6, "--length-penalty", 1)
    done = attent("translate", run_folder, file, *options, "--n-best", 2, "--batch", 1)
    assert done.code == NO_DATES
    fields = [line.split(" ||| ") for line in done.out]
    assert [field[0] for field in fields] == ["0", "0", "1", "2", "2"]
    for _, _, parts, score in fields:
        values = [float(part.split("=")[1]) for part in parts.split()]
        assert values[0] / values[1] == pytest.approx(float(score), abs=1e-5)
    single = attent("translate", run_folder, file, *options, "--batch", 2)
    assert single.code == NO_DATES
    assert single.out == [fields[index][1] for index in (0, 2, 3)]


def test_a_json_object_a_line(attent, run_folder: Path) -> None:
    text = "en | 3/3/2026"
    options = "--format jsonl --sample --n-best 3 --seed 4 --top-p 0.9 --alignments"
    (written,) = map(json.loads, attent("translate", run_folder, text, *options.split()).out)
    assert written["source"] == text and len(written["translations"]) == 3
    for translation in written["translations"]:
        assert set(translation) == {"text", "score", "log_probability", "length_penalty", "alignment"}
        assert translation["score"] == translation["log_probability"] / translation["length_penalty"]


def test_alignments_are_of_words(attent, run_folder: Path) -> None:
    options = "--prefix 20 --max-length 4 --alignments --no-repeat-ngram 2"
    text, alignment = attent("translate", run_folder, "en | 3/3/2026", *options.split()).out[0].split(" ||| ")
    assert text.startswith("20")
    # two updates leave the model looking anywhere, but a single word of dates it writes
    assert alignment in ("0-0", "1-0", "2-0")


def test_unknown_pieces_are_replaced_by_what_is_read(attent, run_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from attent.search.search import Translation
    from attent.tasks.translation.translator import Translator
    from attent.text.tokenizer import UNK

    def search_unknown(self: Translator, texts: list[str], *_: object, **__: object) -> list[list[Translation]]:
        return [[Translation((UNK, *self.target_tokenizer.encode("20")), -1.0, 1.0, "20", self.read(texts[0]))]]

    monkeypatch.setattr(Translator, "search", search_unknown)
    assert attent("translate", run_folder, "3")[:2] == (NO_DATES, ["20"])
    assert attent("translate", run_folder, "3", "--replace-unknown")[:2] == (NO_DATES, ["320"])
    assert attent("translate", run_folder, "3", "--replace-unknown", "--alignments")[:2] == (NO_DATES, ["320 ||| 0-0"])


def test_terms_are_translated_as_told(attent, run_folder: Path, tmp_path: Path) -> None:
    terms, lines = tmp_path / "terms.tsv", tmp_path / "lines.txt"
    terms.write_text("mars\t1-2\n", encoding="utf-8")
    lines.write_text("fr | mardi 3 mars 2026\nfr | 3 avril 2026\n", encoding="utf-8")
    translate = ("translate", run_folder, lines, "--max-length", 9)
    done, plain = attent(*translate, "--glossary", terms), attent(*translate)
    assert not missing(done.out[0], ["1-2"]) and done.out[1] == plain.out[1]
    terms.write_text("mars\t#\n", encoding="utf-8")
    says = f"attent: {terms}: the run cannot write the term '#': its vocabulary lacks a part of it"
    assert attent("translate", run_folder, lines, "--glossary", terms)[1:] == ([], [says])


def test_several_runs_are_an_ensemble(
    attent, refused, run_folder: Path, settings_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other, text = tmp_path / "other", "fr | mardi 3 mars 2026"
    assert attent("train", "--config", settings_file, "--out", other, "--set", "training.seed=7").code == 0
    options = ("--max-length", 4, "--format", "jsonl", "--beam", 3)

    def best(*runs: Path) -> dict[str, Any]:
        return json.loads(attent("translate", *runs, text, *options).out[0])["translations"][0]

    both = best(run_folder, other)
    expected = load([run_folder, other]).search(text, SearchSettings(beam=3, maximum_length=4))[0]
    assert (both["text"], both["log_probability"]) == (expected.text, pytest.approx(expected.log_probability, abs=1e-5))
    assert both == best(other, run_folder)
    assert both["log_probability"] not in (best(run_folder)["log_probability"], best(other)["log_probability"])
    typing(monkeypatch, text.encode())
    assert json.loads(attent("translate", run_folder, other, *options).out[0])["translations"][0] == both
    assert "quote a text of several words" in refused("translate", run_folder, "a", "b")
    assert "is not a run folder" in refused("translate", run_folder, tmp_path, "b")


def test_a_text_may_be_longer_than_a_path(attent, run_folder: Path) -> None:
    # a name has at most 255 bytes, and a path 4,096
    for text in ("en | 3/3/2026 " * 30, "en | 3/3/2026 " * 400):
        done = attent("translate", run_folder, text, "--max-length", 4)
        assert (done.code, len(done.out)) == (NO_DATES, 1)
