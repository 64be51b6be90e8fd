import ctypes
import platform

import pytest

from attent.devices import limit_heap_fragmentation


@pytest.mark.parametrize("error", [None, OSError, TypeError])
def test_glibc_takes_a_limit_and_others_are_left_alone(
    error: type[Exception] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(name: None) -> None:
        assert error
        raise error

    if error:
        monkeypatch.setattr(ctypes, "CDLL", none)
    assert limit_heap_fragmentation() is (error is None and platform.libc_ver()[0] == "glibc")
