"""A live `attent serve` on loopback: its memory, descriptors, log and shutdown, and requests to it.

Linux only, since it reads /proc.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import urllib.parse
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, Self

# Maximum seconds to load its run, and to end.
START, END = 120.0, 10.0
# Maximum bytes read of an answer's head, and of an answer.
MAX_HEAD, MAX_ANSWER = 2**16, 2**26
# A traceback, its last line, uvicorn's announcement of one (except for requests canceled at its end), and an error that
# attent calls unexpected.
COMPLAINT = re.compile(
    r"^ERROR(?!: +Cancel \d+ running)|Traceback|^[\w.]+(Error|Exception)\b|unexpected \w+(Error|Exception)"
)


class Answer(NamedTuple):
    """An answer: its status, whether its connection can be reused, and its body."""

    status: int
    is_last: bool
    body: bytes


class LiveServer:
    """A server; the end of its `with` block ends all of its processes.

    Args:
        run: the run folder.
        folder: the folder for its log and its temporary files.
        options: the options of `attent serve`.
    """

    def __init__(self, run: Path, folder: Path, options: Sequence[str] = ()) -> None:
        self.log = folder / "serve.log"
        (folder / "tmp").mkdir(exist_ok=True)
        environment = os.environ | {"TMPDIR": str(folder / "tmp"), "PYTHONUNBUFFERED": "1"}
        command = [sys.executable, "-m", "attent", "serve", str(run), "--port", "0", "--host", "127.0.0.1", *options]
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=log, text=True, env=environment, start_new_session=True
            )
        assert self._process.stdout is not None
        address = urllib.parse.urlsplit(self._process.stdout.readline().strip())
        if address.hostname is None or address.port is None:
            self._process.wait()
            raise RuntimeError(f"the server did not start: {self.log.read_text()}")
        self.host, self.port, self.pid = address.hostname, address.port, self._process.pid

    @property
    def is_running(self) -> bool:
        """True while its main process is running."""
        return self._process.poll() is None

    @property
    def processes(self) -> list[int]:
        """Its processes: the main process and all descendants."""
        found = [self.pid]
        for pid in found:
            for file in Path(f"/proc/{pid}/task").glob("*/children"):
                with suppress(OSError):
                    found += [int(child) for child in file.read_text().split()]
        return found

    @property
    def megabytes(self) -> float:
        """The memory of its processes, with shared memory counted once."""
        return proportional(self.processes)

    @property
    def descriptors(self) -> int:
        """The number of open files and sockets of its main process; 0 once it has ended."""
        with suppress(OSError):
            return len(os.listdir(f"/proc/{self.pid}/fd"))  # noqa: PTH208
        return 0

    @property
    def complaints(self) -> list[str]:
        """The lines of its log that begin a traceback or report an unexpected error."""
        lines = self.log.read_text(errors="replace").splitlines()
        return [line for line in lines if COMPLAINT.search(line)]

    @property
    def last_line(self) -> str:
        """The last line of its log, which is a traceback's error."""
        return next((line for line in reversed(self.log.read_text(errors="replace").splitlines()) if line.strip()), "")[
            :300
        ]

    def stop(self) -> str:
        """Send SIGTERM and return the fault of its shutdown; empty if there is none."""
        if not self.is_running:
            return f"the server had ended with {self._process.returncode}"
        children = self.processes[1:]
        self._process.send_signal(signal.SIGTERM)
        try:
            code = self._process.wait(END)
        except subprocess.TimeoutExpired:
            return f"the server did not end within {END:g} s"
        left = [child for child in children if Path(f"/proc/{child}").exists()]
        return f"the server ended with {code}" if code else f"processes {left} outlived the server" if left else ""

    def kill(self) -> None:
        """Kill all of its processes."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.kill()


def proportional(pids: Sequence[int]) -> float:
    """Return the proportional set size of processes in MB; an ended process counts as 0."""
    total = 0
    for pid in pids:
        with suppress(OSError, StopIteration):
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
            total += next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return total / 1024


class Connection:
    """A connection to a server, on which requests are sent as bytes.

    It is opened with the first request, and again after it was closed.

    Args:
        host: the server's host.
        port: the server's port.
        source: the client's loopback address.
    """

    def __init__(self, host: str, port: int, source: str = "127.0.0.1") -> None:
        self._address, self._source = (host, port), (source, 0)
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Open the connection if necessary; return its reader and writer."""
        if self._streams is None or self._streams[0].at_eof() or self._streams[1].is_closing():
            self.close()
            self._streams = await asyncio.open_connection(*self._address, limit=MAX_HEAD, local_addr=self._source)
        return self._streams

    async def ask(self, request: bytes) -> Answer:
        """Send a request and return its answer.

        It is sent again if the server had closed an idle connection.

        Raises:
            OSError: the connection failed.
            EOFError: it ended before the answer did.
        """
        is_new = self._streams is None
        try:
            _, writer = await self.open()
            writer.write(request)
            return await self.read()
        except (OSError, EOFError):
            self.close()
            if is_new:
                raise
        _, writer = await self.open()
        writer.write(request)
        return await self.read()

    async def read(self, *, has_body: bool = True) -> Answer:
        """Return the next answer; errors are those of `ask`."""
        reader, _ = await self.open()
        head = await reader.readuntil(b"\r\n\r\n")
        lower, body = head.lower(), b""
        fields = dict(line.split(b": ", 1) for line in lower.split(b"\r\n")[1:] if b": " in line)
        if b"content-length" in fields:
            body = await reader.readexactly(min(int(fields[b"content-length"]), MAX_ANSWER)) if has_body else b""
        elif fields.get(b"transfer-encoding") == b"chunked":
            while size := int(await reader.readuntil(b"\r\n"), 16):
                body += (await reader.readexactly(size + 2))[:-2]
            await reader.readexactly(2)
        is_last = fields.get(b"connection") == b"close"
        if is_last:
            self.close()
        return Answer(int(head[9:12]), is_last, body)

    def close(self, *, is_abrupt: bool = False) -> None:
        """Close the connection, or abort it."""
        if self._streams is not None:
            transport = self._streams[1].transport
            transport.abort() if is_abrupt else transport.close()
        self._streams = None


def request(method: str, path: str, body: bytes = b"", kind: str = "application/json", more: str = "") -> bytes:
    """Return a request as bytes; `more` contains further header lines."""
    head = f"{method} {path} HTTP/1.1\r\nHost: a\r\n{more}"
    if method == "POST" or body:
        head += f"Content-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
    return head.encode("utf-8", "surrogateescape") + b"\r\n" + body


def json_request(values: object, path: str = "/translate") -> bytes:
    """Return a request with parameters as JSON."""
    return request("POST", path, json.dumps(values).encode())


def upload(content: bytes, name: str, source: str = "en", target: str = "de", boundary: str = "part") -> bytes:
    """Return a request to translate a document."""
    fields = "".join(
        f'--{boundary}\r\nContent-Disposition: form-data; name="{key}"\r\n\r\n{value}\r\n'
        for key, value in (("source", source), ("target", target))
    )
    fields += (
        f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n'
        "Content-Type: text/plain\r\n\r\n"
    )
    body = fields.encode() + content + f"\r\n--{boundary}--\r\n".encode()
    return request("POST", "/translate_file", body, f"multipart/form-data; boundary={boundary}")
