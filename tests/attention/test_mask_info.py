from __future__ import annotations

import pytest
import torch

from attent.attention import attend, explain, mask_info, prepare
from attent.attention.mask_info import additive_mask
from attent.attention.masks import Causal, Padding, PerHead, Prefix, Window

QUERY, KEY, VALUE = torch.zeros(2, 3, 5, 4), torch.zeros(2, 3, 7, 4), torch.zeros(2, 3, 7, 11)


@pytest.mark.parametrize("tile", [1, 100, 10000])
def test_keys_that_any_query_sees(monkeypatch: pytest.MonkeyPatch, tile: int) -> None:
    monkeypatch.setattr(mask_info, "CHUNK", tile)

    def keys(**arguments) -> list[list[int]] | None:
        seen = mask_info.visible_keys_of(prepare(QUERY, KEY, VALUE, **arguments).call)
        return None if seen is None else [part.nonzero().flatten().tolist() for part in seen[:, 0]]

    assert keys() is None
    assert keys(mask=Causal(), query_start=0) == [[0, 1, 2, 3, 4]]
    assert keys(mask=Padding(torch.tensor([3, 0]))) == [[0, 1, 2], []]
    assert keys(mask=Causal() | Prefix(6), query_start=torch.tensor([0, 2])) == [[0, 1, 2, 3, 4, 5], [0, 1, 2, 3, 4, 5, 6]]
    one = torch.zeros(5, 7, dtype=torch.bool)
    one[4, 6] = True
    assert keys(mask=one) == [[6]]


@pytest.mark.parametrize("start", [None, 0, -3, -9, 9, torch.tensor([2, -4])])
@pytest.mark.parametrize("hiding", [None, "keys", "pairs"])
def test_keys_that_masks_tell_without_looking_are_those_that_are_seen(start, hiding: str | None) -> None:
    bias = None if hiding is None else torch.zeros(1 if hiding == "keys" else 5, 7).index_fill(1, torch.tensor([2]), -torch.inf)
    for mask in (
        Causal(),
        Window(1, 0),
        Window(None, 2),
        Window(0, None) & Causal(),
        Window(2, 1) & Padding(torch.tensor([4, 0])),
        (Causal() | Prefix(torch.tensor([2, 6]))) & Padding(torch.tensor([7, 3])),
        PerHead([Causal(), Window(0, 0), Prefix(1)]),
    ):
        call = prepare(QUERY, KEY, VALUE, mask=mask, query_start=start, bias=bias).call
        expected = call.allowed(call.pairs()).any(-2).expand(2, 3, 7)
        assert torch.equal(mask_info.visible_keys_of(call).expand(2, 3, 7), expected), mask


def test_what_all_queries_see_of_a_long_sequence_is_not_asked_pair_by_pair(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Causal, "allowed", None)
    sequence = torch.zeros(10007, 2)
    assert mask_info.visible_keys_of(prepare(sequence, sequence, sequence, mask=Causal() & Window(3, 0)).call).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("garbage", [1e6, torch.inf, torch.nan])
def test_hidden_keys_have_no_say_in_how_a_gaussian_is_computed(dtype: torch.dtype, garbage: float) -> None:
    """Keys that lie far away have their distances taken one by one, but not where no query sees them; not a bit changes."""
    query, key, value = (torch.randn(2, heads, length, 4, dtype=dtype) for heads, length in ((4, 5), (2, 7), (2, 7)))
    lengths = torch.tensor([3, 6])
    hidden = (torch.arange(7) >= lengths[:, None])[:, None, :, None]
    spoilt = key.masked_fill(hidden, garbage)
    how = {"score": "gaussian", "lengths": lengths}
    assert explain(query, spoilt, value, **how).chosen == explain(query, key, value, **how).chosen
    assert torch.equal(attend(query, spoilt, value, **how), attend(query, key, value, **how))


def test_nothing_hidden_adds_nothing() -> None:
    assert additive_mask(None, None, torch.float32) == (None, None)
    assert additive_mask(torch.ones(1, 1, 2, 3, dtype=torch.bool), None, torch.float32) == (None, None)


def test_a_mask_is_minus_infinity_and_a_row_that_sees_nothing_is_open() -> None:
    allowed = torch.tensor([[True, False], [False, False]])
    term, dead = additive_mask(allowed, None, torch.float64)
    assert term is not None
    assert dead is not None
    assert term.dtype == torch.float64
    assert term.tolist() == [[0.0, -torch.inf], [0.0, 0.0]]
    assert dead.tolist() == [[False], [True]]


def test_a_bias_joins_it_and_its_infinities_are_the_masks() -> None:
    bias = torch.tensor([[1.0, 2.0], [-torch.inf, 3.0]])
    term, dead = additive_mask(torch.tensor([[True, False], [False, True]]), bias, torch.float32)
    assert term is not None
    assert dead is None
    assert term.tolist() == [[1.0, -torch.inf], [-torch.inf, 3.0]]
    term, _ = additive_mask(None, torch.tensor([[1.0, 2.0]]), torch.float32)
    assert term is not None
    assert term.tolist() == [[1.0, 2.0]]
    # a row hidden by its bias alone
    term, dead = additive_mask(
        torch.tensor([[False, False], [True, True]]), torch.tensor([[-torch.inf, -torch.inf], [1.0, 2.0]]), torch.float32
    )
    assert term is not None
    assert dead is not None
    assert term.tolist() == [[0.0, 0.0], [1.0, 2.0]]
    assert dead.tolist() == [[True], [False]]
