from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.autograd import forward_ad

from attent.attention import attend, explain, prepare, reference
from attent.attention.backends import bands, dense, heuristics, select, tiled
from attent.attention.backends.heuristics import ROWS, MachineRow, current_row, save_calibration, using_row
from attent.attention.backends.select import missing_capability
from attent.attention.masks import Causal, Documents, Selected, Window
from attent.attention.normalizers import NORMALIZERS, TopK
from attent.attention.positions import RelativeBias
from attent.attention.scores import SCORES, Additive
from attent.attention.weightings import GaussianWindow
from attent.ops import eligibility, native
from attent.ops import sdpa as ops_sdpa
from attent.ops.tanh_score import operator


def test_the_formula_is_left_when_its_table_outgrows_a_tile(monkeypatch: pytest.MonkeyPatch) -> None:
    query, key, value = torch.randn(2, 5, 3), torch.randn(2, 7, 3), torch.randn(2, 7, 3)
    dot, additive = prepare(query, key, value).call, prepare(query, key, value, score=Additive(3, 3, 11)).call
    # 2·5·7 = 70 scores, and 11 numbers for each of them
    monkeypatch.setattr(bands, "WHOLE", 1)
    monkeypatch.setattr(bands, "TILE", 70)
    assert select.reason_to_skip("reference", dot) is None
    assert select.reason_to_skip("reference", additive) == "it would hold the whole table of scores, which tiles do not"
    monkeypatch.setattr(bands, "TILE", 69)
    assert select.reason_to_skip("reference", dot) is not None
    monkeypatch.setattr(bands, "TILE", 770)
    assert select.reason_to_skip("reference", additive) is None


def test_pytorchs_attention_is_left_where_a_mask_hides_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(select, "MANY", 64 * 64)
    monkeypatch.setattr(bands, "LEAST", 1)
    monkeypatch.setattr(bands, "ROWS", 1)
    tensors, bias = [torch.randn(1, 1, 64, 3) for _ in range(3)], torch.zeros(1, 64, requires_grad=True)
    for mask, slow in ((Window(3, 0), True), (Window(31, 0), False), (Causal(), False), (None, False)):
        reason = select.reason_to_skip("sdpa", prepare(*tensors, mask=mask, bias=bias).call)
        assert (reason is not None) is slow
    subset = prepare(*(tensor[:, :, :63] for tensor in tensors), mask=Window(3, 0), bias=bias[:, :63]).call
    assert select.reason_to_skip("sdpa", subset) is None


def test_a_few_queries_take_the_plain_tanh() -> None:
    score, key = Additive(3, 3, 5), torch.randn(1, 1, 7, 3)
    for queries, slow in ((1, True), (3, True), (4, False)):
        reason = select.reason_to_skip("tanh", prepare(torch.randn(1, 1, queries, 3), key, key, score=score).call)
        assert (reason == "its exponentials of every key do not pay off for fewer than 4 queries") is slow


def skip_reason(queries: int, keys: int, dtype: torch.dtype = torch.float32, **arguments: Any) -> str | None:
    query, key = torch.zeros(1, 1, queries, 2, dtype=dtype), torch.zeros(1, 1, keys, 2, dtype=dtype)
    return select.reason_to_skip("dense", prepare(query, key, key, **arguments).call)


def test_the_row_of_the_machine_decides_between_dense_attention_and_pytorchs() -> None:
    short = torch.bfloat16
    amx = "PyTorch is faster beyond {} keys by the machine row 'amx'"
    with heuristics.using_row(heuristics.ROWS["amx"]):
        assert skip_reason(4, 256) is skip_reason(4, 256, short) is skip_reason(4, 2**20, dropout=0.1, seed=1) is None
        assert skip_reason(4, 257) == skip_reason(4, 257, short) == amx.format(256)
        with torch.no_grad():
            assert skip_reason(4, 1024) is skip_reason(4, 5, short, dropout=0.1, seed=1) is None
            assert skip_reason(4, 1025) == amx.format(1024)
            assert skip_reason(4, 5, short) == amx.format(0)
    with heuristics.using_row(heuristics.ROWS["avx512"]):
        assert skip_reason(4, 2**17) is skip_reason(4, 2**17, short) is skip_reason(4, 2**17, mask="causal") is None
        bias, beyond = torch.zeros(4, 1025), "PyTorch is faster beyond 1024 keys by the machine row 'avx512'"
        assert skip_reason(4, 1025, bias=bias) is skip_reason(4, 1025, mask=bias == 0) is None
        with torch.no_grad():
            assert skip_reason(4, 1025, short, mask=bias == 0) == beyond
            assert skip_reason(4, 1024, short, mask=bias[:, :1024] == 0) is None
    assert skip_reason(1, 5) == "a single query does not fill its registers"


