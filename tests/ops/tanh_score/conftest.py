"""The device of the Triton kernels: a GPU if torch finds one, else Triton's interpreter on the CPU."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from importlib.util import find_spec

import pytest
import torch

GPU = torch.cuda.is_available()


def missing() -> str | None:
    """Import the kernels; return the reason why they cannot be tested, or None."""
    if find_spec("triton") is None:
        return "no Triton: it is installed with torch for CUDA"
    if GPU:
        return None
    if "triton" in sys.modules and "attent.ops.tanh_score.triton.tiles" not in sys.modules:
        return "Triton was imported before it was told to interpret"
    # Triton reads the variable when a kernel is defined
    before = os.environ.get("TRITON_INTERPRET")
    os.environ["TRITON_INTERPRET"] = "1"
    try:
        import_module("attent.ops.tanh_score.triton.attention")
    finally:
        if before is None:
            del os.environ["TRITON_INTERPRET"]
        else:
            os.environ["TRITON_INTERPRET"] = before
    return None


MISSING = missing()


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> torch.device:
    """The device of the kernels; on a CPU they run as on a GPU, in small blocks."""
    if MISSING is not None:
        pytest.skip(MISSING)
    if GPU:
        return torch.device("cuda")
    from attent.attention.backends import tanh
    from attent.ops.tanh_score import operator
    from attent.ops.tanh_score.triton import attention, tiles

    # Triton reads the variable again when a kernel runs
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    for module in (operator, tanh):
        monkeypatch.setattr(module, "can_run_triton", lambda device, dtype: dtype != torch.float64)
    for module in (attention, tiles):
        monkeypatch.setattr(module, "BLOCK", 32)
    return torch.device("cpu")
