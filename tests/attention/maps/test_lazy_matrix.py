from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from attent.attention import AttentionMap, attend, mask_info
from attent.attention.backends import bands
from attent.attention.maps.lazy_matrix import row_runs
from attent.attention.masks import Causal, Documents, Padding, PerHead, Table
from attent.attention.positions import RelativeBias
from attent.attention.scores import Additive, Gaussian, General
from attent.errors import StaleMapError

dice = torch.Generator().manual_seed(1)
QUERY, KEY, VALUE = (torch.randn(2, 3, *shape, generator=dice) for shape in ((5, 7), (11, 7), (11, 2)))


def example() -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors that a call depends on, by what an error calls them, and the arguments that hold them."""
    score, position = Additive(7, 7, 13), RelativeBias(3)
    bias, table, start = torch.randn(5, 11), torch.ones(5, 11).bool(), torch.tensor([6, 2])
    mask = PerHead([Causal(), Table(table), Causal()]) & Padding(torch.tensor([11, 7]))
    arguments = {"score": score, "position": position, "bias": bias, "mask": mask, "query_start": start}
    held = {"score's v": score.v, "position's table": position.table, "bias": bias, "mask": table, "query_start": start}
    return held, arguments


def test_a_change_of_anything_that_counts_is_noticed_and_of_nothing_else() -> None:
    held, arguments = example()
    for name, tensor in held.items():
        weights = attend(QUERY, KEY, VALUE, **arguments, return_map=True)[1]
        weights.dense()
        with torch.no_grad():
            tensor[0] = 0
        with pytest.raises(StaleMapError, match=f"^{name} was changed in place"):
            weights.dense()
    value = VALUE.clone()
    weights = attend(QUERY, KEY, value, return_map=True)[1]
    value.zero_()
    weights.dense()


def test_a_change_through_a_view_is_noticed() -> None:
    query = QUERY[0, 0].clone()
    weights = attend(query, KEY[0, 0], VALUE[0, 0], return_map=True)[1]
    query[2:].mul_(2)
    with pytest.raises(StaleMapError):
        weights[0]


def test_what_was_kept_shares_nothing_with_what_it_was_made_of() -> None:
    held, arguments = example()
    query, key = QUERY.clone().requires_grad_(), KEY.clone()
    weights = attend(query, key, VALUE, **arguments, return_map=True)[1]
    snapshot, before = weights.keep(), weights.dense()
    with torch.no_grad():
        for tensor in (query, key, *held.values()):
            tensor.zero_()
    assert torch.equal(snapshot.dense(), before.detach())
    assert not snapshot.dense().requires_grad
    assert torch.equal(snapshot.keep().dense(), before.detach())


def test_a_map_of_tensors_without_versions_still_serves() -> None:
    with torch.inference_mode():
        weights: AttentionMap = attend(QUERY.clone(), KEY.clone(), VALUE.clone(), return_map=True)[1]
        dense = weights.dense()
    torch.testing.assert_close(dense, attend(QUERY, KEY, VALUE, return_map=True)[1].dense())


def test_a_row_does_not_ask_what_all_queries_see(monkeypatch: pytest.MonkeyPatch) -> None:
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
    monkeypatch.setattr(bands, "TILE", 2 * 3 * 11 * 2)
    for score, runs in ((General(7, 7), 3), (Additive(7, 7, 13), 3), (lambda query, key: query @ key.mT, 5)):
        assert len(row_runs(attend(QUERY, KEY, VALUE, score=score, return_map=True)[1].call)) == runs
