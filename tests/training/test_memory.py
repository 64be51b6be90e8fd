from __future__ import annotations

import ctypes
import platform

import pytest

from attent.devices import limit_heap_fragmentation


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the C library is not glibc")
def test_glibc_takes_it() -> None:
    assert limit_heap_fragmentation()


@pytest.mark.parametrize("error", [OSError, TypeError])
def test_others_are_left_alone(error: type[Exception], monkeypatch: pytest.MonkeyPatch) -> None:
    def none(name: None) -> None:
        raise error

    monkeypatch.setattr(ctypes, "CDLL", none)
    assert not limit_heap_fragmentation()
