"""The fuzzing harness in a separate process, since the process of the tests has threads and must not be forked."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def fuzzing(tmp_path: Path) -> Callable[..., str]:
    """A function that runs Python code with the harness importable, in a temporary folder, and returns its output."""
    if not Path("/proc/self/statm").exists():
        pytest.skip("memory is read from /proc, which Linux alone has")
    paths = [str(ROOT / "scripts"), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
    threads = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    environment = os.environ | threads | {"PYTHONPATH": os.pathsep.join(paths)}

    def executed(code: str) -> str:
        command = [sys.executable, "-c", code]
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return executed
