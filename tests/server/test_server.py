"""A server as its clients find it: theirs, unmodified, over a socket; reloading; and a signal to stop."""

from __future__ import annotations

import gc
import json
import os
import platform
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from attent.devices import trim_memory
from attent.runs.folder import RunConfig, RunWriter
from attent.server import document_processes
from attent.server import server as translation_server
from attent.server.catalog import RunCatalog
from attent.server.server import TranslationServer
from attent.server.settings import ServerSettings
from attent.tasks.translation.translator import Translator, load
from attent.web import listen


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, translators: dict[str, Translator]) -> Path:
    translator, folder = translators["en:de"], tmp_path_factory.mktemp("served") / "run"
    config = RunConfig(model=translator.model.settings, origin={"source_language": "en", "target_language": "de"})
    with RunWriter(folder) as writer:
        writer.finish(config, translator.model, translator.source_tokenizer, translator.target_tokenizer)
    return folder


def start(*options: Path | str) -> tuple[subprocess.Popen[str], str]:
    words = [sys.executable, "-m", "attent", "serve", *map(str, options), "--port", "0"]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    return process, process.stdout.readline().strip()


def stop(process: subprocess.Popen[str]) -> None:
    """End a server, which must end well."""
    process.terminate()
    try:
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.communicate()


@pytest.fixture(scope="module", params=["run", "folder of runs"])
def address(run: Path, request: pytest.FixtureRequest) -> Iterator[str]:
    process, address = start(run) if request.param == "run" else start("--runs", run.parent, "--memory", "2GiB")
    yield address
    stop(process)


def test_libretranslatepy(address: str) -> None:
    api = pytest.importorskip("libretranslatepy").LibreTranslateAPI(address)
    assert api.languages() == [{"code": "en", "name": "English", "targets": ["de"]}]
    assert api.detect("the dog is here")[0]["language"] == "en"
    assert isinstance(api.translate("the dog 3", "en", "de"), str)


def test_libretranslate_aio(address: str, tmp_path: Path) -> None:
    library = pytest.importorskip("libretranslate_aio")
    with library.LibreTranslate(address) as client:
        assert isinstance(client.translate("the dog 3", "en", "de").translated_text, str)
        batch = client.translate(["the dog 3", "the dog 4"], "auto", "de", alternatives=2)
        assert len(batch.translated_text) == len(batch.alternatives) == len(batch.detected_language) == 2
        assert client.translate("<b>the</b> dog 3", "en", "de", format="html").translated_text.count("<b>") == 1
        assert [language.code for language in client.languages()] == ["en"]
        assert client.detect("the dog")[0].language == "en"
        assert client.frontend_settings().char_limit == 5_000
        assert client.health()
        document = tmp_path / "a page.html"
        document.write_text("<p>the <b>dog</b> 3</p>")
        url = client.translate_file(document, "en", "de").translated_file_url
        with urllib.request.urlopen(url, timeout=60) as answer:
            assert answer.headers.get_filename() == "a_page.html" and answer.read().startswith(b"<p>")
        with pytest.raises(library.BadRequestError, match="file format not supported"):
            client.translate_file(Path(__file__), "en", "de")
        with pytest.raises(library.BadRequestError, match="zz is not supported"):
            client.translate("a", "en", "zz")
        with pytest.raises(library.ForbiddenError, match="disabled"):
            client.suggest("a", "b", "en", "de")


def test_deep_translator(address: str) -> None:
    library = pytest.importorskip("deep_translator")
    options = {"source": "en", "api_key": "any", "custom_url": f"{address}/"}
    client = library.LibreTranslator(target="de", **options)
    assert isinstance(client.translate("the dog 3"), str)
    assert len(client.translate_batch(["the dog 3", "the dog 4"])) == 2
    with pytest.raises(library.exceptions.ServerException):
        library.LibreTranslator(target="fr", **options).translate("the dog")


def ask(address: str, text: str, **headers: str) -> str:
    body = json.dumps({"q": text, "source": "en", "target": "de"}).encode()
    request = urllib.request.Request(f"{address}/translate", body, {"Content-Type": "application/json"} | headers)
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)["translatedText"]


