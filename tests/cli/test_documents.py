"""Documents: files of other programs, and markup, whole or a line each."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

# A run that translates a few words of English.
RUN = Path(__file__).parent.parent / "frozen" / "runs" / "pairs"
# an answer that is no date
NO_DATES = 2


def test_documents_come_back_with_their_tags(
    attent, run_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("attent.cli.commands.translate.LINES", 1)
    document = "<ul>\r\n  <li>fr | <b>3 mars</b> 2026</li>\r\n  <li>no <i>year</i>\x07</li>\r\n</ul>\r\n"
    file, out = tmp_path / "page.html", tmp_path / "out.html"
    file.write_bytes(document.encode())
    done = attent("translate", run_folder, file, "--markup", "html", "--max-length", 4, "--out", out)
    # what is refused stays as it was
    assert done.code == NO_DATES and done.err[0].startswith("'no year") and "has no four-digit year" in done.err[0]
    written = out.read_bytes().decode()
    assert re.findall("<[^>]*>", written) == re.findall("<[^>]*>", document)
    assert written.startswith("<ul>\r\n  <li>") and written.endswith("  <li>no <i>year</i>\\u0007</li>\r\n</ul>\r\n")
    (translation,) = attent("translate", run_folder, "fr | 3 mars 2026", "--max-length", 4).out
    assert re.sub("<[^>]*>", "", written.splitlines()[1]).strip() == translation


def test_each_line_may_be_a_document(attent, run_folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "lines.txt"
    file.write_text("fr | [3 mars](u) 2026\n\nfr | 3 mars 2027\n", encoding="utf-8")
    done = attent("translate", run_folder, file, "--markup", "markdown", "--each-line", "--max-length", 4)
    assert (done.code, len(done.out), done.out[1], done.out[0].count("](u)")) == (0, 3, "", 1)
    assert done.out[2] == attent("translate", run_folder, "fr | 3 mars 2027", "--max-length", 4).out[0]


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str], Path]:
    """Write a document with another program, by the ending of its name, and return its path."""

    def word(path: Path) -> None:
        docx = pytest.importorskip("docx")
        document = docx.Document()
        document.add_heading("the small dog", 1)
        paragraph = document.add_paragraph("a cat ")
        paragraph.add_run("likes").bold = True
        paragraph.add_run(" the ")
        paragraph.add_run("horse").italic = True
        document.add_table(rows=1, cols=2).cell(0, 1).text = "the sad mouse"
        document.sections[0].header.paragraphs[0].text = "a black hen"
        document.save(path)

    def open_document(path: Path) -> None:
        odfdo = pytest.importorskip("odfdo")
        document = odfdo.Document("text")
        document.body.clear()
        document.body.append(odfdo.Header(1, "the small dog"))
        paragraph = odfdo.Paragraph("a cat likes the horse")
        paragraph.set_span("Strong", regex="likes")
        document.body.append(paragraph)
        table = odfdo.Table("cells", width=2, height=1)
        table.set_value("B1", "the sad mouse")
        document.body.append(table)
        document.save(path)

    def subtitles(path: Path) -> None:
        srt = pytest.importorskip("srt")
        texts = ("the small dog", "a cat <i>likes</i> the horse")
        cues = [
            srt.Subtitle(number, timedelta(seconds=2 * number), timedelta(seconds=2 * number + 1), text)
            for number, text in enumerate(texts, 1)
        ]
        path.write_text(srt.compose(cues), encoding="utf-8")

    def make(ending: str) -> Path:
        path = tmp_path / f"letter{ending}"
        {".docx": word, ".odt": open_document, ".srt": subtitles}[ending](path)
        return path

    return make


@pytest.fixture
def lines(attent) -> dict[str, str]:
    """Lines of the documents, and their translations by the command."""
    texts = ("the small dog", "a cat likes the horse", "the sad mouse", "a black hen")
    return {text: attent("translate", RUN, text).out[0] for text in texts}


def test_a_file_of_word_comes_back_as_one(attent, write: Callable[[str], Path], lines, tmp_path: Path) -> None:
    file, out = write(".docx"), tmp_path / "brief.docx"
    done = attent("translate", RUN, file, "--out", out)
    assert (done.code, done.out, done.err) == (0, [], [f"{out}: the translation of {file}"])
    document = pytest.importorskip("docx").Document(out)
    heading, paragraph = document.paragraphs
    assert (heading.text, heading.style.name) == (lines["the small dog"], "Heading 1")
    assert paragraph.text == lines["a cat likes the horse"]
    formats = [(run.bold, run.italic) for run in paragraph.runs if run.bold or run.italic]
    assert sorted(formats, key=str) == [(None, True), (True, None)]
    assert document.tables[0].cell(0, 1).text == lines["the sad mouse"]
    assert document.sections[0].header.paragraphs[0].text == lines["a black hen"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["brief.docx", "letter.docx"]


def test_an_open_document_comes_back_as_one(attent, write: Callable[[str], Path], lines, tmp_path: Path) -> None:
    out = tmp_path / "BRIEF.ODT"
    assert attent("translate", RUN, write(".odt"), "--out", out).code == 0
    document = pytest.importorskip("odfdo").Document(out)
    assert [header.inner_text for header in document.body.get_headers()] == [lines["the small dog"]]
    paragraph = document.body.get_paragraphs()[0]
    assert paragraph.inner_text == lines["a cat likes the horse"]
    (span,) = paragraph.get_spans()
    assert span.style == "Strong" and span.inner_text in paragraph.inner_text
    assert lines["the sad mouse"] in [cell.inner_text.strip() for cell in document.body.tables[0].get_cells(flat=True)]


def test_subtitles_keep_their_times(attent, write: Callable[[str], Path], lines, tmp_path: Path) -> None:
    file, out = write(".srt"), tmp_path / "brief.srt"
    assert attent("translate", RUN, file, "--out", out).code == 0
    srt = pytest.importorskip("srt")
    before, after = (list(srt.parse(path.read_text(encoding="utf-8"))) for path in (file, out))
    assert [(cue.index, cue.start, cue.end) for cue in after] == [(cue.index, cue.start, cue.end) for cue in before]
    assert [re.sub("</?i>", "", cue.content) for cue in after] == [*lines.values()][:2]
    assert after[1].content.count("<i>") == after[1].content.count("</i>") == 1
    # text goes to standard output too
    assert attent("translate", RUN, file).out == out.read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize(
    ("ending", "content", "expected"),
    [
        (".html", "<h1>the small dog</h1>\r\n<pre>a dog</pre>\r\n", "<h1>{}</h1>\r\n<pre>a dog</pre>\r\n"),
        (".md", "# the small dog\n\n    a dog\n", "# {}\n\n    a dog\n"),
    ],
)
def test_markup_is_a_document_by_its_name(
    attent, lines, tmp_path: Path, ending: str, content: str, expected: str
) -> None:
    file, out = tmp_path / f"page{ending}", tmp_path / f"seite{ending}"
    file.write_bytes(content.encode("utf-16"))
    assert attent("translate", RUN, file, "--out", out).code == 0
    assert out.read_bytes().decode("utf-16") == expected.format(lines["the small dog"])


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
        (b"", ["--out", "brief.docx"], "letter.docx: the file is no archive"),
        (None, [], "letter.docx is a document: name its translation with --out FILE.docx"),
        (None, ["--out", "brief.odt"], "--out must end in .docx too, got brief.odt"),
        (None, ["--out", "brief.docx", "--n-best", 1], ".docx translates documents: omit"),
        (None, ["--out", "brief.docx", "--engine", "onnx"], "documents need attention"),
        (None, ["--out", "nowhere/brief.docx"], "brief.docx.part"),
        (None, ["--out", "letter.docx"], "letter.docx already exists"),
    ],
)
def test_what_is_no_document_is_said_in_a_line(
    refused, write: Callable[[str], Path], tmp_path: Path, monkeypatch, content: bytes | None, options: list, says: str
) -> None:
    monkeypatch.chdir(tmp_path)
    file = write(".docx")
    if content is not None:
        file.write_bytes(content)
    before = file.read_bytes()
    assert says in refused("translate", RUN, "letter.docx", *options)
    assert [path.name for path in tmp_path.iterdir()] == ["letter.docx"] and file.read_bytes() == before


def test_a_folder_and_a_missing_file_are_no_documents(refused, tmp_path: Path) -> None:
    (tmp_path / "folder.docx").mkdir()
    for name, says in (("folder.docx", "is a folder"), ("missing.docx", "there is no file")):
        assert says in refused("translate", RUN, tmp_path / name, "--out", tmp_path / "brief.docx")
    assert [path.name for path in tmp_path.iterdir()] == ["folder.docx"]


def test_a_document_is_done_as_a_whole_or_not_at_all(
    attent, write: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, out, draft = write(".docx"), tmp_path / "brief.docx", tmp_path / "brief.docx.part"

    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("attent.documents.pipeline._translated", killed)
        attent("translate", RUN, file, "--out", out)
    assert draft.read_bytes() == b"" and not out.exists()
    again = attent("translate", RUN, file, "--out", out)
    assert again.code == 2 and "--resume continues it" in again.err[0]
    assert attent("translate", RUN, file, "--out", out, "--resume").code == 0
    whole = out.read_bytes()
    assert attent("translate", RUN, file, "--out", out, "--resume").err == [
        f"{out} already exists: nothing is left to do"
    ]
    attent("translate", RUN, file, "--out", tmp_path / "again.docx")
    assert (tmp_path / "again.docx").read_bytes() == whole and not draft.exists()


def test_a_missing_library_is_named_with_its_extra(
    refused, write: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write(".docx")
    monkeypatch.delitem(sys.modules, "attent.documents.word_processors", raising=False)
    monkeypatch.setitem(sys.modules, "lxml", None)
    says = refused("translate", RUN, file, "--out", tmp_path / "brief.docx")
    assert "pip install 'attent[documents]'" in says
