from __future__ import annotations

import pytest

from attent.data.tokenizer import CharTokenizer
from attent.data.typed import as_known, named, unknown

TOKENIZER = CharTokenizer("abé3\u202f'-")


@pytest.mark.parametrize(
    ("typed", "read"),
    [
        ("ab\u202f3", "ab\u202f3"),
        ("a 3", "a\u202f3"),
        ("e\u0301", "é"),
        ("３", "3"),
        ("a’b–a", "a'b-a"),
        ("aЖ", "aЖ"),
    ],
)
def test_what_is_typed_is_written_as_the_model_knows_it(typed: str, read: str) -> None:
    assert as_known(typed, TOKENIZER) == read


def test_what_is_known_is_left_alone() -> None:
    both = CharTokenizer("a \u202fe\u0301é")
    assert as_known("a e\u0301\u202f", both) == "a e\u0301\u202f"


def test_unknown_pieces_come_once_and_with_their_names() -> None:
    assert unknown("aЖbЖ?", TOKENIZER) == ["Ж", "?"]
    assert named("Ж") == "'Ж' (CYRILLIC CAPITAL LETTER ZHE)"
    assert named("\x00") == "'\\x00' (U+0000)"