def test_answers_under_load_are_those_of_the_run(address: str, run: Path) -> None:
    texts = [f"the dog {number}" for number in range(100)]
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda text: ask(address, text), texts))
    assert answers == load(run).translate(texts)


@pytest.fixture
def own_server(run: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TranslationServer]:
    """A server for this process, whose switch interval is put back."""
    interval = sys.getswitchinterval()
    yield TranslationServer(RunCatalog([run], [None]), ServerSettings(threads=1), lambda line: None)
    sys.setswitchinterval(interval)


def stop_once(has_begun: Callable[[], bool]) -> threading.Thread:
    """Return a thread that sends SIGTERM to this process once something has begun."""

    def wait_and_stop() -> None:
        end = time.monotonic() + 60
        while not has_begun() and time.monotonic() < end:
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGTERM)

    return threading.Thread(target=wait_and_stop)


def check_stopped(answer: Future[Any]) -> None:
    error = answer.exception(60)
    assert isinstance(error, urllib.error.HTTPError)
    assert (error.code, json.load(error)) == (503, {"error": "The server is being stopped"})


def test_libraries_and_runs_are_left_out_of_collections_while_it_serves(own_server: TranslationServer) -> None:
    frozen = list[int]()

    def stop_at_once() -> None:
        frozen.append(gc.get_freeze_count())
        signal.raise_signal(signal.SIGTERM)

    own_server.run(listen("127.0.0.1", 0), stop_at_once)
    assert frozen[0] > 10_000
    assert gc.get_freeze_count() == 0


def test_a_system_may_refuse_more_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    """As macOS does beyond 10,240, whatever the hard limit says."""
    resource = pytest.importorskip("resource")

    def refuse(kind: int, limits: tuple[int, int]) -> None:
        raise ValueError("current limit exceeds maximum limit")

    monkeypatch.setattr(resource, "getrlimit", lambda kind: (256, resource.RLIM_INFINITY))
    monkeypatch.setattr(resource, "setrlimit", refuse)
    assert translation_server._connection_limit(20_000) == 256 - translation_server.RESERVED_DESCRIPTORS
    monkeypatch.setitem(sys.modules, "resource", None)
    assert translation_server._connection_limit(20_000) == 20_000


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries have no malloc_trim")
def test_freed_memory_goes_back_to_the_system() -> None:
    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

    blocks = [bytes(2000) for _ in range(50_000)]
    # keeps the top of the heap
    _last = bytes(2000)
    del blocks
    before = resident()
    trim_memory()
    assert before - resident() > 50_000_000


@pytest.mark.slow
def test_sigterm_ends_the_process_within_ten_seconds(run: Path) -> None:
    process, address = start(run)
    port, connections = int(address.rpartition(":")[2]), list[socket.socket]()

    def begin(request: bytes) -> None:
        connections.append(socket.create_connection(("127.0.0.1", port)))
        connections[-1].sendall(request)

    long = [f"the dog {number} is here. " * 200 for number in range(10)]
    texts = json.dumps({"q": long, "source": "en", "target": "de"}).encode()
    head = b"POST /translate HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    for _ in range(10):
        # headers and bodies that do not come, answers that nobody reads, and work for longer than that
        begin(b"GET / HT")
        begin(head % 1_000_000 + b"{")
        begin(b"GET /spec HTTP/1.1\r\nHost: a\r\n\r\n" * 16)
        begin(head % len(texts) + texts)
    time.sleep(1)
    start_time = time.monotonic()
    stop(process)
    assert time.monotonic() - start_time < 10
    for connection in connections:
        connection.close()


