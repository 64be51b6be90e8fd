from __future__ import annotations

import torch

from attent.explorer.scheduler import LRUCache


def test_beyond_the_bound_what_was_not_asked_for_longest_is_forgotten() -> None:
    cache = LRUCache(bound=100)
    for name in "abc":
        cache.put(name, torch.zeros(10))  # 40 bytes each
        cache.get("a")
    assert cache.get("a") is not None
    assert cache.get("b") is None
    assert cache.size == 80


def test_what_is_put_again_counts_once() -> None:
    cache = LRUCache(bound=100)
    cache.put("a", torch.zeros(10))
    cache.put("a", torch.ones(5))
    assert cache.size == 20
    assert torch.equal(cache.get("a"), torch.ones(5))


def test_what_is_larger_than_the_bound_is_not_kept() -> None:
    cache = LRUCache(bound=100)
    cache.put("a", torch.zeros(10))
    cache.put("a", torch.zeros(100))
    assert cache.get("a") is None
    assert cache.size == 0
