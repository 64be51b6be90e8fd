"""Units of text: words, signs, and characters of scripts without spaces, each with its marks."""

import pytest

from attent.text.units import is_mark, units


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("2026-03-03, it's", ["2026", "-", "03", "-", "03", ",", "it", "'", "s"]),
        ("2000年1月 ไทย", ["2000", "年", "1", "月", "ไ", "ท", "ย"]),
        ("मे में ที่2", ["मे", "में", "ที่", "2"]),
        ("\u0301x", ["\u0301x"]),
        ("cafe\u0301, می\u200cروم", ["cafe\u0301", ",", "می\u200cروم"]),
    ],
)
def test_units_are_words_signs_and_characters_of_scripts_without_spaces(text: str, words: list[str]) -> None:
    assert [text[unit.begin : unit.end] for unit in units(text)] == words


def test_marks_and_joiners_belong_to_the_letter_before_them() -> None:
    assert [is_mark(character) for character in "\u0301\u093f\u200ca ,"] == [True, True, True, False, False, False]