def test_what_takes_too_long_after_sigterm_is_given_up(
    own_server: TranslationServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(translation_server, "PATIENCE", 0.5)
    has_begun, is_over, futures = threading.Event(), threading.Event(), list[Future[str]]()

    def block(*arguments: object) -> None:
        has_begun.set()
        assert is_over.wait(60)

    monkeypatch.setattr(own_server.catalog.runs[0].translator, "search", block)
    with ThreadPoolExecutor(1) as client, listen("127.0.0.1", 0) as listener:

        def ask_and_stop() -> None:
            address = f"http://127.0.0.1:{listener.getsockname()[1]}"
            futures.append(client.submit(ask, address, "the dog 3"))
            stop_once(has_begun.is_set).start()

        try:
            begin = time.monotonic()
            assert not own_server.run(listener, ask_and_stop)
            assert time.monotonic() - begin < 20
        finally:
            is_over.set()
        check_stopped(futures[0])
    assert own_server.batcher.close(60)
    assert "Traceback" not in capsys.readouterr().err


def test_a_run_that_is_being_loaded_at_sigterm_is_given_up(
    own_server: TranslationServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(translation_server, "PATIENCE", 0.5)
    monkeypatch.setattr(translation_server, "RELOAD_INTERVAL", 0.01)
    has_begun, is_over = threading.Event(), threading.Event()

    def load(*arguments: object) -> None:
        has_begun.set()
        assert is_over.wait(60)

    monkeypatch.setattr(own_server.catalog, "reload", load)
    with listen("127.0.0.1", 0) as listener:
        stopper = stop_once(has_begun.is_set)
        try:
            # the process is to be ended without Python's own end, which the thread would abort
            assert not own_server.run(listener, stopper.start)
        finally:
            is_over.set()
    stopper.join()


READER = """
import pathlib
from attent.server import document_worker

def read_document(content, ending):
    pathlib.Path(content.decode()).touch()
    while True:
        pass

document_worker.read_document = read_document
document_worker.main()
"""


def test_a_document_that_is_read_at_sigterm_is_given_up(
    own_server: TranslationServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(document_processes, "COMMAND", (sys.executable, "-c", READER))
    has_begun, futures = tmp_path / "begun", list[Future[object]]()
    parts = {'name="source"': "en", 'name="target"': "de", 'name="file"; filename="a.txt"': has_begun}
    form = "".join(f"--x\r\nContent-Disposition: form-data; {name}\r\n\r\n{text}\r\n" for name, text in parts.items())
    with ThreadPoolExecutor(1) as pool, listen("127.0.0.1", 0) as listener:
        address = f"http://127.0.0.1:{listener.getsockname()[1]}/translate_file"
        content_type = {"Content-Type": "multipart/form-data; boundary=x"}
        request = urllib.request.Request(address, f"{form}--x--\r\n".encode(), content_type)

        def ask_and_stop() -> None:
            futures.append(pool.submit(urllib.request.urlopen, request, timeout=60))
            stop_once(lambda: has_begun.exists() or futures[0].done()).start()

        begin = time.monotonic()
        assert own_server.run(listener, ask_and_stop)
        assert time.monotonic() - begin < 20
        check_stopped(futures[0])


@pytest.mark.slow
def test_what_runs_is_finished_after_sigterm(run: Path) -> None:
    process, address = start(run, "--window", "1000", "--threads", "1")
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(ask, address, "the dog 3")
        time.sleep(0.4)
        process.send_signal(signal.SIGTERM)
        assert isinstance(answer.result(60), str)
    stop(process)


@pytest.mark.slow
def test_a_forwarded_address_is_believed_of_trusted_proxies_alone(run: Path) -> None:
    process, address = start(run, "--req-limit", "1")
    ask(address, "the dog", **{"X-Forwarded-For": "198.51.100.0"})
    with pytest.raises(urllib.error.HTTPError, match="429") as refused:
        ask(address, "the dog", **{"X-Forwarded-For": "198.51.100.1"})
    refused.value.close()
    stop(process)


def test_looks_at_runs_and_documents_go_on_after_a_failure(
    catalog: RunCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(translation_server, "RELOAD_INTERVAL", 0.01)
    server = TranslationServer(catalog, ServerSettings(), lambda line: None)
    calls, has_ended = list[str](), threading.Event()

    def fail(name: str) -> None:
        calls.append(name)
        raise RuntimeError(name)

    monkeypatch.setattr(catalog, "reload", lambda: fail("runs"))
    monkeypatch.setattr(server.files, "delete_expired", lambda: fail("documents"))
    thread = threading.Thread(target=server._watch_runs, args=(has_ended,))
    thread.start()
    deadline = time.monotonic() + 20
    while len(calls) < 6 and time.monotonic() < deadline:
        time.sleep(0.01)
    has_ended.set()
    thread.join()
    server.close()
    assert calls[:6] == ["runs", "documents"] * 3
