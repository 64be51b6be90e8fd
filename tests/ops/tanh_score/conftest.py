"""The device of the Triton kernels: a GPU if torch finds one, else Triton's interpreter on the CPU."""

from __future__ import annotations

from importlib.util import find_spec

import pytest
import torch

MISSING = None if find_spec("triton") else "no Triton: it is installed with torch for CUDA"


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> torch.device:
    """The device of the kernels; on a CPU they run as on a GPU, in small blocks."""
    if MISSING is not None:
        pytest.skip(MISSING)
    if torch.cuda.is_available():
        return torch.device("cuda")
    from attent.ops.tanh_score import operator
    from attent.ops.tanh_score.triton import tiles

    # Triton reads the variable again when a kernel runs
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    monkeypatch.setattr(operator, "can_run_triton", lambda device, dtype: dtype != torch.float64)
    for name in ("BLOCK", "RUN"):
        monkeypatch.setattr(tiles, name, 16)
    return torch.device("cpu")
