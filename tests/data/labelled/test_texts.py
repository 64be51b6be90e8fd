import gzip
import io
from pathlib import Path

import pytest

from attent.data.labelled.texts import LabelledText, read_labelled, without
from attent.data.readers import ReadReport
from attent.errors import DataError


def read(path: Path | str) -> tuple[list[tuple[int, LabelledText]], ReadReport]:
    report = ReadReport(str(path))
    return read_labelled(str(path), report), report


def written(path: Path, text: str) -> Path:
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


@pytest.mark.parametrize("name", ["a.tsv", "a.tsv.gz", "labels"])
def test_a_line_is_text_tab_label(tmp_path: Path, name: str) -> None:
    found, report = read(written(tmp_path / name, "le 3 mars\tfr\n 3. März\t de \r\n"))
    assert found == [(1, LabelledText("le 3 mars", "fr")), (2, LabelledText(" 3. März", "de"))]
    assert (report.lines, report.kept) == (2, 2)


def test_standard_input_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    class Stdin:
        buffer = io.BytesIO(b"a\tx\n")

    monkeypatch.setattr("sys.stdin", Stdin())
    assert read("-")[0] == [(1, LabelledText("a", "x"))]


def test_every_line_is_accounted_for(tmp_path: Path) -> None:
    found, report = read(written(tmp_path / "a.tsv", "a\tx\n\nb\n\ty\nc\t \na\tx\nd\tx\nd\ty\ne\tx\ty\n \t \nf\tz\n"))
    assert [number for number, _ in found] == [1, 11]
    assert {reason: tally.first for reason, tally in report.dropped.items()} == {
        "empty line": [2, 10],
        "no tab between text and label": [3],
        "empty text": [4],
        "empty label": [5],
        "more than one tab": [9],
        "the same text and label as before": [6],
        "the text has other labels on other lines": [7, 8],
    }
    assert report.kept == len(found)


@pytest.mark.parametrize(
    ("text", "said"),
    [("", "empty$"), ("one text\nanother\n", "no line holds a text and a label; .*: 2 lines read, 0 kept; 2 dropped: no tab")],
)
def test_a_file_without_examples_is_refused(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(DataError, match=said):
        read(written(tmp_path / "a.tsv", text))


def test_texts_held_out_are_not_trained_on(tmp_path: Path) -> None:
    found, report = read(written(tmp_path / "a.tsv", "a\tx\nb\ty\nc\tx\n"))
    assert [example.text for _, example in without(found, [LabelledText("b", "another")], report)] == ["a", "c"]
    assert report.dropped["the text is also in validation"].first == [2]
    with pytest.raises(DataError, match="no text is left to train on"):
        without(found, [example for _, example in found], report)
