"""Folders of runs: loaded when first needed, given back when memory is short, and joined through a third language."""

from __future__ import annotations

import asyncio
import random
import shutil
import threading
import time
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from starlette.testclient import TestClient

from attent import devices, system
from attent.errors import ArgumentError, RunError
from attent.models.settings import TransformerSettings
from attent.models.transformer import Transformer
from attent.runs.config import RunConfig
from attent.runs.folder import MODEL, RunWriter
from attent.search.settings import SearchSettings
from attent.server.app import Metrics, application
from attent.server.batcher import Batcher
from attent.server.catalog import ColdRunError, RunCatalog, RunEntry
from attent.server.engines import TranslatedSentence, TranslationWork, languages_of
from attent.server.service import TranslationService
from attent.server.settings import ServerSettings
from attent.tasks.translation.alignment import Alignment
from attent.tasks.translation.confidence import Confidence
from attent.tasks.translation.translator import Translator, load
from attent.text.tokenizer import CharTokenizer

PAIRS = [("de", "en"), ("en", "es"), ("en", "fr"), ("fr", "en")]
MEBIBYTE = 2**20
LETTERS = "abcdefghijklmnopqrstuvwxyz .!?"
TEXTS = ["the dog", "a cat sat.", "who?", "no!", "it rains today", "yes", "two men walk", "q"]
SETTINGS = TransformerSettings(
    encoder_layers=1, decoder_layers=1, width=64, feed_forward=64, heads=2, share_embeddings="none"
)


def write_run(path: Path, seed: int, source: str, target: str) -> Path:
    """Write an untrained run whose translations the others can read."""
    torch.manual_seed(seed)
    tokenizer = CharTokenizer("".join(random.Random(seed).sample(LETTERS, len(LETTERS))))
    config = RunConfig(model=SETTINGS, origin={"source_language": source, "target_language": target})
    with RunWriter(path) as run:
        run.finish(config, Transformer(SETTINGS, tokenizer.size, tokenizer.size).eval(), tokenizer, tokenizer)
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for seed, (source, target) in enumerate(PAIRS):
        write_run(tmp_path / "runs" / f"{source}{target}", seed, source=source, target=target)
    return tmp_path / "runs"


@pytest.fixture
def catalog(folder: Path) -> Iterator[RunCatalog]:
    catalog = RunCatalog([], [], folder=folder)
    yield catalog
    catalog.close()


@pytest.fixture
def client(catalog: RunCatalog) -> Iterator[TestClient]:
    settings, metrics = ServerSettings(window=0.0), Metrics(lambda: 0, lambda: 0, lambda: catalog.loads)
    batcher = Batcher(settings, metrics.observe_batch, group=languages_of)
    service = TranslationService(settings, catalog, batcher)
    yield TestClient(application(service, metrics), raise_server_exceptions=False)
    service.close()
    batcher.close()


def entry_of(catalog: RunCatalog, source: str, target: str) -> RunEntry:
    (entry,) = catalog.route(source, target)
    return entry


def translator_of(catalog: RunCatalog, entry: RunEntry) -> Translator:
    catalog.load(entry)
    return catalog.use(entry).translator


def test_a_folder_is_served_without_what_is_no_translator(folder: Path) -> None:
    (folder / "empty").mkdir()
    (folder / "broken").mkdir()
    (folder / "broken" / "config.json").write_text("{")
    lines = list[str]()
    catalog = RunCatalog([], [], folder=folder, say=lines.append)
    assert [(entry.source, entry.target) for entry in catalog.entries] == PAIRS and not catalog.runs
    assert catalog.sources == {"de": ["en", "es", "fr"], "en": ["es", "fr"], "fr": ["en", "es"]}
    assert len(lines) == 1 and lines[0].startswith(f"{folder / 'broken'} is not served: ")
    shutil.copytree(folder / "deen", folder / "other")
    with pytest.raises(ArgumentError, match="both translate de to en"):
        RunCatalog([], [], folder=folder)
    for path, problem in ((folder / "empty", "has no run folder"), (folder / "missing", "cannot be read")):
        with pytest.raises(ArgumentError, match=problem):
            RunCatalog([], [], folder=path)


