from __future__ import annotations

from pathlib import Path

import pytest

from attent.cli.app import run as command


def test_a_server_whose_threads_still_work_ends_the_process(run_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from attent.cli.commands import serve
    from attent.server.server import TranslationServer

    statuses = list[int]()
    monkeypatch.setattr(TranslationServer, "run", lambda self, *arguments: self.close() and False)
    monkeypatch.setattr(serve.os, "_exit", statuses.append)
    assert command(["serve", str(run_folder), "--languages", "en:de", "--port", "0"]) == 0
    assert statuses == [0]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--languages", "en"], "--languages must be SOURCE:TARGET for each run, such as en:de, got 'en'"),
        (
            ["--languages", "en:de", "--languages", "de:en"],
            "give --languages once for each run, got 2 for 1 runs",
        ),
        (["--require-api-key"], "--require-api-key needs keys: give --api-keys-file FILE"),
        (["--languages", "en:de", "--api-keys-file", "none"], "--api-keys-file none cannot be read"),
        (["--languages", "en:de", "--host", "203.0.113.1"], "cannot be listened on"),
    ],
)
def test_wrong_options_end_in_one_line(
    run_folder: Path, options: list[str], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(["serve", str(run_folder), *options]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and problem in error
