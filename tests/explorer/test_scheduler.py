from __future__ import annotations

import threading

import pytest
import torch

from attent.explorer.scheduler import ClosedError, LRUCache, Scheduler


def test_computations_run_one_at_a_time() -> None:
    scheduler, order, started = Scheduler(), list[str](), threading.Event()

    def compute() -> None:
        started.set()
        with scheduler.foreground():
            order.append("second")

    with scheduler.foreground():
        thread = threading.Thread(target=compute)
        thread.start()
        started.wait(10)
        order.append("first")
    thread.join()
    assert order == ["first", "second"]


def test_nothing_begins_after_the_end() -> None:
    scheduler = Scheduler()
    scheduler.close()
    with pytest.raises(ClosedError), scheduler.foreground():
        pass


def test_a_cache_forgets_the_least_recently_used_beyond_its_bound() -> None:
    cache = LRUCache(bound=100)
    for name in "abc":
        cache.put(name, torch.zeros(10))  # 40 bytes each
        cache.get("a")
    assert cache.get("a") is not None
    assert cache.get("b") is None
    assert cache.size == 80
    # once for each name, and nothing that is larger than the bound
    cache.put("a", torch.ones(5))
    assert cache.size == 60
    assert torch.equal(cache.get("a"), torch.ones(5))
    cache.put("a", torch.zeros(100))
    assert cache.get("a") is None
    assert cache.size == 40
