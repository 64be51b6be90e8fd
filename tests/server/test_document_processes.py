"""Documents in processes: however a process ends, the server answers, and the next document has a new process."""

from __future__ import annotations

import asyncio
import io
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from attent.documents.pipeline import DocumentSentence
from attent.errors import DataError
from attent.server import document_processes
from attent.server.document_processes import DocumentProcesses, DocumentText
from attent.server.document_worker import HEADER
from attent.server.errors import RequestError

SECONDS = 60
TOO_MUCH = "the document takes too much time or memory to read"
# Documents that end the process that reads them, and what is said about them.
DEEDS = {
    "while True: pass": TOO_MUCH,
    "[bytearray(2**20) for _ in range(2**20)]": TOO_MUCH,
    "os.abort()": TOO_MUCH,
    "{}['secret']": "the document cannot be read",
}
# A process that executes a document which begins with a sign, and reads others. It may compute for a second.
PROGRAM = """
import os, time
from attent.server import document_worker

def read_document(content, ending, read=document_worker.read_document):
    if content.startswith(b"!"):
        exec(content[1:])
    return read(content, ending)

document_worker.SECONDS = 1
document_worker.read_document = read_document
document_worker.main()
"""
POSIX = pytest.mark.skipif(os.name != "posix", reason="the system bounds no process")


def answering(frames: bytes) -> tuple[str, ...]:
    """Return the command of a process that answers with these bytes, whatever it is sent."""
    program = (
        f"import sys, time\nsys.stdout.buffer.write({HEADER.pack(b'D', 0) + frames!r})\nsys.stdout.flush()\n"
        "time.sleep(1000)"
    )
    return (sys.executable, "-c", program)


@pytest.fixture
def executing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(document_processes, "COMMAND", (sys.executable, "-c", PROGRAM))


@pytest.fixture
def processes() -> Iterator[DocumentProcesses]:
    documents = DocumentProcesses()
    yield documents
    documents.close()


async def read(documents: DocumentProcesses, content: bytes = b"A dog.", limit: int = 9) -> DocumentText | None:
    return await documents.read(io.BytesIO(content), ".txt", lambda text: "en", limit)


def is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    # an orphan that nobody has waited for yet
    return not Path(f"/proc/{process}").exists() or " Z " not in Path(f"/proc/{process}/stat").read_text()


async def test_every_document_has_a_process_of_its_own(processes: DocumentProcesses) -> None:
    records, content = [], b"A dog. Two men."
    text = await read(processes, content)
    assert text == DocumentText("en", [DocumentSentence("A dog.", False), DocumentSentence("Two men.", False)])
    records.append(processes._spare.pid)
    rendered = await processes.render(io.BytesIO(content), ".txt", "en", [("Ein", []), ("Zwei Männer", [])])
    assert rendered.decode() == "Ein Zwei Männer"
    records.append(processes._spare.pid)
    assert await processes.read(io.BytesIO(content), ".txt", lambda text: None, 9) is None
    records.append(processes._spare.pid)
    with pytest.raises(DataError, match="at most 1 sentences"):
        await read(processes, content, limit=1)
    with pytest.raises(DataError, match="not UTF-8"):
        await read(processes, b"\xff")
    assert len({*records}) == 3
    processes.close()
    assert not any(map(is_alive, records))


@POSIX
@pytest.mark.usefixtures("executing")
async def test_documents_that_end_their_process_are_refused_and_the_next_is_read(
    processes: DocumentProcesses, caplog: pytest.LogCaptureFixture
) -> None:
    for deed, message in DEEDS.items():
        with pytest.raises(DataError, match=f"^{message}$"):
            await read(processes, f"!{deed}".encode())
    assert await read(processes) is not None
    assert "KeyError at <string>:1" in caplog.text and "secret" not in caplog.text


