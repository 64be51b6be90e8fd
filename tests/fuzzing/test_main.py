from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_commands_serve_or_refuse_what_is_spoilt_in_one_line() -> None:
    done = subprocess.run(
        [ROOT / "scripts" / "fuzz", "--seed", "11", "--cases", "250"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "250 cases of seed 11: 0 failures" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "summary"),
    [
        (("--requests", "400"), "400 requests of seed 7: 0 failures"),
        (("--documents", "40", "--kind", ".srt of 'a"), "40 documents of seed 7: 0 failures"),
        (("--replacements", "8"), "8 replacements of seed 7: 0 failures"),
    ],
)
def test_a_live_server_withstands(options: tuple[str, ...], summary: str) -> None:
    done = subprocess.run(
        [ROOT / "scripts" / "fuzz", "--seed", "7", *options], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert summary in done.stdout
