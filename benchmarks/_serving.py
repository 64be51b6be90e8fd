"""Code shared by the parts of benchmarks/serve.py.

It contains a server in a separate process, measurements of its resources, and lightweight clients.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.parse
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple, Self

import torch
from _report import Column, ResultTable, Row

from attent.runs.config import read_config
from attent.tasks.translation.translator import Translator
from attent.text.readers import read_lines
from attent.text.sentences import split_sentences

CLIENTS = 64
# Maximum seconds for a server to load its run.
START = 120.0
SCRIPT = Path(__file__).with_name("serve.py")


class Answer(NamedTuple):
    """The answer to a request.

    Args:
        status: the HTTP status.
        body: the bytes of the body.
        begin: the time when the request was sent, by `time.perf_counter`.
        seconds: the seconds until the last byte arrived.
    """

    status: int
    body: bytes
    begin: float
    seconds: float

    @property
    def text(self) -> str:
        """The translation."""
        return json.loads(self.body)["translatedText"]


class Server:
    """A server in a separate process; the end of its `with` block stops it.

    Args:
        run: the run folder.
        options: the options of `attent serve`.
        engine: attent, or an engine of `attent export` behind the same front-end.
        is_folder: whether `run` is a folder of runs.
    """

    def __init__(self, run: Path, *options: str, engine: str = "attent", is_folder: bool = False) -> None:
        runs = ["--runs"] if is_folder else []
        attent = ["-m", "attent", "serve", *runs, str(run), "--port", "0", *options]
        command = attent if engine == "attent" else [str(SCRIPT), "engine", str(run), engine]
        # an unread pipe would fill up and block the server
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115
        self._process = subprocess.Popen(
            [sys.executable, *command], stdout=subprocess.PIPE, stderr=self._log, text=True
        )
        assert self._process.stdout is not None
        address = urllib.parse.urlsplit(self._process.stdout.readline().strip())
        if address.hostname is None or address.port is None:
            self._process.wait()
            self._log.seek(0)
            raise SystemExit(f"the server did not start: {self._log.read()}")
        self.host, self.port, self.pid = address.hostname, address.port, self._process.pid

    def stop(self, seconds: float = 60.0) -> int:
        """Send SIGTERM and return the exit status."""
        self._process.terminate()
        try:
            return self._process.wait(seconds)
        finally:
            self._process.kill()
            self._process.communicate()
            self._log.close()

    @property
    def is_running(self) -> bool:
        """Return whether the process is still running."""
        return self._process.poll() is None

    @property
    def memory(self) -> float:
        """Its current resident memory, in MiB."""
        return self._status("VmRSS")

    @property
    def peak_memory(self) -> float:
        """Its peak resident memory, in MiB."""
        return self._status("VmHWM")

    @property
    def descriptors(self) -> int:
        """The number of its open files and sockets."""
        return len(os.listdir(f"/proc/{self.pid}/fd"))  # noqa: PTH208

    @property
    def processor_seconds(self) -> float:
        """The processor time of all its threads."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def _status(self, name: str) -> float:
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(f"{name}:"))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self.is_running:
            self.stop()


class Client:
    """A persistent connection with one request at a time.

    Args:
        server: the server to connect to.
    """

    def __init__(self, server: Server) -> None:
        self._server = server
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, request: bytes) -> Answer:
        """Send a request and return its answer.

        Raises:
            OSError: the connection failed.
            asyncio.IncompleteReadError: it was closed before the answer was complete.
        """
        begin = time.perf_counter()
        # a server closes connections that are idle for some seconds
        if self._streams is None or self._streams[0].at_eof():
            self.close()
            self._streams = await asyncio.open_connection(self._server.host, self._server.port)
        reader, writer = self._streams
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        lower = head.lower()
        length = int(lower.partition(b"content-length:")[2].partition(b"\r\n")[0])
        body = await reader.readexactly(length)
        if b"connection: close" in lower:
            self.close()
        return Answer(int(head[9:12]), body, begin, time.perf_counter() - begin)

    def close(self) -> None:
        """Close the connection."""
        if self._streams is not None:
            self._streams[1].close()
        self._streams = None


