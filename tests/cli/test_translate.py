from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest


def typing(monkeypatch: pytest.MonkeyPatch, text: bytes, *, terminal: bool = False) -> None:
    stream = io.BytesIO(text)
    stream.isatty = lambda: terminal
    monkeypatch.setattr(sys, "stdin", type("Stdin", (), {"buffer": stream})())


def test_one_line_in_one_line_out_in_order(attent, run_folder: Path, tmp_path: Path) -> None:
    lines = ["fr | mardi 3 mars 2026", "", "en | 3/3/26", "fr | 1 mars 1999"]
    file = tmp_path / "lines.txt"
    file.write_text("\n".join(lines), encoding="utf-8")
    done = attent("translate", run_folder, file)
    assert done.code == 0
    assert len(done.out) == 4
    assert done.out[1] == ""
    assert [attent("translate", run_folder, line).out[0] for line in lines if line] == [done.out[0], *done.out[2:]]


def test_standard_input_is_what_a_filter_reads(attent, run_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = attent("translate", run_folder, "fr | mardi 3 mars 2026").out
    for text in (b"fr | mardi 3 mars 2026\n", b"\xef\xbb\xbffr | mardi 3 mars 2026\r\n"):
        for arguments in ((), ("-",)):
            for terminal in (True, False):
                typing(monkeypatch, text, terminal=terminal)
                assert attent("translate", run_folder, *arguments).out == expected


def test_no_line_no_answer(attent, run_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    typing(monkeypatch, b"")
    assert attent("translate", run_folder)[:2] == (0, [])


def test_a_text_may_be_anything_that_is_no_file(attent, run_folder: Path) -> None:
    assert attent("translate", run_folder, "x" * 300).code == 0
    assert attent("translate", run_folder, "a\x00b 2026").code == 0


def test_what_the_model_cannot_know_is_reported(attent, run_folder: Path) -> None:
    done = attent("translate", run_folder, "en | Ж 3, 2026\nno date at all\n\nen | 3/3/2026")
    assert done.code == 0
    assert len(done.out) == 4
    assert done.err[0] == "line 1: unknown to this model: 'Ж' (CYRILLIC CAPITAL LETTER ZHE)"
    assert done.err[1].startswith("line 2: 'no date at all' holds no year")
    # two updates teach nobody to write dates
    assert done.err[2].startswith("line 4: the answer ")
    assert done.err[2].endswith(" is no date")


def test_bytes_that_are_no_text(attent, run_folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "lines.txt"
    file.write_bytes(b"fine\n\xff\xfe\n")
    done = attent("translate", run_folder, file)
    assert done.code == 2
    assert done.err[-1].startswith(f"attent: {file}, line 2: not UTF-8")


def test_a_damaged_run(attent, run_folder: Path, tmp_path: Path) -> None:
    for name in ("config.json", "source.tokenizer.json"):
        (tmp_path / name).write_bytes((run_folder / name).read_bytes())
    (tmp_path / "target.tokenizer.json").write_text("{")
    done = attent("translate", tmp_path, "text")
    assert done.code == 2
    assert len(done.err) == 1
    assert "target.tokenizer.json" in done.err[0]
