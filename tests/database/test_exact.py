from __future__ import annotations

import torch

from attent.attention import prepare
from attent.attention.backends.block_sparse import bands
from attent.attention.base import Pairs
from attent.database.exact import Equal


def test_a_query_sees_its_equals() -> None:
    mask = Equal.of(["b", "x", "a"], ["a", "b", "a"])
    assert mask.draw(3, 3) == "·■·\n···\n■·■"
    assert mask.found.tolist() == [True, False, True]
    assert Equal.of([1, float("nan")], [1.0, float("nan")]).draw(2, 2) == "■·\n··"
    assert repr(mask) == "Equal(3 queries, 3 keys)"


def test_no_keys_and_no_queries() -> None:
    assert Equal.of(["a"], []).found.tolist() == [False]
    assert Equal.of([], ["a"]).found.tolist() == []


def test_nothing_is_seen_beyond_its_reach() -> None:
    dice = torch.Generator().manual_seed(0)
    query, key = torch.randint(0, 40, (30,), generator=dice).tolist(), torch.randint(0, 50, (60,), generator=dice).tolist()
    mask, rows = Equal.of(query, key), torch.arange(30)
    pairs = Pairs(rows, torch.arange(60), rows[None], 1)
    allowed = mask.allowed(pairs)[0, 0]
    first, last = (end[0, 0] for end in mask.reach(pairs))
    places = torch.arange(60)
    assert not bool((allowed & ((places < first) | (places > last))).any())
    assert bool((allowed.any(1) == (first <= last)[:, 0]).all())
    assert torch.equal(mask.seen(pairs), allowed.any(0))


def test_only_what_may_be_equal_is_computed() -> None:
    things = list(range(2000))
    tensor = torch.zeros(2000, 1)
    call = prepare(tensor, tensor, tensor, mask=Equal.of(things, things)).call
    assert sum(band.pairs for band in bands(call)) < 0.2 * 2000**2
