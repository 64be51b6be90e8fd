"""One model as graphs, which takes seconds to trace, for every test that wants one."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest

from attent.export.manifest import Manifest
from attent.runs.folder import Run, read


class Exported(NamedTuple):
    """A run, and where it lies as graphs."""

    run: Run
    folder: Path
    manifest: Manifest


@pytest.fixture(scope="session")
def exported(make_run, tmp_path_factory: pytest.TempPathFactory) -> Exported:
    """A Transformer whose positions are turned, one layer a side."""
    for package in ("onnx", "onnxscript", "onnxruntime"):
        pytest.importorskip(package, reason=f"{package} is not installed")
    from attent.export.onnx.engine import write

    run = read(make_run(encoder_layers=1, position="rotary", norm="pre"))
    folder = tmp_path_factory.mktemp("graphs")
    return Exported(run, folder, write(run, "RUN", folder, None))
