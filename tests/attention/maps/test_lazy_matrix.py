from __future__ import annotations

import pytest
import torch
from torch import Tensor

from attent.attention import attend, mask_info
from attent.attention.backends import row_tiles as by_rows
from attent.attention.maps.lazy_matrix import row_runs
from attent.attention.masks import Documents
from attent.attention.scores import Additive, Gaussian, General

dice = torch.Generator().manual_seed(1)
QUERY, KEY, VALUE = (torch.randn(2, 3, *shape, generator=dice) for shape in ((5, 7), (11, 7), (11, 2)))


def test_a_row_does_not_ask_what_all_queries_see(monkeypatch: pytest.MonkeyPatch) -> None:
    """With finite keys it does not matter; with others, and for a score that centres its keys, it does."""
    requests: list[int] = []

    def recording(call) -> Tensor | None:
        requests.append(call.keys)
        return visible(call)

    visible = mask_info.visible_keys_of
    monkeypatch.setattr(mask_info, "visible_keys_of", recording)
    mask = Documents(torch.zeros(1, 11).long())
    attend(QUERY, KEY, VALUE, mask=mask, return_map=True)[1][0, 0, 3]
    assert not requests
    attend(
        QUERY, KEY.masked_fill(torch.arange(11)[:, None] == 10, torch.nan), VALUE, lengths=[10, 10], return_map=True
    )[1][0, 0, 3]
    assert requests == [11]
    attend(QUERY, KEY, VALUE, score=Gaussian(), mask=mask, return_map=True)[1][0, 0, 3]
    assert requests == [11, 11]


def test_keys_are_lowered_anew_where_a_graph_hangs_on_them() -> None:
    score = General(7, 7)
    weights = attend(QUERY, KEY, VALUE, score=score, return_map=True)[1]
    constant = attend(QUERY, KEY, VALUE, return_map=True)[1]
    assert weights.key_side() is not weights.key_side()
    assert constant.key_side() is constant.key_side()
    with torch.no_grad():
        assert weights.key_side() is weights.key_side()


def test_forms_take_as_many_rows_as_their_scores_fill(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(by_rows, "TILE", 2 * 3 * 11 * 2)
    for score, runs in ((General(7, 7), 3), (Additive(7, 7, 13), 3), (lambda query, key: query @ key.mT, 5)):
        assert len(row_runs(attend(QUERY, KEY, VALUE, score=score, return_map=True)[1].call)) == runs
