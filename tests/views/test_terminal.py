from __future__ import annotations

import re

import pytest
import torch

from attent.views.labels import LEFT_TO_RIGHT, clusters, cut, has_right_to_left, legend, pad, visible, width
from attent.views.panel import head_panels, panel
from attent.views.terminal import heat_map

WEIGHT = torch.tensor([[1.0, 0.0, 0.0], [0.0, 0.6, 0.4]])


def test_larger_weights_are_darker() -> None:
    drawn = heat_map(panel(WEIGHT, ["x", "y"], ["a", "b", "c"], title="one"), columns=40)
    assert drawn.splitlines()[:4] == ["one", "   a b c", "x │██    │ a 1.00", "y │  ▓▓▒▒│ b 0.60"]
    assert "█ from 3" in heat_map(panel(torch.tensor([[4.0, -2.0]]), ["x"], ["a", "b"]), columns=40)
    drawn = heat_map(panel(WEIGHT[:1], ["row"], ["ab", "long", "c"]), columns=40).splitlines()
    assert drawn[:4] == ["       l", "       o", "     a n", "     b g c"]
    drawn = heat_map(head_panels(torch.stack([WEIGHT, WEIGHT]), ["x", "y"], ["a", "b", "c"]), columns=40)
    assert drawn.index("head 0") < drawn.index("head 1")


def test_every_script_keeps_its_columns() -> None:
    keys = ["日", "א", "e\u0301", "\u200f", "\u0941", "a", " "]
    drawn = heat_map(panel(torch.eye(7), keys, keys), columns=60).splitlines()
    heading, *rows = drawn[:8]
    edges = {width(row.split("│")[0]) for row in rows}
    assert len(edges) == 1
    assert width(heading) <= edges.pop() + 1 + 2 * len(keys)
    assert all(width(row.split("│")[1]) == 2 * len(keys) for row in rows)
    # the block of row i stands under label i
    assert [row.split("│")[1].index("█") // 2 for row in rows] == list(range(7))


def test_no_line_is_wider_than_the_terminal_and_long_maps_end_early() -> None:
    keys = [chr(ord("a") + position % 26) for position in range(90)]
    drawn = heat_map(panel(torch.rand(5, 90).softmax(-1), list("vwxyz"), keys), columns=50)
    assert "columns 1 to 39 of 90" in drawn
    assert "columns 79 to 90 of 90" in drawn
    assert max(map(width, drawn.splitlines())) <= 50
    rows = [str(row) for row in range(100)]
    drawn = heat_map(panel(torch.eye(100)[:, :3], rows, ["a", "b", "c"]), columns=40)
    assert "… and 36 rows more" in drawn
    assert "sees nothing" in drawn
    labels = [f"patch {position}" for position in range(65)]
    uniform = panel(torch.full((65, 65), 1 / 65), labels, labels, title="layers.0, mean over 3 heads")
    says = ["layers.0, mean over 3 heads", "no weight is large enough for a block: of 65 keys the largest has 0.015"]
    assert heat_map(uniform, columns=80).splitlines() == heat_map(uniform, columns=80, color=True).splitlines() == says


def test_colour_changes_the_blocks_alone() -> None:
    map_ = panel(WEIGHT, ["x", "y"], ["a", "b", "c"])
    plain, coloured = heat_map(map_, columns=40), heat_map(map_, columns=40, color=True)
    bare = [re.sub("\x1b.*?m", "", line) for line in coloured.splitlines()]
    assert "\x1b[48;5;255m" in coloured
    assert "\x1b" not in plain
    assert [width(line) for line in bare[:3]] == [width(line) for line in plain.splitlines()[:3]]


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