@pytest.mark.slow
@pytest.mark.usefixtures("executing")
async def test_a_document_that_stands_still_is_given_up(
    processes: DocumentProcesses, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await read(processes) is not None
    monkeypatch.setattr(document_processes, "DEADLINE", 10)
    with pytest.raises(DataError, match=TOO_MUCH):
        await read(processes, b"!time.sleep(1000)")
    assert await read(processes) is not None


ANSWERS = {
    "a frame that is too large": HEADER.pack(b"D", 2**32 - 1),
    "no frame": b"garbage",
    "no text": HEADER.pack(b"D", 1) + b"\xff",
    "no sentences": HEADER.pack(b"D", 1) + b"a" + HEADER.pack(b"D", 2) + b"2a",
    "an end": HEADER.pack(b"E", 0),
    "too many sentences": HEADER.pack(b"D", 1) + b"a" + HEADER.pack(b"D", 59) + b"\n".join([b"0a"] * 20),
    "a long error": HEADER.pack(b"X", 20_000) + b"\x1b[1m\n" * 4_000,
    "too many frames": HEADER.pack(b"D", 1) + b"a" + (HEADER.pack(b"D", 2**14) + b"0" * 2**14) * 3,
}


@pytest.mark.parametrize("answer", ANSWERS)
async def test_what_a_process_answers_is_checked(
    processes: DocumentProcesses, monkeypatch: pytest.MonkeyPatch, answer: str
) -> None:
    monkeypatch.setattr(document_processes, "COMMAND", answering(ANSWERS[answer]))
    monkeypatch.setattr(document_processes, "MAX_ANSWER", 2**15)
    with pytest.raises(DataError) as caught:
        await asyncio.wait_for(read(processes), SECONDS)
    assert len(str(caught.value)) < 310 and str(caught.value).isprintable()


@pytest.mark.parametrize("command", [("/nonexistent",), (sys.executable, "-c", "raise SystemExit")])
async def test_no_process_is_a_server_that_cannot_serve(
    processes: DocumentProcesses, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    monkeypatch.setattr(document_processes, "COMMAND", command)
    with pytest.raises(RequestError, match="cannot read documents now") as caught:
        await read(processes)
    assert caught.value.status == 503


class CountedFile(io.BytesIO):
    """A file that counts what is read of it."""

    reads = 0

    def read(self, size: int | None = -1) -> bytes:
        self.reads += 1
        return super().read(size)


@pytest.mark.usefixtures("executing")
async def test_documents_wait_unread_and_go_with_their_clients(processes: DocumentProcesses) -> None:
    files = [CountedFile(content) for content in (b"!time.sleep(1000)", b"A dog.", b"A dog.", b"A dog.")]
    tasks = [asyncio.create_task(processes.read(file, ".txt", lambda text: "en", 9)) for file in files]
    async with asyncio.timeout(SECONDS):
        while files[0].reads < 2:
            await asyncio.sleep(0.01)
    process = processes._exchange._process.pid
    # the client of the one that is read leaves, and two that wait
    for task in tasks[:3]:
        task.cancel()
    async with asyncio.timeout(SECONDS):
        assert await tasks[3] == DocumentText("en", [DocumentSentence("A dog.", False)])
    assert all(task.cancelled() for task in tasks[:3])
    assert [file.reads > 0 for file in files] == [True, False, False, True]
    assert not is_alive(process)


OWNER = """
import asyncio, io, sys, threading, time
from attent.server import document_processes
document_processes.COMMAND = (sys.executable, "-c", {program!r})
documents = document_processes.DocumentProcesses()

def say():
    while documents._exchange is None or documents._exchange._process is None:
        time.sleep(0.01)
    time.sleep(1)
    print(documents._exchange._process.pid, flush=True)

threading.Thread(target=say).start()
asyncio.run(documents.read(io.BytesIO(b"!while True: pass"), ".txt", lambda text: "en", 9))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs the signal of a parent's death, which Linux has")
def test_a_process_that_computes_ends_with_a_killed_server() -> None:
    program = PROGRAM.replace("SECONDS = 1", "SECONDS = 1000")
    owner = subprocess.Popen([sys.executable, "-c", OWNER.format(program=program)], stdout=subprocess.PIPE)
    with owner:
        process = int(owner.stdout.readline())
        assert is_alive(process)
        owner.kill()
    end = time.monotonic() + SECONDS
    while is_alive(process) and time.monotonic() < end:
        time.sleep(0.05)
    assert not is_alive(process)
