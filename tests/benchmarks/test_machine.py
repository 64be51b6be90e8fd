import os
import platform

import numpy as np
import pytest
from _machine import memory_growth, peak_memory, run_in_process, total_memory


@pytest.mark.skipif(platform.system() == "Windows", reason="Windows is not asked")
def test_the_peak_grows_with_what_is_held() -> None:
    before = peak_memory() or 0
    held = np.ones(64 * 2**17)  # 64 MiB
    after = peak_memory() or 0
    assert after >= before > 0
    assert (total_memory() or 0) > after >= held.nbytes / 2**20


def _add(a: int, b: int) -> tuple[int, int]:
    return a + b, os.getpid()


def _die() -> None:
    os._exit(9)


def _held(size: int) -> float | None:
    return memory_growth(lambda: np.ones(size * 2**17))


def test_a_function_runs_in_a_process_of_its_own() -> None:
    answer = run_in_process(_add, 2, 5)
    assert answer[0] == 7
    assert answer[1] != os.getpid()


def test_a_process_that_dies_has_nothing_to_say() -> None:
    assert run_in_process(_die) is None


@pytest.mark.skipif(platform.system() == "Windows", reason="Windows is not asked")
def test_what_work_holds_is_seen() -> None:
    # in a new process, for this one has held more before
    answer = run_in_process(_held, 64)
    assert 60 < answer < 80
