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
