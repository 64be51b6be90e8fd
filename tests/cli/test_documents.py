"""Documents with markup, whole or a line each."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from attent.cli import documents

# an answer that is no date
NO_DATES = 2


def test_documents_come_back_with_their_tags(
    attent, run_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("attent.cli.documents.LINES", 1)
    document = "<ul>\r\n  <li>fr | <b>3 mars</b> 2026</li>\r\n  <li>no <i>year</i>\x07</li>\r\n</ul>\r\n"
    file, out = tmp_path / "page.html", tmp_path / "out.html"
    file.write_bytes(document.encode())
    done = attent("translate", run_folder, file, "--markup", "html", "--max-length", 4, "--out", out)
    # what is refused stays as it was
    assert done.code == NO_DATES and done.err[0].startswith("'no year") and "holds no year" in done.err[0]
    written = out.read_bytes().decode()
    assert re.findall("<[^>]*>", written) == re.findall("<[^>]*>", document)
    assert written.startswith("<ul>\r\n  <li>") and written.endswith("  <li>no <i>year</i>\\u0007</li>\r\n</ul>\r\n")
    assert documents.LINES == 1
    (translation,) = attent("translate", run_folder, "fr | 3 mars 2026", "--max-length", 4).out
    assert re.sub("<[^>]*>", "", written.splitlines()[1]).strip() == translation


def test_each_line_may_be_a_document(attent, run_folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "lines.txt"
    file.write_text("fr | [3 mars](u) 2026\n\nfr | 3 mars 2027\n", encoding="utf-8")
    done = attent("translate", run_folder, file, "--markup", "markdown", "--each-line", "--max-length", 4)
    assert (done.code, len(done.out), done.out[1], done.out[0].count("](u)")) == (0, 3, "", 1)
    assert done.out[2] == attent("translate", run_folder, "fr | 3 mars 2027", "--max-length", 4).out[0]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--each-line"], "--each-line is for documents"),
        (["--markup", "html", "--alignments"], "--markup gives documents back"),
        (["--markup", "html", "--n-best", 1], "--markup gives documents back"),
        (["--markup", "html", "--engine", "onnx"], "look at attention, which the engine onnx does not show"),
    ],
)
def test_what_does_not_go_with_documents(attent, run_folder: Path, options: list[object], says: str) -> None:
    done = attent("translate", run_folder, "x 2026", *options)
    assert (done.code, done.out, len(done.err)) == (2, [], 1) and says in done.err[0]
