"""Units of text (words, signs, characters of scripts without spaces), the gaps between them, and joining words."""

import sys

import pytest

from attent.errors import ArgumentError
from attent.text.units import Detokenizer, SpacingCheck, count_gaps, spacing, units

SEGMENTED = ["我 爱 北京 天安门 。", "今天 天气 很 好 ， 我们 去 公园 。", "他 昨天 买 了 一 本 书 。"]
WRITTEN = [line.replace(" ", "") for line in SEGMENTED]
TOKENIZED = ["two dogs , a cat and a mouse .", "a man , seen from behind , sleeps .", "mr. smith is here ."] * 5
ENGLISH = ["Two dogs, a cat and a mouse.", "A man, seen from behind, sleeps. Go to www.example.com."] * 9


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


@pytest.mark.parametrize(
    ("text", "spaced", "gaps"),
    [
        ("我爱你。", 0, 3),
        ("我 爱 你 。", 3, 3),
        ("a dog , a cat .", 2, 2),
        ("A dog, a cat.", 0, 2),
        # numbers, addresses and other signs are spaced as they are everywhere
        ("3.5 , 7.000 www.example.com Pourquoi ? Oui !", 0, 0),
        ("", 0, 0),
    ],
)
def test_gaps_are_where_spacing_is_a_convention(text: str, spaced: int, gaps: int) -> None:
    assert count_gaps(text) == (spaced, gaps)


def test_spacing_is_a_share() -> None:
    assert [spacing(WRITTEN), spacing(TOKENIZED)] == [0, 30 / 35]
    assert spacing(["no such gap"] * 100) is spacing([]) is None
    # a name alone in a line, another script
    assert warnings_for(SEGMENTED, ["天安门", "Two dogs run"]) == []
    assert warnings_for(ENGLISH, ["Oui ."]) == warnings_for([], SEGMENTED) == []


def warnings_for(training: list[str], lines: list[str]) -> list[str]:
    check = SpacingCheck(spacing(training))
    return [message for line in lines if (message := check.add(line))]


@pytest.mark.parametrize(
    ("training", "lines", "remedy"),
    [
        (SEGMENTED, WRITTEN, "cut it into words"),
        (WRITTEN, SEGMENTED, "join its words"),
        (TOKENIZED, ENGLISH, "cut it into words"),
        (ENGLISH, TOKENIZED, "join its words"),
    ],
)
def test_another_spacing_is_told_of_once_and_the_same_never(training: list[str], lines: list[str], remedy: str) -> None:
    (message,) = warnings_for(training, lines)
    assert remedy in message
    assert warnings_for(lines, lines * 20) == []
    assert all(warnings_for(lines, [line]) == [] for line in lines)


@pytest.mark.parametrize(
    ("language", "text", "expected"),
    [
        ("en", "a dog , a cat and a man 's hat .", "A dog, a cat and a man's hat."),
        ("en", "NASA 's dogs", "NASA's dogs"),
        ("de-AT", "ein hund und 3 % . er schläft .", "Ein hund und 3%. Er schläft."),
        ("fr", "l' homme , qu' il a vu .", "L'homme, qu'il a vu."),
        ("zh", "我 爱 你 ， 中国 。", "我爱你，中国。"),
        ("en", "", ""),
    ],
)
def test_words_are_joined_as_the_language_writes_them(language: str, text: str, expected: str) -> None:
    pytest.importorskip("sacremoses", reason="detokenizing needs sacremoses")
    assert Detokenizer(language)(text) == expected


def test_sacremoses_is_asked_for_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sacremoses", None)
    with pytest.raises(
        ArgumentError, match=r"^--detokenize needs sacremoses: in a clone of attent, pip install '\.\[detokenize\]' \("
    ):
        Detokenizer("en")
