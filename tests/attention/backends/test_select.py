from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.autograd import forward_ad

from attent.attention import attend, explain, prepare
from attent.attention.backends import block_sparse, row_tiles, select, varlen
from attent.attention.backends.capabilities import missing
from attent.attention.masks import Causal, Window
from attent.attention.scores import Additive
from attent.attention.weightings import GaussianWindow


def test_the_formula_is_left_when_its_table_outgrows_a_tile(monkeypatch: pytest.MonkeyPatch) -> None:
    query, key, value = torch.randn(2, 5, 3), torch.randn(2, 7, 3), torch.randn(2, 7, 3)
    dot, additive = prepare(query, key, value).call, prepare(query, key, value, score=Additive(3, 3, 11)).call
    # 2·5·7 = 70 scores, and 11 numbers for each of them
    monkeypatch.setattr(row_tiles, "WHOLE", 1)
    monkeypatch.setattr(row_tiles, "TILE", 70)
    assert select.slower("formula", dot) is None
    assert select.slower("formula", additive) == "it would hold the whole table of scores, which tiles do not"
    monkeypatch.setattr(row_tiles, "TILE", 69)
    assert select.slower("formula", dot) is not None
    monkeypatch.setattr(row_tiles, "TILE", 770)
    assert select.slower("formula", additive) is None


def test_pytorchs_attention_is_left_where_a_mask_hides_most_and_a_bias_wants_a_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(select, "MANY", 64 * 64)
    monkeypatch.setattr(block_sparse, "LEAST", 1)
    monkeypatch.setattr(block_sparse, "ROWS", 1)
    tensors, bias = [torch.randn(1, 1, 64, 3) for _ in range(3)], torch.zeros(1, 64, requires_grad=True)
    for mask, slow in ((Window(3, 0), True), (Window(31, 0), False), (Causal(), False), (None, False)):
        reason = select.slower("sdpa", prepare(*tensors, mask=mask, bias=bias).call)
        assert (reason is not None) is slow
        assert select.slower("sdpa", prepare(*tensors, mask=mask, bias=bias.detach()).call) is None
    few = prepare(*(tensor[:, :, :63] for tensor in tensors), mask=Window(3, 0), bias=bias[:, :63]).call
    assert select.slower("sdpa", few) is None


def test_a_few_queries_take_the_plain_tanh() -> None:
    score, key = Additive(3, 3, 5), torch.randn(1, 1, 7, 3)
    for queries, slow in ((1, True), (3, True), (4, False)):
        reason = select.slower("tanh", prepare(torch.randn(1, 1, queries, 3), key, key, score=score).call)
        assert (reason == "fewer than 4 queries do not repay its exponentials of every key") is slow


def test_long_sequences_and_single_queries_are_left_to_pytorch() -> None:
    def reason(queries: int, keys: int, dtype: torch.dtype = torch.float32, **arguments: Any) -> str | None:
        query, key = torch.zeros(1, 1, queries, 2, dtype=dtype), torch.zeros(1, 1, keys, 2, dtype=dtype)
        return select.slower("short", prepare(query, key, key, **arguments).call)

    assert reason(3, 5) == "fewer than 4 queries do not fill its registers"
    assert reason(4, 256) is reason(4, 256, torch.bfloat16) is reason(4, 2048, dropout=0.1, seed=1) is None
    assert reason(4, 257) == "more than 256 keys are not short"
    assert reason(4, 2049, dropout=0.1, seed=1) == "more than 2048 keys are not short"
    with torch.no_grad():
        assert reason(4, 1024) is reason(4, 5, torch.bfloat16, dropout=0.1, seed=1) is None
        assert reason(4, 1025) == "more than 1024 keys are not short"
        assert reason(4, 5, torch.bfloat16) == "without gradients PyTorch takes 16 bits in less time"