def test_a_run_is_loaded_by_the_first_request_and_copied_once(catalog: RunCatalog, folder: Path) -> None:
    entry, expected = entry_of(catalog, "fr", "en"), load(folder / "fren").translate(TEXTS)
    with pytest.raises(ColdRunError):
        catalog.use(entry)
    assert translator_of(catalog, entry).translate(TEXTS) == expected
    # the copy outlives both the loaded run and the folder
    entry.run = None
    shutil.rmtree(folder / "fren")
    assert translator_of(catalog, entry).translate(TEXTS) == expected
    assert catalog.loads == 2 and [run.source for run in catalog.runs] == ["fr"]


def test_a_run_that_changes_while_it_is_not_loaded_answers_with_its_new_weights(
    catalog: RunCatalog, folder: Path, tmp_path: Path
) -> None:
    entry, run = entry_of(catalog, "fr", "en"), folder / "fren"
    before = translator_of(catalog, entry).translate(TEXTS)
    entry.run = None
    other = write_run(tmp_path / "other", 9, source="fr", target="en")
    for file in other.iterdir():
        shutil.copy(file, run / file.name)
    after = translator_of(catalog, entry).translate(TEXTS)
    assert after == load(other).translate(TEXTS) != before
    # a damaged one leaves the last in use, and is tried again once it changes
    entry.run = None
    (run / MODEL).write_bytes((run / MODEL).read_bytes()[:-1])
    assert translator_of(catalog, entry).translate(TEXTS) == after
    shutil.copy(other / MODEL, run / MODEL)
    catalog.reload()
    assert catalog.use(entry).translator.translate(TEXTS) == after
    (folder / "deen" / MODEL).unlink()
    with pytest.raises(RunError):
        catalog.load(entry_of(catalog, "de", "en"))


