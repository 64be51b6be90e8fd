from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from fuzzing.kills import compared

ROOT = Path(__file__).parents[2]


def write(run: Path, *, weights: bytes = b"weights", loss: float = 1.5, seconds: float = 2.0) -> Path:
    (run / "checkpoints" / "00000005").mkdir(parents=True)
    (run / "model.safetensors").write_bytes(weights)
    (run / "checkpoints" / "00000005" / "state.json").write_text(
        json.dumps({"update": 5, "seconds": seconds, "log": int(seconds)})
    )
    (run / "log.jsonl").write_text(json.dumps({"update": 5, "loss": loss, "seconds": seconds}) + "\n")
    return run


@pytest.mark.parametrize(
    ("second", "differing"),
    [
        ({}, []),
        ({"seconds": 3.0}, []),
        ({"weights": b"weighs"}, ["differs: model.safetensors"]),
        ({"loss": 1.25, "seconds": 3.0}, ["differs: log.jsonl"]),
    ],
)
def test_runs_are_compared_but_for_the_clock(tmp_path: Path, second: dict[str, object], differing: list[str]) -> None:
    assert compared(write(tmp_path / "whole"), write(tmp_path / "killed", **second)) == differing


def test_a_file_that_one_run_lacks_differs(tmp_path: Path) -> None:
    whole, killed = write(tmp_path / "whole"), write(tmp_path / "killed")
    (killed / "left").touch()
    (whole / "log.jsonl").unlink()
    assert compared(whole, killed) == ["differs: left", "differs: log.jsonl"]


@pytest.mark.slow
def test_a_training_that_is_killed_and_resumed_ends_with_the_same_bits(fuzzing) -> None:
    done = subprocess.run(
        [ROOT / "scripts" / "fuzz", "--kills", "6", "--seed", "3"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "the same weights, optimizer, log, results and translations; nothing left behind" in done.stdout
