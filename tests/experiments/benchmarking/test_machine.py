from __future__ import annotations

import platform

import numpy as np
import pytest
import torch

from attent.experiments.benchmarking import machine


def test_what_measured_is_named() -> None:
    found = machine.machine()
    assert found["processor"] == machine.processor() != ""
    assert found["threads"] == torch.get_num_threads()
    assert found["torch"] == torch.__version__
    assert int(found["cores"]) >= 1


@pytest.mark.skipif(platform.system() == "Windows", reason="Windows is not asked")
def test_the_peak_grows_with_what_is_held() -> None:
    before = machine.peak() or 0
    held = np.ones(64 * 2**17)  # 64 MiB
    after = machine.peak() or 0
    assert after >= before > 0
    assert (machine.physical() or 0) > after >= held.nbytes / 2**20
