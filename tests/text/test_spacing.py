from __future__ import annotations

import pytest

from attent.text.units import SpacingCheck, count_gaps, spacing

SEGMENTED = [
    "我 爱 北京 天安门 。",
    "今天 天气 很 好 ， 我们 去 公园 。",
    "他 昨天 买 了 一 本 书 。",
    "这 是 我 的 朋友 。",
]
WRITTEN = [line.replace(" ", "") for line in SEGMENTED]
TOKENIZED = ["two dogs , a cat and a mouse .", "a man , seen from behind , sleeps .", "mr. smith is here ."] * 5
ENGLISH = ["Two dogs, a cat and a mouse.", "A man, seen from behind, sleeps. Go to www.example.com."] * 9


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
    assert spacing(WRITTEN) == 0
    assert spacing(TOKENIZED) == 30 / 35
    assert spacing(["no such gap"] * 100) is None
    assert spacing([]) is None


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
def test_another_spacing_is_told_of_once(training: list[str], lines: list[str], remedy: str) -> None:
    messages = warnings_for(training, lines)
    assert len(messages) == 1
    assert remedy in messages[0]


@pytest.mark.parametrize("lines", [SEGMENTED, TOKENIZED, ENGLISH, WRITTEN])
def test_the_same_spacing_is_not_told_of(lines: list[str]) -> None:
    assert warnings_for(lines, lines * 20) == []
    assert all(warnings_for(lines, [line]) == [] for line in lines)


def test_nothing_is_told_of_what_is_not_certain_or_not_known() -> None:
    # a name alone in a line, another script
    assert warnings_for(SEGMENTED, ["天安门", "Two dogs run"]) == []
    assert warnings_for(ENGLISH, ["Oui ."]) == []
    assert warnings_for([], SEGMENTED) == []
