from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "summary"),
    [
        ("--seed 11 --cases 250", "250 cases of seed 11: 0 failures"),
        ("--seed 7 --requests 400", "400 requests of seed 7: 0 failures"),
        ('--seed 7 --documents 40 --kind ".srt of \'a"', "40 documents of seed 7: 0 failures"),
        ("--seed 7 --replacements 8", "8 replacements of seed 7: 0 failures"),
        ("--seed 3 --kills 6", "the same weights, optimizer, log, results and translations; nothing left behind"),
    ],
)
def test_input_that_is_spoilt_and_processes_that_are_killed_do_no_harm(options: str, summary: str) -> None:
    command = [ROOT / "scripts" / "fuzz", *shlex.split(options)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert summary in done.stdout
