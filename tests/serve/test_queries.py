from __future__ import annotations

import math
from collections.abc import Iterator

import pytest
import torch

from attent.attention.attend import attend
from attent.attention.maps.attention_map import AttentionMap
from attent.serve import queries
from attent.serve.tiles import Sheet
from attent.views.scene import Layer


def attended(queries: int, keys: int, **how: object) -> AttentionMap:
    query, key = torch.randn(2, 3, queries, 4), torch.randn(2, 3, keys, 4)
    return attend(query, key, key, return_map=True, **how)[1]


@pytest.mark.parametrize("head", [None, 1])
def test_rows_and_columns_are_those_of_the_map(head: int | None) -> None:
    weights = attended(23, 31)
    sheet = Sheet("a", Layer("a", weights, sequence=1), head)
    dense = weights.dense()[1].mean(0) if head is None else weights[1, head]
    torch.testing.assert_close(queries.row(sheet, 5).values, dense[5:6])
    torch.testing.assert_close(queries.column(sheet, 7).values, dense[:, 7][None])
    torch.testing.assert_close(queries.thumbnail(sheet).values, dense)


def test_under_a_mask_what_is_hidden_weighs_nothing() -> None:
    weights = attended(23, 23, mask="causal")
    sheet = Sheet("a", Layer("a", weights), 2)
    torch.testing.assert_close(queries.row(sheet, 5).values, weights[0, 2, 5:6])
    torch.testing.assert_close(queries.column(sheet, 7).values[0], weights[0, 2, :, 7])


def test_of_a_long_text_some_queries_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queries, "AT_ONCE", 23 * 31 // 4)
    weights = attended(23, 31)
    part = queries.column(Sheet("a", Layer("a", weights), 0), 7)
    assert (part.exact, part.note) == (False, "1 row in 8 was computed")
    torch.testing.assert_close(part.values[0, [4, 12, 20]], weights[0, 0, [4, 12, 20], 7])
    assert int(part.values.isnan().sum()) == 20
    monkeypatch.setattr(queries, "SMALL", 23 * 31 // 2)
    assert queries.thumbnail(Sheet("a", Layer("a", weights), 0)).note == "from 1 row in 4"


@pytest.mark.parametrize("head", [None, 0])
def test_of_however_long_a_text_one_query_is_told(head: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    for most in ("AT_ONCE", "SMALL", "FIGURED"):
        monkeypatch.setattr(queries, most, 1)
    computed: list[int] = []
    told = Sheet.told

    def counted(sheet: Sheet, rows: range) -> Iterator[tuple[range, torch.Tensor, int]]:
        computed.append(len(rows))
        return told(sheet, rows)

    monkeypatch.setattr(Sheet, "told", counted)
    weights = attended(23, 31)
    sheet = Sheet("a", Layer("a", weights), head)
    dense = weights.dense()[0].mean(0) if head is None else weights[0, head]
    part = queries.column(sheet, 7)
    torch.testing.assert_close(part.values[0, 8], dense[8, 7])
    assert int(part.values.isfinite().sum()) == 1
    assert not queries.thumbnail(sheet).exact
    assert computed == [1, 1]
    assert queries.figures(sheet.layer, itself=True).every == 16


def test_a_thumbnail_is_small() -> None:
    weights = attended(100, 193)
    part = queries.thumbnail(Sheet("a", Layer("a", weights), 0))
    torch.testing.assert_close(part.values, torch.nn.functional.avg_pool2d(weights[0, :1], 8, ceil_mode=True)[0])


@pytest.mark.parametrize("most", [2**23, 1])
def test_figures_by_hand(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queries, "FIGURED", most)
    dense = torch.tensor([[1.0, 0.0, 0.0], [0.5, 0.5, 0.0], [0.0, 0.25, 0.75]])[None]
    if most == 1:  # one row speaks for all: the second
        (found,) = queries.figures(Layer("a", dense), itself=True).heads
        assert (found["first"], found["previous"], found["same"]) == (0.5, 0.5, 0.5)
        return
    (found,) = queries.figures(Layer("a", dense), itself=True).heads
    assert found["first"] == pytest.approx(1.5 / 3)
    assert found["previous"] == pytest.approx((0.5 + 0.25) / 3)
    assert found["same"] == pytest.approx((1 + 0.5 + 0.75) / 3)
    assert found["distance"] == pytest.approx((0.5 + 0.25) / 3)
    assert found["entropy"] == pytest.approx((math.log(2) - 0.25 * math.log(0.25) - 0.75 * math.log(0.75)) / 3)


def test_figures_without_a_meaning_are_left_out() -> None:
    (one, *_) = queries.figures(Layer("a", attended(5, 7)), itself=False).heads
    assert [name for name, value in one.items() if value is None] == ["distance", "previous", "same"]
    (one,) = queries.figures(Layer("a", -torch.ones(3, 3)), itself=True).heads
    assert set(one.values()) == {None}
