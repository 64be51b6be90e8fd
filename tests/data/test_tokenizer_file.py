import json
from pathlib import Path

import pytest

from attent.data.tokenizer_file import read, write
from attent.errors import DataError

FORM = "attent word tokenizer"


def test_what_is_written_is_read(tmp_path: Path) -> None:
    write(tmp_path / "t.json", FORM, 3, {"words": ["é", "\u2028"]})
    assert read(tmp_path / "t.json", FORM, 3) == {"format": FORM, "version": 3, "words": ["é", "\u2028"]}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "cannot be read as a word tokenizer"),
        ("[]", "is not a word tokenizer"),
        (json.dumps({"format": "other", "version": 3}), "is not a word tokenizer"),
        (json.dumps({"format": FORM, "version": 4}), "version 4; this attent reads version 3"),
    ],
)
def test_a_damaged_file_is_one_line_with_its_path(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "t.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(DataError, match=message) as caught:
        read(path, FORM, 3)
    assert str(path) in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"none\.json"):
        read(tmp_path / "none.json", FORM, 1)
