"""Glossaries of commands."""

from __future__ import annotations

from pathlib import Path

import pytest

from attent.cli.glossaries import read_terms
from attent.errors import ArgumentError, DataError
from attent.tasks.translation.glossary import missing
from attent.text.tokenizer import CharTokenizer


def test_terms_that_a_run_cannot_write_are_named(tmp_path: Path) -> None:
    file = tmp_path / "terms.tsv"
    file.write_text("dog\t12\ncat\t3x\n", encoding="utf-8")
    assert read_terms(file, CharTokenizer("123x")).entries == (("dog", "12"), ("cat", "3x"))
    with pytest.raises(ArgumentError, match="the run cannot write the term '3x'"):
        read_terms(file, CharTokenizer("123"))
    with pytest.raises(DataError, match="nowhere cannot be read: No such file"):
        read_terms(tmp_path / "nowhere", CharTokenizer("123"))


def test_terms_are_translated_as_told(attent, run_folder: Path, tmp_path: Path) -> None:
    terms, lines = tmp_path / "terms.tsv", tmp_path / "lines.txt"
    terms.write_text("mars\t1-2\n", encoding="utf-8")
    lines.write_text("fr | mardi 3 mars 2026\nfr | 3 avril 2026\n", encoding="utf-8")
    done, plain = (
        attent("translate", run_folder, lines, "--max-length", 9, *more) for more in (("--glossary", terms), ())
    )
    assert not missing(done.out[0], ["1-2"]) and done.out[1] == plain.out[1]
    assert not missing(
        attent("translate", run_folder, lines, "--max-length", 9, "--markup", "html", "--glossary", terms).out[0],
        ["1-2"],
    )
    terms.write_text("mars\t#\n", encoding="utf-8")
    says = f"attent: {terms}: the run cannot write the term '#': its vocabulary lacks a part of it"
    assert attent("translate", run_folder, lines, "--glossary", terms)[1:] == ([], [says])
    assert "one of them" in attent("translate", run_folder, lines, "--glossary", terms, "--sample").err[0]