def test_otherwise_none_is_left_for_speed() -> None:
    call = prepare(torch.randn(2, 5, 3), torch.randn(2, 7, 3), torch.randn(2, 7, 3)).call
    assert select.slower("sdpa", call) is select.slower("tiled", call) is None


def contract() -> Any:
    """The table of the contract tests."""
    spec = importlib.util.spec_from_file_location("contract_table", Path(__file__).parents[1] / "test_contract.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


CONTRACT = contract()
LONG = torch.linspace(-1, 1, 2 * 2 * 512 * 4).view(2, 2, 512, 4)
FURTHER: dict[str, dict[str, Any]] = {
    "dense": {},
    "ragged": {"lengths": torch.tensor([512, 0])},
    "ragged, tanh": {"lengths": torch.tensor([512, 0]), "score": Additive(4, 4, 16, heads=2)},
    "banded": {"mask": Window(3, 0), "score": "cosine"},
    "banded, tiled": {"mask": Window(3, 0), "soft_cap": 2.0},
    "dropout": {"dropout": 0.5, "seed": 1},
    "weighting": {"weighting": GaussianWindow(torch.zeros(1, 512), 3.0)},
}


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The backends that `attend` ran, and "varlen" where it split the batch."""
    names: list[str] = []

    def recorded(name: str, run: Any) -> Any:
        return lambda *args: (names.append(name), run(*args))[1]

    module = importlib.import_module("attent.attention.attend")
    backends = {
        name: SimpleNamespace(unsupported=backend.unsupported, run=recorded(name, backend.run))
        for name, backend in module.IMPLEMENTATIONS.items()
    }
    monkeypatch.setattr(module, "IMPLEMENTATIONS", backends)
    monkeypatch.setattr(varlen, "run", recorded("varlen", varlen.run))
    return names


def held(ran: list[str], tensors: Any, arguments: dict[str, Any]) -> None:
    explanation = explain(*tensors, **arguments)
    ran.clear()
    attend(*tensors, **arguments)
    if explanation.variant == "varlen":
        assert ran[0] == "varlen"
        assert "for each sequence alone" in str(explanation)
    else:
        assert ran == [explanation.chosen]


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
@pytest.mark.parametrize("row", CONTRACT.ROWS, ids=lambda row: "-".join(row.values()))
def test_the_plan_is_what_runs(row: dict[str, str], ran: list[str]) -> None:
    case = CONTRACT.case_of(row)
    tensors = [tensor.float() for tensor in case.tensors()]
    case.score.float()
    held(ran, tensors, {name: value for name, value in case.arguments().items() if name != "bias"})
    with forward_ad.dual_level():
        held(ran, [forward_ad.make_dual(tensors[0], torch.ones_like(tensors[0])), *tensors[1:]], case.arguments())


@pytest.mark.parametrize("name", FURTHER)
def test_the_plan_of_large_calls_is_what_runs(name: str, ran: list[str]) -> None:
    held(ran, [LONG] * 3, FURTHER[name])
    assert ("varlen" in ran) is name.startswith("ragged")


def test_a_backend_says_what_it_lacks() -> None:
    bias = torch.zeros(5, 7, requires_grad=True)
    query, key = torch.randn(2, 5, 3), torch.randn(2, 7, 3)
    needs: dict[str, dict[str, Any]] = {
        "normalizer": {"normalizer": "sparsemax"},
        "soft cap": {"soft_cap": 1.0},
        "dropout": {"dropout": 0.5, "seed": 1},
        "weighting": {"weighting": GaussianWindow(torch.zeros(1, 5), 3.0)},
        "position bias": {"position": "alibi"},
        "bias": {"bias": bias.detach()},
    }
    for capability, arguments in needs.items():
        call = prepare(query, key, key, **arguments).call
        assert missing(call, frozenset())
        assert missing(call, frozenset({capability})) is None
    call = prepare(query, key, key, bias=bias).call
    assert missing(call, frozenset({"bias"})) == "it has no gradient for a bias"
    assert missing(call, frozenset({"bias", "bias gradient"})) is None