def request_bytes(text: str, source: str, target: str) -> bytes:
    """Return a request to translate a text, as bytes."""
    body = json.dumps({"q": text, "source": source, "target": target}).encode()
    head = (
        "POST /translate HTTP/1.1\r\nHost: benchmark\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


async def ask_side_by_side(
    server: Server, requests: Iterable[bytes], clients: int, seconds: float = float("inf")
) -> list[Answer]:
    """Run clients, each sending its next request once the last is answered, until the requests or the time run out.

    Returns:
        The answers, in the order of the requests.
    """
    answers: dict[int, Answer] = {}
    numbered, end = enumerate(requests), time.perf_counter() + seconds

    async def ask_on(client: Client) -> None:
        while time.perf_counter() < end and (item := next(numbered, None)) is not None:
            answers[item[0]] = await client.ask(item[1])
        client.close()

    await asyncio.gather(*(ask_on(Client(server)) for _ in range(clients)))
    return [answers[index] for index in sorted(answers)]


def endless(requests: Sequence[bytes]) -> Iterator[bytes]:
    """Yield the requests in turn, endlessly."""
    return itertools.cycle(requests)


def percentile(values: Iterable[float], share: float) -> float:
    """Return the value that this share of values does not exceed; NaN without values."""
    ordered = sorted(values)
    return ordered[int(share * (len(ordered) - 1))] if ordered else float("nan")


def milliseconds_of(answers: Sequence[Answer], share: float) -> float:
    """Return a percentile of the answers' times, in milliseconds."""
    return 1000 * percentile((answer.seconds for answer in answers), share)


def serve_engine(run: Path, engine: str) -> None:
    """Serve an exported engine with the front-end of `attent serve` and its defaults, until SIGTERM."""
    from _engines import load

    from attent.server.catalog import RunCatalog
    from attent.server.server import TranslationServer
    from attent.server.settings import ServerSettings
    from attent.web import listen

    # an engine has the interface of `Translator` that a served run needs, except for links
    catalog = RunCatalog([run], [None], lambda _: load(run, engine))  # pyright: ignore[reportArgumentType]
    listener = listen("127.0.0.1", 0)
    server = TranslationServer(
        catalog, ServerSettings(threads=torch.get_num_threads(), log_requests=False), lambda line: None
    )
    server.run(listener, lambda: print(f"http://127.0.0.1:{listener.getsockname()[1]}", flush=True))


class Workload(NamedTuple):
    """The texts to translate, and their requests.

    Args:
        texts: the texts to translate.
        requests: the bytes of their requests.
        language: the language of the texts.
    """

    texts: list[str]
    requests: list[bytes]
    language: str


def workload(run: Path, file: Path, count: int | None = None) -> Workload:
    """Read texts and build their requests; with a count, the file is repeated until there are enough."""
    config = read_config(run)
    if config.source_language is None or config.target_language is None:
        raise SystemExit(
            f"{run} does not name its languages, which attent train --source-language and --target-language do"
        )
    texts = [line for line in read_lines(file) if line.strip()]
    if count is not None:
        texts = list(islice((text for _ in range(-(-count // len(texts))) for text in texts), count))
    return Workload(
        texts,
        [request_bytes(text, config.source_language, config.target_language) for text in texts],
        config.source_language,
    )


def offline_texts(translator: Translator, work: Workload) -> dict[str, str]:
    """Return the translation of each text, split into sentences as by the server."""
    splits = {text: split_sentences(text, work.language) for text in dict.fromkeys(work.texts)}
    translated = iter(translator.translate([sentence for split in splits.values() for sentence in split.sentences]))
    return {text: split.join([next(translated) for _ in split.sentences]) for text, split in splits.items()}


def check_answered(answers: Sequence[Answer]) -> None:
    """Exit with an error unless every request was answered."""
    if failed := [answer for answer in answers if answer.status != 200]:
        raise SystemExit(
            f"{len(failed)} of {len(answers)} requests failed: {failed[0].status} {failed[0].body[:200]!r}"
        )


def bar(name: str, value: float, bound: float, *, is_most: bool = False) -> Row:
    """Return the row of a number that should reach a bound or, with `is_most`, not exceed it."""
    is_met = value <= bound if is_most else value >= bound
    return {
        "name": name,
        "value": value,
        "bound": f"{'at most' if is_most else 'at least'} {bound:g}",
        "met": "yes" if is_met else "no",
    }


def bar_table(rows: Sequence[Row]) -> ResultTable:
    """Return the table of targets."""
    return ResultTable(
        "",
        [Column("name", "number"), Column("value", "measured", ".4g"), Column("bound", "bound"), Column("met", "met")],
        rows,
    )
