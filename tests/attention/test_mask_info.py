from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch._subclasses import FakeTensorMode

from attent.attention import attend, explain, mask_info, prepare
from attent.attention.backends import bands, select
from attent.attention.base import KeyRange, Mask, Pairs
from attent.attention.masks import Causal, Documents, Padding, PerHead, Prefix, Table, Window
from attent.ops.eligibility import can_run_native

QUERY, KEY, VALUE = torch.zeros(2, 3, 5, 4), torch.zeros(2, 3, 7, 4), torch.zeros(2, 3, 7, 11)


@pytest.mark.parametrize("start", [None, 0, -3, -9, 9, torch.tensor([2, -4])])
@pytest.mark.parametrize(("hidden_rows", "chunk"), [(0, 1), (1, 100), (5, 10000)])
def test_visible_keys_are_those_that_any_query_sees(
    start: Any, hidden_rows: int, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mask_info, "CHUNK", chunk)
    bias = torch.zeros(hidden_rows, 7).index_fill(1, torch.tensor([2]), -torch.inf) if hidden_rows else None
    for mask in (
        Causal(),
        Window(1, 0),
        Window(None, 2),
        Window(0, None) & Causal(),
        Window(2, 1) & Padding(torch.tensor([4, 0])),
        (Causal() | Prefix(torch.tensor([2, 6]))) & Padding(torch.tensor([7, 3])),
        PerHead([Causal(), Window(0, 0), Prefix(1)]),
        Table(torch.eye(5, 7).roll(2, 1) > 0),
    ):
        call = prepare(QUERY, KEY, VALUE, mask=mask, query_start=start, bias=bias).call
        expected = call.allowed(call.pairs()).any(-2).expand(2, 3, 7)
        assert torch.equal(mask_info.visible_keys_of(call).expand(2, 3, 7), expected), mask
    assert mask_info.visible_keys_of(prepare(QUERY, KEY, VALUE).call) is None


def test_what_all_queries_see_of_a_long_sequence_is_not_asked_pair_by_pair(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Causal, "allowed", None)
    sequence = torch.zeros(10007, 2)
    assert mask_info.visible_keys_of(prepare(sequence, sequence, sequence, mask=Causal() & Window(3, 0)).call).all()


LENGTHS = torch.tensor([7, 3])
MASKS = {
    "causal": Causal(),
    "padding": Padding(LENGTHS),
    "window": Window(2, 0),
    "and": Causal() & Padding(LENGTHS),
    "or": Window(1, 0) | Prefix(2),
    "documents": Documents(torch.tensor([[0, 0, 0, 1, 1, 2, 2], [0, 0, 1, 1, 1, 1, -1]])),
}


def count_key_ranges(monkeypatch: pytest.MonkeyPatch, mask: Mask) -> list[int]:
    """Count how often this mask, and no part of it, is asked for its range.

    Its class stays, on which backends depend.
    """
    requests, key_range = [0], type(mask).key_range

    def counting(self: Mask, pairs: Pairs) -> KeyRange | None:
        requests[0] += self is mask
        return key_range(self, pairs)

    monkeypatch.setattr(type(mask), "key_range", counting)
    return requests


@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize("path", ["dense", "sdpa", "tiled", "varlen", "auto"])
def test_a_mask_is_asked_for_its_range_once_a_call(monkeypatch: pytest.MonkeyPatch, name: str, path: str) -> None:
    if path == "dense" and not can_run_native():
        pytest.skip("dense attention needs the compiled library")
    mask, is_banded = MASKS[name], path not in ("dense", "sdpa")
    for module, limit, number in ((bands, "ROWS", 1), (select, "MANY", 1), (select, "SPARSE", 2.0)):
        monkeypatch.setattr(module, limit, number if is_banded else sys.maxsize)
    monkeypatch.setattr(bands, "LEAST", 1)
    monkeypatch.setattr(bands, "TILE", 64)
    padding = 1 if path == "varlen" else sys.maxsize
    monkeypatch.setattr(select, "VARLEN_PADDING", {"dot": padding, "tanh": padding})
    requests = count_key_ranges(monkeypatch, mask)
    tensors = [torch.randn(2, 3, length, 5, requires_grad=True) for length in (5, 7, 7)]
    implementation = "sdpa" if path == "varlen" else path
    options: dict[str, Any] = {"mask": mask, "implementation": implementation}

    variant = explain(*tensors, **options).variant
    assert requests[0] <= 1
    assert (variant == "varlen") is (path == "varlen" and name in ("padding", "and", "documents"))

    requests[0] = 0
    context, weights = attend(*tensors, **options, return_map=True)
    context.sum().backward()
    assert weights[0, 0, 3].shape == (7,)
    # PyTorch's takes a table of all pairs
    assert requests[0] == (path != "sdpa")


@pytest.mark.parametrize("first", ["inference", "fake"])
def test_a_range_is_not_kept_from_one_call_to_the_next(first: str) -> None:
    tensors = [torch.randn(2, 3, length, 5, requires_grad=True) for length in (11, 13, 13)]
    with torch.inference_mode() if first == "inference" else FakeTensorMode(allow_non_fake_inputs=True):
        call = prepare(*tensors, mask="causal").call
        assert call.key_range is call.key_range
    repeated = prepare(*tensors, mask="causal").call
    assert repeated == call
    assert type(repeated.key_range.begin) is torch.Tensor
    assert not repeated.key_range.begin.is_inference()


def test_another_mask_or_start_has_a_range_of_its_own() -> None:
    call = prepare(QUERY, KEY, VALUE, mask=Causal(), query_start=0).call
    assert call.key_range.end.flatten().tolist() == [1, 2, 3, 4, 5]
    assert replace(call, start=1).key_range.end.flatten().tolist() == [2, 3, 4, 5, 6]
    assert replace(call, mask=Window(0, 0)).key_range.begin.flatten().tolist() == [0, 1, 2, 3, 4]
    assert replace(call, mask=None).key_range is None


@pytest.mark.parametrize(
    ("dtype", "garbage"), [(torch.float32, 1e6), (torch.float32, torch.nan), (torch.float64, torch.inf)]
)
def test_hidden_keys_have_no_say_in_how_a_gaussian_is_computed(dtype: torch.dtype, garbage: float) -> None:
    query, key, value = (torch.randn(2, heads, length, 4, dtype=dtype) for heads, length in ((4, 5), (2, 7), (2, 7)))
    lengths = torch.tensor([3, 6])
    hidden = (torch.arange(7) >= lengths[:, None])[:, None, :, None]
    spoilt, options = key.masked_fill(hidden, garbage), {"score": "gaussian", "lengths": lengths}
    assert explain(query, spoilt, value, **options).chosen == explain(query, key, value, **options).chosen
    assert torch.equal(attend(query, spoilt, value, **options), attend(query, key, value, **options))
