"""Runs that change on disk while they are served."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from attent.decoding.translator import Translator
from attent.serve import translation_server
from attent.serve.translation.engines import RunCatalog
from attent.serve.translation.settings import ServerSettings
from attent.serve.translation_server import TranslationServer


def change(path: Path) -> None:
    """Replace a run's config by one of another inode."""
    (path / "new.json").write_text("{}")
    (path / "new.json").replace(path / "config.json")


def test_a_run_that_cannot_be_loaded_is_tried_once_for_each_change(tmp_path: Path, translators: dict[str, Translator]) -> None:
    (tmp_path / "config.json").write_text("{}")
    errors, tries, lines = list[Exception](), list[Path](), list[str]()

    def load(path: Path) -> Translator:
        tries.append(path)
        if errors:
            raise errors[0]
        return translators["en:de"]

    catalog = RunCatalog([tmp_path], [("en", "de")], load)
    served = catalog.runs[0]
    errors.append(RuntimeError("no memory\nat all"))
    change(tmp_path)
    for _ in range(3):
        catalog.reload(lines.append)
    assert catalog.runs == [served] and len(tries) == 2
    says = (
        f"{tmp_path} has changed, and cannot be loaded: unexpected RuntimeError: no memory at all; the run that was loaded before goes on"
    )
    assert lines == [says]
    (tmp_path / "config.json").unlink()
    for _ in range(3):
        catalog.reload(lines.append)
    assert len(lines) == 2
    errors.clear()
    change(tmp_path)
    catalog.reload(lines.append)
    assert catalog.runs != [served] and lines[2:] == [f"{tmp_path} has changed, and was loaded again"]


def test_looks_at_runs_and_documents_go_on_after_a_failure(catalog: RunCatalog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(translation_server, "RELOAD_INTERVAL", 0.01)
    server = TranslationServer(catalog, ServerSettings(), lambda line: None)
    looks, has_ended = list[str](), threading.Event()

    def fail(name: str) -> None:
        looks.append(name)
        raise RuntimeError(name)

    monkeypatch.setattr(catalog, "reload", lambda say: fail("runs"))
    monkeypatch.setattr(server.files, "delete_expired", lambda: fail("documents"))
    thread = threading.Thread(target=server._watch_runs, args=(has_ended,))
    thread.start()
    deadline = time.monotonic() + 20
    while len(looks) < 6 and time.monotonic() < deadline:
        time.sleep(0.01)
    has_ended.set()
    thread.join()
    server.close()
    assert looks[:6] == ["runs", "documents"] * 3
