import json
from pathlib import Path
from shutil import copytree

import pytest

pytestmark = pytest.mark.needs_native


def test_a_run_is_quantized_and_back(attent, run_folder: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    copytree(run_folder, run)
    done = attent("quantize", run)
    assert (done.code, len(done.out)) == (0, 1)
    assert done.out[0].startswith(f"{run} computes in int8, ")
    assert json.loads((run / "config.json").read_text())["dtype"] == "int8"
    text = "en | 3/3/2026"
    default = attent("translate", run, "--format", "jsonl", text)
    assert default.out == attent("translate", run, "--format", "jsonl", "--dtype", "int8", text).out
    exact = attent("translate", run, "--format", "jsonl", "--dtype", "float32", text)
    assert exact.out == attent("translate", run_folder, "--format", "jsonl", text).out != default.out
    assert attent("quantize", run, "--dtype", "float32").out == [f"{run} computes in float32"]
    assert attent("translate", run, "--format", "jsonl", text).out == exact.out
