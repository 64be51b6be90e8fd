from __future__ import annotations

import pytest
import torch

from attent.attention import prepare
from attent.attention.kernels import rows, thresholds
from attent.attention.scores import Additive


def test_the_formula_is_left_when_its_table_outgrows_a_tile(monkeypatch: pytest.MonkeyPatch) -> None:
    query, key, value = torch.randn(2, 5, 3), torch.randn(2, 7, 3), torch.randn(2, 7, 3)
    dot, additive = prepare(query, key, value).call, prepare(query, key, value, score=Additive(3, 3, 11)).call
    # 2·5·7 = 70 scores, and 11 numbers for each of them
    monkeypatch.setattr(rows, "TILE", 70)
    assert thresholds.slower("formula", dot) is None
    assert thresholds.slower("formula", additive) == "it would hold the whole table of scores, which tiles do not"
    monkeypatch.setattr(rows, "TILE", 69)
    assert thresholds.slower("formula", dot) is not None
    monkeypatch.setattr(rows, "TILE", 770)
    assert thresholds.slower("formula", additive) is None


def test_the_others_are_never_left_for_speed() -> None:
    call = prepare(torch.randn(2, 5, 3), torch.randn(2, 7, 3), torch.randn(2, 7, 3)).call
    assert thresholds.slower("sdpa", call) is thresholds.slower("tiled", call) is None
