from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from contextlib import suppress
from http.client import HTTPException
from pathlib import Path
from typing import Any

import pytest

from attent.explorer.server import ExploreServer


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What the server says of itself, in the place of waiting for Ctrl-C."""
    records: list[dict[str, Any]] = []

    def record_request(exploring: ExploreServer) -> None:
        with urllib.request.urlopen(exploring.address, timeout=30) as page:
            assert page.status == 200
        records.append(exploring.explorer.describe())

    monkeypatch.setattr(ExploreServer, "wait", record_request)
    return records


def test_a_run_is_served_until_it_is_stopped(attent: Any, run_folder: Path, requests: list[dict[str, Any]]) -> None:
    done = attent("explore", run_folder, "--port", 0, "--no-open", "--text", "en | 3 March 2026")
    assert done.code == 0 and done.out[0].startswith("http://127.0.0.1:") and "#" in done.out[0]
    assert done.err == ["press Ctrl-C to stop"]
    assert requests[0]["text"] == "en | 3 March 2026"
    assert [run["task"] for run in requests[0]["runs"]] == ["translate"]


def test_two_side_by_side(
    attent: Any, run_folder: Path, filling_folder: Path, requests: list[dict[str, Any]], tmp_path: Path
) -> None:
    assert attent("explore", run_folder, run_folder, "--port", 0, "--no-open").code == 0
    file = tmp_path / "long.txt"
    file.write_text("the dog was [MASK] .\nthe cat ran .\n", encoding="utf-8")
    assert attent("explore", filling_folder, "--file", file, "--port", 0, "--no-open").code == 0
    names = [[run["name"] for run in about["runs"]] for about in requests]
    assert names == [["small", "small"], ["run"]]
    assert requests[1]["text"] == "the dog was [MASK] . the cat ran ."


COMPUTES = "attent.cli.main()"
# one step that nothing can interrupt
STUCK = (
    "import time; from attent.tasks.translation.stepwise import StepwiseDecoding;"
    " StepwiseDecoding.__iter__ = lambda self: time.sleep(100); attent.cli.main()"
)


@pytest.mark.slow
@pytest.mark.parametrize("script", [COMPUTES, STUCK], ids=["computes", "stuck"])
def test_ctrl_c_ends_it_in_one_line_while_a_translation_grows(run_folder: Path, script: str) -> None:
    command = [sys.executable, "-c", f"import attent.cli; {script}", "explore", run_folder, "--port", "0", "--no-open"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stderr is not None
        address, token = process.stdout.readline().strip().split("/#")
        body = json.dumps({"text": "fr | 3 mars 2026 " + "a" * 1500}).encode()
        headers = {"Content-Type": "application/json", "X-Attent-Token": token}

        def ask() -> None:
            request = urllib.request.Request(f"{address}/api/translate", body, headers)
            with suppress(OSError, HTTPException), urllib.request.urlopen(request, timeout=60) as answer:
                answer.read()

        threading.Thread(target=ask, daemon=True).start()
        time.sleep(1)
        process.send_signal(signal.SIGINT)
        try:
            assert process.wait(60) == 130
        finally:
            process.kill()
        assert process.stderr.read() == "press Ctrl-C to stop\nattent: interrupted\n"
