"""A translation server without a network, on untrained runs."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
import torch
from starlette.testclient import TestClient

from attent.models.settings import TransformerSettings
from attent.models.transformer import Transformer
from attent.server.app import Metrics, application
from attent.server.batcher import Batcher
from attent.server.catalog import RunCatalog
from attent.server.engines import TranslationWork, languages_of
from attent.server.service import TranslationService
from attent.server.settings import ServerSettings
from attent.server.translated_files import TranslatedFiles
from attent.tasks.translation.translator import Translator
from attent.text.tokenizer import CharTokenizer


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True


LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ .!?"
Serve = Callable[..., TestClient]


def untrained(seed: int) -> Translator:
    torch.manual_seed(seed)
    source, target = CharTokenizer(LETTERS), CharTokenizer("0123456 ")
    small = {"encoder_layers": 1, "decoder_layers": 1, "width": 16, "feed_forward": 17, "heads": 2}
    settings = TransformerSettings.model_validate(small | {"share_embeddings": "none"})
    return Translator(Transformer(settings, source.size, target.size), source, target)


@pytest.fixture(scope="session")
def translators() -> dict[str, Translator]:
    return {"en:de": untrained(1), "fr:de": untrained(2), "de:en": untrained(3)}


@pytest.fixture
def catalog(translators: dict[str, Translator], tmp_path: Path) -> RunCatalog:
    paths = [tmp_path / name.replace(":", "-") for name in translators]
    for path in paths:
        path.mkdir()
        (path / "config.json").write_text("{}")
    pairs = [(name[:2], name[3:]) for name in translators]
    return RunCatalog(paths, pairs, lambda copies: translators[copies[0].name.replace("-", ":")])


def pair_of(work: object) -> tuple[str, str]:
    """Return the languages of a work; those of the first run if it is not a translation."""
    return languages_of(work) if isinstance(work, TranslationWork) else ("en", "de")


class Blocked:
    """Work that waits until it may go on, and then returns the texts."""

    def __init__(self) -> None:
        self.is_running, self.may_end = threading.Event(), threading.Event()

    def __call__(self, texts: Sequence[str]) -> list[str]:
        self.is_running.set()
        assert self.may_end.wait(30)
        return list(texts)


@pytest.fixture
def blocked() -> Iterator[Blocked]:
    work = Blocked()
    yield work
    work.may_end.set()


@pytest.fixture
def serve(catalog: RunCatalog) -> Iterator[Serve]:
    batchers: list[Batcher] = []
    services: list[TranslationService] = []

    def start(**settings: object) -> TestClient:
        chosen = ServerSettings(**settings)
        metrics = Metrics(lambda: 0, lambda: 0)
        batchers.append(Batcher(chosen, metrics.observe_batch, group=pair_of))
        files = TranslatedFiles(chosen.file_lifetime)
        services.append(TranslationService(chosen, catalog, batchers[-1]))
        app = application(services[-1], metrics, files=files)
        client = TestClient(app, raise_server_exceptions=False)
        client.batcher, client.files, client.service = batchers[-1], files, services[-1]
        return client

    yield start
    for server in (*services, *batchers):
        server.close()