def selected_blocks(table: torch.Tensor) -> Selected:
    """Let each two queries select the pairs of keys that a table marks."""
    pairs = table.repeat_interleave(2, 0).repeat_interleave(2, 1)
    return Selected(torch.where(pairs, torch.arange(pairs.shape[1]), -1))


def test_few_pairs_that_a_mask_scatters_are_left_to_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, limit, number in (
        (select, "TABLE", 64 * 64),
        (select, "MANY", 1),
        (bands, "LEAST", 1),
        (bands, "ROWS", 1),
    ):
        monkeypatch.setattr(module, limit, number)
    monkeypatch.setattr(bands, "GATHERED_ROWS", 2)
    first_and_own = torch.eye(32).bool()
    first_and_own[:, 0] = True
    half = torch.arange(32).expand(32, 32) % 2 == 0
    few, many = (selected_blocks(table) for table in (first_and_own, half))
    for mask, is_left in ((few, True), (Documents(torch.arange(64)[None] // 2), False), (many, False)):
        reason = skip_reason(64, 64, mask=mask)
        assert (reason == "its table of all pairs would take longer than tiles of the few that attend") is is_left
    assert skip_reason(63, 64, mask=Selected(few.indices[:63])) is None
    # of so few pairs the formula comes first
    assert explain(*torch.randn(3, 1, 1, 64, 2), mask=few).chosen == "reference"


LONG = torch.linspace(-1, 1, 2 * 2 * 512 * 4).view(2, 2, 512, 4)
FURTHER: dict[str, dict[str, Any]] = {
    "dense": {},
    "ragged": {"lengths": torch.tensor([512, 0])},
    "ragged, tanh": {"lengths": torch.tensor([512, 0]), "score": Additive(4, 4, 16, heads=2)},
    "banded": {"mask": Window(3, 0), "score": "cosine"},
    "dropout": {"dropout": 0.5, "seed": 1},
}


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The leaves that `attend` ran, recorded where they compute; of tiles, their bands."""
    leaves: list[Any] = []

    def recorded(owner: Any, attribute: str, leaf: Any) -> None:
        function = getattr(owner, attribute)

        def recording(*args: Any, **named: Any) -> Any:
            leaves.append(leaf(*args) if callable(leaf) else leaf)
            return function(*args, **named)

        monkeypatch.setattr(owner, attribute, recording)

    recorded(dense, "DenseAttention", "dense, batch")
    recorded(reference, "run", "reference, batch")
    recorded(select, "run_sequences", "varlen")
    recorded(tiled.Tiles, "context", lambda tiles, lowered, band: band)
    recorded(operator, "tanh_scores", "op")
    for name, function in list(ops_sdpa.VARIANTS.items()):
        monkeypatch.setitem(
            ops_sdpa.VARIANTS, name, lambda *args, n=name, f=function: (leaves.append(f"sdpa, {n}"), f(*args))[1]
        )
    return leaves


def held(ran: list[Any], tensors: Any, arguments: dict[str, Any]) -> str:
    """Check that what `explain` says runs; the backend and the variant."""
    explanation = explain(*tensors, **arguments)
    ran.clear()
    attend(*tensors, **arguments)
    planned = f"{explanation.chosen}, {explanation.variant}"
    parts = [leaf for leaf in ran if isinstance(leaf, bands.Band)]
    if explanation.variant == "varlen":
        assert ran[0] == "varlen"
        assert "for each sequence separately" in str(explanation)
        return planned
    assert str(explanation).startswith(f"{explanation.chosen} runs")
    if not parts:
        assert ran == [planned]
        return planned
    is_banded = any(len(band.keys) < tensors[1].shape[-2] for band in parts)
    variant = "single_tile" if len(parts) == 1 else "bands" if is_banded else "row_tiles"
    is_plain = explanation.chosen == "tanh" and "op" not in ran
    assert planned == f"{explanation.chosen}, {'plain_' if is_plain else ''}{variant}"
    # one more may be the trial of a row
    assert ran.count("op") in (0, len(parts), len(parts) + 1)
    return planned


SHORT = LONG[:, :, :8]
BRIEF: dict[str, dict[str, Any]] = {
    **{name: {"score": score.for_widths(4, 4, 2)} for name, score in SCORES.items()},
    **{name: {"normalizer": TopK(3) if name == "top_k" else name} for name in NORMALIZERS},
    "causal": {"mask": "causal"},
    "lengths": {"lengths": torch.tensor([8, 0]), "score": "cosine"},
    "a window": {"mask": Window(2, 1), "query_start": torch.tensor([0, 3])},
    "a table": {"mask": torch.eye(8) > 0},
    "a bias": {"bias": torch.zeros(8, 8)},
    "alibi": {"position": "alibi", "soft_cap": 2.0, "score": "gaussian"},
    "rotary": {"position": "rotary", "mask": "causal"},
    "a relative bias": {"position": RelativeBias(2), "score": Additive(4, 4, 3)},
    "weighting": {"weighting": GaussianWindow(torch.zeros(1, 8), 3.0), "dropout": 0.2, "seed": 1},
}


@pytest.mark.filterwarnings("ignore:`torch.jit")
@pytest.mark.parametrize("name", BRIEF)
def test_the_plan_is_what_runs(name: str, ran: list[str]) -> None:
    held(ran, [SHORT] * 3, BRIEF[name])
    with forward_ad.dual_level():
        held(ran, [forward_ad.make_dual(SHORT, torch.ones_like(SHORT)), SHORT, SHORT], BRIEF[name])


@pytest.mark.parametrize("name", FURTHER)
def test_the_plan_of_large_calls_is_what_runs(name: str, ran: list[Any]) -> None:
    assert held(ran, [LONG] * 3, FURTHER[name]).endswith("varlen") is name.startswith("ragged")
    assert ("varlen" in ran) is name.startswith("ragged")


def city_block(query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
    return -(query[..., None, :] - key[..., None, :, :]).abs().sum(-1)


LEARNED = SHORT.clone().requires_grad_()
LONG_LEARNED = LONG.clone().requires_grad_()
VARIANTS: dict[str, tuple[list[torch.Tensor], dict[str, Any]]] = {
    "sdpa, pytorch": ([SHORT] * 3, {"implementation": "sdpa"}),
    "sdpa, products": ([LEARNED] * 3, {"implementation": "sdpa"}),
    "sdpa, twice_differentiable": ([LONG_LEARNED] * 3, {"implementation": "sdpa", "mask": "causal", "query_start": 0}),
    "tiled, single_tile": ([LEARNED] * 3, {"implementation": "tiled"}),
    "tiled, row_tiles": ([LONG_LEARNED] * 3, {"implementation": "tiled", "score": city_block}),
    "tiled, bands": ([LONG] * 3, {"implementation": "tiled", "mask": Window(3, 0), "soft_cap": 2.0}),
    "tanh, single_tile": ([LEARNED] * 3, {"score": Additive(4, 4, 5)}),
    "tanh, bands": ([LONG] * 3, {"score": Additive(4, 4, 5), "mask": Window(3, 0)}),
    "reference, batch": ([SHORT] * 3, {"implementation": "reference"}),
}  # fmt: skip


@pytest.mark.parametrize("expected", VARIANTS)
def test_each_variant_is_planned_and_runs(expected: str, ran: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    tensors, arguments = VARIANTS[expected]
    if expected == "tiled, row_tiles":
        monkeypatch.setattr(bands, "TILE", 2**18)
    assert held(ran, tensors, arguments) == expected


def test_transforms_take_plain_paths(ran: list[Any]) -> None:
    with forward_ad.dual_level():
        arguments = {"score": Additive(4, 4, 5), "implementation": "tanh"}
        assert held(ran, [SHORT] * 3, arguments) == "tanh, plain_single_tile"
    planned: list[str] = []

    def mapped(query: torch.Tensor) -> torch.Tensor:
        planned.append(explain(query, query, query, implementation="tiled").variant)
        return attend(query, query, query, implementation="tiled")

    torch.func.vmap(mapped)(SHORT)
    assert planned == ["single_tile"]


def test_every_backend_lacks_a_function_of_the_scores() -> None:
    call = prepare(*torch.randn(3, 2, 5, 3)).call
    assert missing_capability(call, frozenset()) is None
    call = replace(call, score_mod=lambda scores, pairs: scores)
    assert missing_capability(call, frozenset({"soft cap"})) == "it has no function of the scores"


TENSORS = [torch.zeros(1, 1, 600, 2)] * 3


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    heuristics._calibrated_row.cache_clear()
    yield tmp_path / "attent" / "machine.json"
    heuristics._calibrated_row.cache_clear()


@pytest.mark.parametrize(
    ("level", "amx", "name"), [(0, False, "baseline"), (1, False, "avx2"), (2, False, "avx512"), (2, True, "amx")]
)
def test_a_processor_has_the_row_of_its_class(
    cache: Path, level: int, amx: bool, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native, "simd_level", lambda: level)
    monkeypatch.setattr(native, "has_amx", lambda: amx)
    assert current_row() is ROWS[name]


def test_a_calibration_decides_on_its_processor_until_its_file_is_removed(cache: Path) -> None:
    default = current_row()
    second = next(row for row in ROWS.values() if row is not default)
    assert save_calibration(second, {second.name: 1.0}) == cache
    choice = json.loads(cache.read_text())
    assert choice["row"] == second.name
    assert current_row() is second
    cache.write_text(json.dumps(choice | {"processor": "another"}))
    heuristics._calibrated_row.cache_clear()
    assert current_row() is default
    cache.unlink()
    heuristics._calibrated_row.cache_clear()
    assert current_row() is default


@pytest.mark.parametrize("content", ["", "{", "[]", '{"row": "none"}', '{"row": [], "processor": "PROCESSOR"}'])
def test_a_damaged_calibration_is_told_of_and_not_used(cache: Path, content: str) -> None:
    default = current_row()
    heuristics._calibrated_row.cache_clear()
    cache.parent.mkdir()
    cache.write_text(content.replace("PROCESSOR", eligibility.processor_class()))
    with pytest.warns(UserWarning, match="is not a valid calibration and is ignored"):
        assert current_row() is default


@pytest.mark.needs_native
def test_explain_says_which_row_decided() -> None:
    for name, chosen in (("amx", "sdpa"), ("avx512", "dense")):
        with using_row(ROWS[name]):
            explanation = explain(*TENSORS)
            assert (explanation.chosen, explanation.row) == (chosen, name)
            assert f"{chosen} runs" in str(explanation).splitlines()[0]
            assert f"by the machine row {name!r}" in str(explanation)
            assert attend(*TENSORS).shape == TENSORS[0].shape
    assert explain(*TENSORS, implementation="sdpa").row is None
    assert explain(*TENSORS, normalizer="sparsemax").row is None


def test_each_type_has_its_own_limits() -> None:
    row = MachineRow("one", "nowhere", 1, 2, 3, 4, 5, 6, table=None, table_gradients=None)
    limits = [
        row.dense_keys(dtype, with_gradients=with_gradients, with_table=False)
        for dtype in (torch.float32, torch.bfloat16, torch.float16)
        for with_gradients in (False, True)
    ]
    assert limits == [1, 2, 3, 4, 5, 6]
