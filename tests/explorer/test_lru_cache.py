from __future__ import annotations

import torch

from attent.explorer.scheduler import LRUCache


def test_beyond_the_bound_what_was_not_asked_for_longest_is_forgotten() -> None:
    kept = LRUCache(bound=100)
    for name in "abc":
        kept.put(name, torch.zeros(10))  # 40 bytes each
        kept.get("a")
    assert kept.get("a") is not None
    assert kept.get("b") is None
    assert kept.size == 80


def test_what_is_put_again_counts_once() -> None:
    kept = LRUCache(bound=100)
    kept.put("a", torch.zeros(10))
    kept.put("a", torch.ones(5))
    assert kept.size == 20
    assert torch.equal(kept.get("a"), torch.ones(5))


def test_what_is_larger_than_the_bound_is_not_kept() -> None:
    kept = LRUCache(bound=100)
    kept.put("a", torch.zeros(10))
    kept.put("a", torch.zeros(100))
    assert kept.get("a") is None
    assert kept.size == 0
