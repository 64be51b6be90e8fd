from __future__ import annotations

import pytest

from attent.views.labels import LEFT_TO_RIGHT, clusters, cut, has_right_to_left, legend, pad, visible, width


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        *(("", 0), ("abc", 3), ("日本", 4), ("e\u0301", 1), ("ไทย", 3), ("\u202f", 1), ("\u200f", 0)),
        *(("👩\u200d💻", 2), ("\u1112\u1161\u11ab", 2), ("👍🏽", 2), ("❤\ufe0f", 2), ("❤", 1), ("का", 1)),
    ],
)
def test_width_is_counted_in_columns_of_a_terminal(text: str, columns: int) -> None:
    assert width(text) == columns
    assert clusters("e\u0301ab") == ["e\u0301", "a", "b"]


def test_nothing_stays_invisible() -> None:
    assert visible("a b") == "a␣b"
    assert visible("\u202f") == "⍽"
    assert visible("\u200f") == "⌁"
    assert visible("\u0301") == "◌\u0301"
    assert all(width(visible(label)) > 0 for label in (" ", "\t", "\u200b", "\u200f", "\u0941", "\u200c"))

    assert legend(["a", "b"]) == ""
    assert legend([" ", "\u202f", "x", " "]) == "␣ space · ⍽ narrow no-break space"


@pytest.mark.parametrize("text", ["a", "日本", "שלום", "e\u0301e\u0301"])
def test_padding_fills_to_the_same_width_in_every_script(text: str) -> None:
    assert width(pad(text, 7, left=True)) == width(pad(text, 7)) == 7
    # right-to-left text is fenced in
    assert has_right_to_left("سنة")
    assert not has_right_to_left("année")
    assert pad("سنة", 3) == f"{LEFT_TO_RIGHT}سنة{LEFT_TO_RIGHT}"
    assert [cut("abc", 3), cut("abcd", 3)] == ["abc", "ab…"]
    assert width(cut("日本語日本語", 5)) <= 5