def test_the_least_recently_used_run_leaves_the_memory(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = {path: (path / MODEL).stat().st_size for path in folder.iterdir()}
    size, base = 2 * max(sizes.values()), 500 * MEBIBYTE
    catalogs = list[RunCatalog]()
    monkeypatch.setattr(
        devices, "resident_memory", lambda: base + sum(2 * sizes[Path(run.name)] for c in catalogs for run in c.runs)
    )
    with pytest.raises(ArgumentError, match="--memory is too small: the program takes 500 MiB, and the largest run 1 "):
        RunCatalog([], [], folder=folder, memory=base + size - 1)
    catalog = RunCatalog([], [], folder=folder, memory=base + 2 * size)
    catalogs.append(catalog)
    first, second, third, _ = catalog.entries
    answers = [translator_of(catalog, entry).translate(TEXTS) for entry in (first, second)]
    model = weakref.ref(catalog.use(second).translator.model)
    catalog.use(first)
    assert translator_of(catalog, third).translate(TEXTS)
    assert model() is None and [run.name for run in catalog.runs] == [first.name, third.name]
    assert translator_of(catalog, second).translate(TEXTS) == answers[1]
    assert [run.name for run in catalog.runs] == [second.name, third.name]
    # memory that is used later counts too; one run stays
    base = 600 * MEBIBYTE
    catalog.reload()
    assert [run.name for run in catalog.runs] == [second.name]
    catalog.close()


@pytest.mark.skipif(not system.IS_LINUX, reason="lists the descriptors of a process")
def test_copies_leave_no_descriptors_and_no_folders(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    before = len([*Path("/proc/self/fd").iterdir()])
    catalog = RunCatalog([], [], folder=folder)
    for entry in catalog.entries:
        catalog.load(entry)
    assert len(list((tmp_path / "temporary").iterdir())) == len(PAIRS)
    catalog.close()
    assert len([*Path("/proc/self/fd").iterdir()]) == before and not list((tmp_path / "temporary").iterdir())


def ask(client: TestClient, **values: object) -> dict:
    answer = client.post("/translate", json={"source": "fr", "target": "es"} | values)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_languages_without_a_run_are_translated_through_a_third(
    client: TestClient, catalog: RunCatalog, folder: Path
) -> None:
    first, second = load(folder / "fren"), load(folder / "enes")
    middles = first.translate(TEXTS)
    # each is a sentence by itself
    expected = [second.translate(middle) for middle in middles]
    values = ask(client, q=TEXTS)
    assert values == {"translatedText": expected, "pivot": ["en"] * len(TEXTS)}
    assert ask(client, q=TEXTS[0], source="fr", target="en") == {"translatedText": middles[0]}
    done = client.post("/translate", json={"q": TEXTS[0], "source": "fr", "target": "es", "stream": True}).text
    assert '"pivot": "en"' in done
    answer = client.post("/translate", json={"q": "a", "source": "fr", "target": "es", "glossary": {"a": "b"}})
    assert answer.status_code == 400 and "through en, without a glossary" in answer.json()["error"]
    languages = {item["code"]: item["targets"] for item in client.get("/languages").json()}
    assert languages["fr"] == ["en", "es"]
    loaded = client.get("/ready").json()["loaded"]
    assert loaded == {"de-en": False, "en-es": True, "en-fr": False, "fr-en": True}
    numbers = client.get("/metrics").text
    assert 'attent_sentences_total{source="fr",target="en"}' in numbers and "attent_loads 2.0" in numbers
    assert catalog.loads == 2


def test_alignments_are_composed(client: TestClient, folder: Path) -> None:
    first, second, text = load(folder / "fren"), load(folder / "enes"), "it rains today"
    (begin,), (end,) = first.search([text])[0], second.search([first.translate(text)])[0]
    links = [Alignment.of(*pair)[0].links for pair in ((first, [begin]), (second, [end]))]
    expected = {(a, c) for a, b in links[0] for middle, c in links[1] if middle == b}
    written = ask(client, q=text, alignment=True)["alignment"].split()
    assert expected and {tuple(map(int, link.split("-"))) for link in written} == expected


def test_no_tag_is_lost_through_a_third_language(client: TestClient) -> None:
    html = "<p>the <b>dog</b> <a href='x'>sat</a> <br>it <i>rains <u>today</u></i> <img src='y'></p>"
    answer = ask(client, q=html, format="html")["translatedText"]
    for tag in ("<p", "<b>", "<a href", "<br", "<i>", "<u>", "<img", "</p>", "</b>", "</a>", "</i>", "</u>"):
        assert answer.count(tag) == 1
    file = {"file": ("page.html", html.encode())}
    url = client.post("/translate_file", files=file, data={"source": "fr", "target": "es"}).json()["translatedFileUrl"]
    assert all(client.get(url).text.count(tag) == 1 for tag in ("<b>", "<a href", "<br", "<i>", "<u>", "<img"))


def test_a_sentence_that_cannot_be_translated_further_fails_alone(
    client: TestClient, catalog: RunCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    second = translator_of(catalog, entry_of(catalog, "en", "es"))
    translator_of(catalog, entry_of(catalog, "fr", "en"))
    read, refused = second.read, "middle of the second"

    def read_but_one(text: str) -> object:
        source = read(text)
        return source if text != refused else type(source)(text, text, source.ids, "no room for it")

    monkeypatch.setattr(second, "read", read_but_one)
    work = TranslationWork(catalog.use(entry_of(catalog, "en", "es")), SearchSettings())
    first = [TranslatedSentence((text,)) for text in ("a", refused, "b")]
    results = work.continued(first, ["x", "y", "z"])
    assert [isinstance(result, TranslatedSentence) for result in results] == [True, False, True]
    assert str(results[1]).endswith("no room for it")


@pytest.mark.skipif(not system.IS_LINUX, reason="other systems reclaim pages of files on their own")
def test_weights_that_were_read_to_be_checked_leave_the_memory_once(
    catalog: RunCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    released = list[torch.Tensor]()
    monkeypatch.setattr("attent.server.catalog.give_back", released.append)
    catalog.reload()
    assert not released
    entry = catalog.entries[0]
    catalog.load(entry)
    catalog.reload()
    model = catalog.use(entry).translator.model
    assert {id(tensor) for tensor in released} == {id(parameter) for parameter in model.parameters()}
    catalog.reload()
    assert len(released) == len([*model.parameters()])


def test_languages_take_turns() -> None:
    order, has_begun, are_queued = list[str](), threading.Event(), threading.Event()

    class Work:
        def __init__(self, name: str) -> None:
            self.name = name

        def __call__(self, texts: list[str]) -> list[str]:
            # the first batch lasts until all other sentences are in the queue
            has_begun.set()
            assert are_queued.wait(30)
            order.append(self.name)
            return texts

    async def run() -> None:
        batcher = Batcher(ServerSettings(batch=4, window=30.0, threads=1), group=lambda work: work.name)
        requests = [asyncio.ensure_future(batcher.submit(["z"], Work("first")))]
        assert await asyncio.to_thread(has_begun.wait, 30)
        for count, name in ((40, "many"), (2, "few")):
            requests.append(asyncio.ensure_future(batcher.submit(["x"] * count, Work(name))))
            await asyncio.sleep(0)
        are_queued.set()
        await asyncio.gather(*requests)
        batcher.close()

    asyncio.run(run())
    # not behind the forty that came before
    assert order == ["first", "many", "few"] + ["many"] * 9


def test_languages_that_come_later_do_not_go_first() -> None:
    order, batchers = list[str](), list[Batcher]()

    @dataclass(frozen=True)
    class Work:
        name: str
        loop: asyncio.AbstractEventLoop

        def __call__(self, texts: list[str]) -> list[str]:
            order.append(self.name)
            # before the next batch, a sentence in a new language is queued
            if len(order) < 30 and order.count("first") < 5:
                later = batchers[0].submit(["y"], Work(f"later {len(order)}", self.loop))
                before = batchers[0].waiting
                asyncio.run_coroutine_threadsafe(later, self.loop)
                while batchers[0].waiting == before:
                    time.sleep(0.001)
            return texts

    async def run() -> None:
        batchers.append(Batcher(ServerSettings(batch=4, window=1.0, threads=1), group=lambda work: work.name))
        await batchers[0].submit(["x"] * 20, Work("first", asyncio.get_running_loop()))
        batchers[0].close()

    asyncio.run(run())
    # each waits only for those that had come before its last batch
    assert [index for index, name in enumerate(order) if name == "first"] == [0, 1, 3, 6, 10]


def test_a_run_that_cannot_be_loaded_is_an_error_of_its_requests_alone(client: TestClient, folder: Path) -> None:
    (folder / "deen" / MODEL).write_bytes(b"damaged")
    begin = time.monotonic()
    answer = client.post("/translate", json={"q": "a", "source": "de", "target": "en"})
    assert answer.status_code == 503 and answer.json() == {"error": "de → en cannot be loaded now"}
    assert time.monotonic() - begin < 5
    assert ask(client, q="a", target="en")


def test_confidence_through_a_third_language_is_that_in_both(
    catalog: RunCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    # only its absence is looked at
    translator_of(catalog, entry_of(catalog, "en", "es")).calibration = object()
    second = Confidence(0.5, (("b", 0.9),), ("second",))
    monkeypatch.setattr(
        TranslationWork, "judged", lambda self, lists, items: [item._replace(confidence=second) for item in items]
    )
    first = TranslatedSentence(("a",), confidence=Confidence(0.8, (("a", 0.7),), ("first",)))
    low = TranslatedSentence(("x",), confidence=Confidence(0.1), is_translated=False)
    run = catalog.use(entry_of(catalog, "en", "es"))
    for minimum, is_translated in ((0.3, True), (0.45, False)):
        work = TranslationWork(run, SearchSettings(), minimum_confidence=minimum)
        result, kept = work.continued([first, low], ["the source", "x"])
        assert kept is low
        assert result.confidence == Confidence(0.4, (("b", 0.9),), ("first", "second"))
        assert result.is_translated == is_translated and (result.texts == ("the source",)) != is_translated
