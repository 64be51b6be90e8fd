"""Documents: files of other programs, and markup."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

# A run that translates a few words of English.
RUN = Path(__file__).parent.parent / "frozen" / "runs" / "pairs"
# an answer that is no date
NO_DATES = 2


def test_documents_come_back_with_their_tags(attent, run_folder: Path, tmp_path: Path) -> None:
    document = "<ul>\r\n  <li>fr | <b>3 mars</b> 2026</li>\r\n  <li>no <i>year</i>\x07</li>\r\n</ul>\r\n"
    file, out = tmp_path / "page.html", tmp_path / "out.html"
    file.write_bytes(document.encode())
    done = attent("translate", run_folder, file, "--max-length", 4, "--out", out)
    # what is refused stays as it was
    assert done.code == NO_DATES and done.err[0].startswith("'no year") and "has no four-digit year" in done.err[0]
    written = out.read_bytes().decode()
    assert re.findall("<[^>]*>", written) == re.findall("<[^>]*>", document)
    assert written.startswith("<ul>\r\n  <li>") and written.endswith("  <li>no <i>year</i>\x07</li>\r\n</ul>\r\n")
    (translation,) = attent("translate", run_folder, "fr | 3 mars 2026", "--max-length", 4).out
    assert re.sub("<[^>]*>", "", written.splitlines()[1]).strip() == translation


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A document of Word, letter.docx."""
    document = pytest.importorskip("docx").Document()
    document.add_heading("the small dog", 1)
    document.add_paragraph("a cat likes the ").add_run("horse").italic = True
    document.sections[0].header.paragraphs[0].text = "a black hen"
    document.save(tmp_path / "letter.docx")
    return tmp_path / "letter.docx"


def test_a_file_of_word_comes_back_as_one(attent, file: Path, tmp_path: Path) -> None:
    out = tmp_path / "brief.docx"
    done = attent("translate", RUN, file, "--out", out)
    assert (done.code, done.out, done.err) == (0, [], [f"{out}: the translation of {file}"])
    document = pytest.importorskip("docx").Document(out)
    heading, paragraph = document.paragraphs
    written = [heading.text, paragraph.text, document.sections[0].header.paragraphs[0].text]
    lines = "the small dog\na cat likes the horse\na black hen"
    assert written == attent("translate", RUN, lines).out and heading.style.name == "Heading 1"
    assert [run.italic for run in paragraph.runs if run.italic] == [True]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["brief.docx", "letter.docx"]


@pytest.mark.parametrize(
    ("ending", "content", "expected"),
    [
        (".html", "<h1>the small dog</h1>\r\n<pre>a dog</pre>\r\n", "<h1>{}</h1>\r\n<pre>a dog</pre>\r\n"),
        (".md", "# the small dog\n\n    a dog\n", "# {}\n\n    a dog\n"),
        (".srt", "1\n00:00:02,000 --> 00:00:03,000\nthe small dog\n", "1\n00:00:02,000 --> 00:00:03,000\n{}\n"),
    ],
)
def test_markup_is_a_document_by_its_name(attent, tmp_path: Path, ending: str, content: str, expected: str) -> None:
    file, out = tmp_path / f"page{ending}", tmp_path / f"seite{ending.upper()}"
    file.write_bytes(content.encode("utf-16"))
    assert attent("translate", RUN, file, "--out", out).code == 0
    translated = expected.format(attent("translate", RUN, "the small dog").out[0])
    assert out.read_bytes().decode("utf-16") == translated


def test_a_document_with_refused_sentences_is_complete_but_for_them(attent, run_folder: Path, tmp_path: Path) -> None:
    file, out = tmp_path / "letter.md", tmp_path / "brief.md"
    file.write_text("# no year\n\nfr | **3 mars** 2026\n", encoding="utf-8")
    done = attent("translate", run_folder, file, "--out", out, "--max-length", 4)
    assert (done.code, done.out) == (NO_DATES, []) and done.err[0].startswith("'no year': ")
    translated = out.read_text(encoding="utf-8")
    assert translated.startswith("# no year\n\n") and "mars" not in translated


@pytest.mark.parametrize(
    ("content", "options", "says"),
    [
        (b"PK\x03\x04 damaged", ["--out", "brief.docx"], "letter.docx: the file is no archive"),
        (None, [], "letter.docx is a document: name its translation with --out FILE.docx"),
        (None, ["--out", "brief.odt"], "--out must end in .docx too, got brief.odt"),
        (None, ["--out", "brief.docx", "--n-best", 1], ".docx is a document: omit"),
        (None, ["--out", "nowhere/brief.docx"], "nowhere/brief.docx"),
        (None, ["--out", "letter.docx"], "letter.docx already exists"),
    ],
)
def test_what_is_no_document_is_said_in_a_line(
    refused, file: Path, tmp_path: Path, monkeypatch, content: bytes | None, options: list, says: str
) -> None:
    monkeypatch.chdir(tmp_path)
    if content is not None:
        file.write_bytes(content)
    before = file.read_bytes()
    assert says in refused("translate", RUN, "letter.docx", *options)
    assert [path.name for path in tmp_path.iterdir()] == ["letter.docx"] and file.read_bytes() == before
    (tmp_path / "folder.docx").mkdir()
    for name, reason in (("folder.docx", "is a folder"), ("missing.docx", "there is no file")):
        assert reason in refused("translate", RUN, name, "--out", "brief.docx")
    assert not Path("brief.docx").exists()


def test_a_document_is_done_as_a_whole_or_not_at_all(
    attent, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "brief.docx"

    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("attent.documents.pipeline._translated", killed)
        attent("translate", RUN, file, "--out", out)
    assert [path.name for path in tmp_path.iterdir()] == ["letter.docx"]
    assert attent("translate", RUN, file, "--out", out, "--resume").code == 0
    whole = out.read_bytes()
    assert attent("translate", RUN, file, "--out", out, "--resume").err == [
        f"{out} already exists: nothing is left to do"
    ]
    attent("translate", RUN, file, "--out", tmp_path / "again.docx")
    assert (tmp_path / "again.docx").read_bytes() == whole


def test_a_missing_library_is_named_with_its_extra(
    refused, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "attent.documents.word_processors", raising=False)
    monkeypatch.setitem(sys.modules, "lxml", None)
    says = refused("translate", RUN, file, "--out", tmp_path / "brief.docx")
    assert "in a clone of attent, pip install '.[documents]'" in says
