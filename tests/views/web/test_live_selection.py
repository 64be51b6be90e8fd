"""What the page of a run says of the token, the key and the cell that are selected: one and the same everywhere."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from _live_page import cell, ended, select_head, set_normalizer, shown, until, weights_of, written

from attent.attention.normalizers.top_k import TopK
from attent.tasks.loading import load

pytestmark = pytest.mark.slow

NORMALIZERS = ("softmax", "hard", "sigmoid", "top_k", "sparsemax", "entmax15", "identity")
# the places of the tokens that are marked as query and as key
PLACES = """[['.written', '::after', '"query"'], ['.read', '::before', '"key"']].map(([list, part, name]) =>
    [...document.querySelectorAll(list + ' li')].findIndex((item) => getComputedStyle(item, part).content === name))"""


@pytest.fixture(scope="module")
def run(translating: Any) -> Path:
    return translating("transformer")


@pytest.fixture(scope="module")
def file(run: Path, live: Any) -> Path:
    return live(run, ["bad cab"])


@pytest.fixture
def translator(run: Path) -> Any:
    return load(run)


def test_the_formula_of_local_attention_has_its_gaussian(translating: Any, live: Any, window: Any) -> None:
    folder = translating("rnn", attention="luong", local="p", local_window=2)
    page = window.open(live(folder, ["abcde"]))
    ended(page, written(load(folder), "abcde")[0])
    alpha = page.inner_text(".sum output p:nth-child(3)")
    power, total, factor, weight = (
        float(part) for part in re.search(r"= ([\d.]+) / ([\d.]+) · ([\d.]+) = ([\d.]+):", alpha).groups()
    )
    assert factor < 1
    assert power / total * factor == pytest.approx(weight, abs=2e-2)


def test_each_normalizer_has_its_own_formula_where_another_gives_the_same_weight(
    file: Path, translator: Any, window: Any
) -> None:
    page = window.open(file)
    # of one key, the weight is 1 by every normalizer but two
    page.fill("#text", "a")
    ended(page, written(translator, "a")[0])
    select_head(page, 1, 0)
    alpha = page.locator(".sum output p:nth-child(3)")
    for name in NORMALIZERS:
        page.get_by_label("weights are the").select_option(name)
        set_normalizer(translator.model, TopK(2) if name == "top_k" else name)
        ended(page, written(translator, "a")[0])
        weight = cell(page, 0, 0)
        said, (score,) = alpha.inner_text(), re.findall(r"= (−?[\d.]+)$", page.inner_text(".sum output p:nth-child(4)"))
        number = float(score.replace("−", "-"))
        if name == "softmax":
            assert f"exp({score} − " in said and weight == 1
        elif name == "sigmoid":
            fenced = f"({score})" if number < 0 else score
            assert f" = 1 / (1 + exp(−{fenced})) = " in said
            assert weight == pytest.approx(1 / (1 + np.exp(-number)), abs=6e-3)
        else:
            assert "exp" not in said and "Σ" not in said
            assert weight == (pytest.approx(number, abs=6e-3) if name == "identity" else 1)


def test_the_strongest_key_is_that_of_the_largest_value_everywhere(file: Path, translator: Any, window: Any) -> None:
    page = window.open(file)
    ended(page, written(translator, "bad cab")[0])
    select_head(page, 1, 0)
    page.get_by_label("weights are the").select_option("identity")
    set_normalizer(translator.model, "identity")
    pieces = written(translator, "bad cab")[0]
    ended(page, pieces)
    numbers = weights_of(translator, "bad cab")[0][: len(pieces)]
    # what rests over a token would be pointed at
    page.mouse.move(0, 0)
    # the largest number in size is another key's
    (rows,) = torch.where(numbers.argmax(-1) != numbers.abs().argmax(-1))
    assert len(rows) > 0
    for row in rows[:3].tolist():
        key = int(numbers[row].argmax())
        page.locator(".written button").nth(row).focus()
        page.locator(f".zoom .readout[data-row='{row}'][data-column='{key}']").wait_for()
        until(page, lambda row=row, key=key: page.evaluate(PLACES) == [row, key], "the marks")
        label = "bad cab"[key].replace(" ", "␣")
        assert re.match(rf"to \u2068{label}\u2069 ", page.inner_text(".answer .readout"))
        reads, *_, alpha, _ = page.locator(".sum output p").all_inner_texts()
        assert f" → {label} = " in alpha
        assert re.search(rf" reads [\d.]+ v\({label}\) \+ ", reads)


def test_the_marks_move_to_the_cell_that_is_selected(file: Path, translator: Any, window: Any) -> None:
    page = window.open(file)
    pieces = written(translator, "bad cab")[0]
    ended(page, pieces)
    select_head(page, 1, 1)
    page.mouse.move(0, 0)
    key = int(weights_of(translator, "bad cab")[1, 2].argmax())
    others = [place for place in range(7) if place != key][:2]

    def check(column: int) -> None:
        until(page, lambda: page.evaluate(PLACES) == [2, column], f"the marks at {column}")
        page.locator(f".zoom .readout[data-row='2'][data-column='{column}']").wait_for()
        label = "bad cab"[column].replace(" ", "␣")
        assert page.inner_text(".sum output p:nth-child(3)").startswith(f"α of {pieces[2]} → {label} = ")

    # another row, then another column of it alone
    for column in others:
        cell(page, 2, column)
        check(column)
    # the cell stays while other tokens are passed over, and in another head
    page.locator(".written button").nth(1).hover()
    until(page, lambda: page.evaluate(PLACES)[0] == 1, "the token that is pointed at")
    page.mouse.move(0, 0)
    check(others[-1])
    select_head(page, 1, 0)
    page.mouse.move(0, 0)
    check(others[-1])
    select_head(page, 1, 1)
    page.mouse.move(0, 0)
    # a token that is selected has its strongest key again
    page.locator(".written button").nth(2).focus()
    check(key)


def test_the_selected_row_stays_when_the_formula_changes(file: Path, translator: Any, window: Any) -> None:
    page = window.open(file)
    pieces = written(translator, "bad cab")[0]
    ended(page, pieces)
    first, _ = page.evaluate(PLACES)

    def change(label: str, name: str, mask: bool = False) -> list[int]:
        page.get_by_label(label).select_option(name)
        page.mouse.move(0, 0)
        until(page, lambda: not page.locator(".former").count(), "the view")
        until(page, lambda: page.locator(".written .shown").count() == 1, "a selected token")
        return page.evaluate(PLACES)

    # nothing was clicked: where the same token is written at the same place, it stays
    stayed = []
    for name in ("sparsemax", "entmax15", "top_k", "hard", "softmax"):
        before = shown(page), page.evaluate(PLACES)[0]
        now, _ = change("weights are the", name)
        if shown(page)[before[1] : before[1] + 1] == before[0][before[1] : before[1] + 1]:
            assert now == before[1]
            stayed.append(name)
    assert stayed
    # the cell that is selected stays too
    cell(page, 2, 3)
    for label, name in (("each reads", "causal"), ("each reads", "none"), ("weights are the", "softmax")):
        token = shown(page)[2]
        selected = change(label, name)
        if shown(page)[2] == token:
            assert selected == [2, 3]
    # of another text, the first choice
    page.fill("#text", "a")
    ended(page, written(translator, "a")[0])
    page.fill("#text", "bad cab")
    ended(page, pieces)
    until(page, lambda: page.evaluate(PLACES)[0] == first, "the first choice")
    # and the row of another attention, though other rows are more peaked now
    page.click("text=encoder self-attention")
    page.locator(".rows li").nth(4).click()
    page.mouse.move(0, 0)
    page.get_by_label("weights are the").select_option("sparsemax")
    until(page, lambda: not page.locator(".former").count(), "the view")
    page.locator(".rows li[data-place='4'][aria-selected='true']").wait_for()


def test_the_token_with_the_longest_link_is_selected_at_first(file: Path, translator: Any, window: Any) -> None:
    page = window.open(file)
    picked: list[tuple[int, int]] = []
    for text in ("bad cab", "dead bed", "abcde", "cab a bad"):
        page.fill("#text", text)
        ended(page, written(translator, text)[0])
        tops, keys = (part[:-1] for part in weights_of(translator, text).mean(0).max(-1))
        spans = tops * (keys - torch.arange(len(keys))).abs()
        picked.append((int(spans.argmax()), int(tops.argmax())))
        until(page, lambda: page.locator(".written .shown").count() == 1, "a selected token")
        selected, strongest = page.evaluate(PLACES)
        assert (selected, strongest) == (picked[-1][0], int(keys[selected]))
    assert any(longest != most_peaked for longest, most_peaked in picked)


def test_a_selected_token_has_lines_for_all_weights_above_a_twentieth(file: Path, translator: Any, window: Any) -> None:
    page = window.open(file)
    pieces = written(translator, "bad cab")[0]
    ended(page, pieces)
    page.mouse.move(0, 0)
    weights = weights_of(translator, "bad cab").mean(0)[: len(pieces)]
    # those with the most such weights, of rows that are not nearly uniform
    counts = (weights > 0.05).sum(-1) * (-(weights * weights.log()).sum(-1) < 0.97 * np.log(7))
    rows = counts.argsort(descending=True)[:3].tolist()
    assert counts[rows[0]] > 3
    for row in rows:
        page.locator(".written button").nth(row).focus()
        until(page, lambda row=row: page.evaluate(PLACES)[0] == row, "the token that is selected")
        lines = page.locator(".answer .links path")
        until(page, lambda row=row, lines=lines: lines.count() == counts[row], f"{counts[row]} lines")
    assert page.inner_text(".answer .about").endswith(" Lines: weights above 0.05.")
    page.get_by_label("weights are the").select_option("identity")
    until(page, lambda: " Lines: above a third of the largest in size" in page.inner_text(".answer .about"), "the rule")
    page.click("text=encoder self-attention")
    page.get_by_label("weights are the").select_option("softmax")
    until(page, lambda: page.inner_text(".tokens .about") == "Lines: weights above 0.05.", "the rule of one text")
