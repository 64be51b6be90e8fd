"""Overload and faults to which benchmarks/serve.py subjects a server.

There are too many requests, and clients that disconnect, are slow or send nonsense.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import resource
import shutil
import socket
import tempfile
import time
import urllib.parse
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from _report import Column, ResultTable, Row
from _serving import (
    CLIENTS,
    Answer,
    Client,
    Server,
    Workload,
    ask_side_by_side,
    bar,
    bar_table,
    check_answered,
    endless,
    milliseconds_of,
    offline_texts,
    percentile,
    workload,
)

from attent.runs.config import read_config
from attent.tasks.translation.translator import load

# Connections that this process may open, and that the server accepts from its address.
MAX_CONNECTIONS = 16_384
# Seconds of work that may wait in the queue under overload.
QUEUE_SECONDS = 0.5
GONE, SLOW, MALFORMED, RELOADS, FULL = 1_000, 200, 2_000, 3, 8
# Bytes of an upload that is stored on disk while it waits.
LARGE_UPLOAD = 2 * 2**20
# Seconds after which the server must have disconnected the slow clients.
PATIENCE = 60.0


def overload_rows(run: Path, options: argparse.Namespace) -> tuple[list[ResultTable], list[str]]:
    """Send twice as many requests as the server can handle."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, MAX_CONNECTIONS + 128), hard))
    work = workload(run, options.sources)
    with Server(run) as server:
        asyncio.run(ask_side_by_side(server, work.requests[:512], CLIENTS))
        begin = time.perf_counter()
        capacity = len(asyncio.run(ask_side_by_side(server, endless(work.requests), CLIENTS, 5))) / (
            time.perf_counter() - begin
        )
    limits = ("--connection-limit", str(MAX_CONNECTIONS), "--address-limit", str(MAX_CONNECTIONS))
    queue = max(int(QUEUE_SECONDS * capacity), CLIENTS)
    with Server(run, "--queue-limit", str(queue), *limits) as server:
        idle = asyncio.run(ask_side_by_side(server, work.requests[:100], 1))
        before = server.memory
        answers, lost, recovery = asyncio.run(
            flood(server, work, 2 * capacity, options.seconds, milliseconds_of(idle, 0.95))
        )
        peak = server.peak_memory
    expected = offline_texts(load(run), work)
    statuses = Counter(answer.status for _, answer in answers)
    wrong = sum(answer.status not in (200, 429) for _, answer in answers)
    wrong += sum(answer.text != expected[work.texts[index]] for index, answer in answers if answer.status == 200)
    refused = [answer for _, answer in answers if answer.status == 429]
    taken = [answer for _, answer in answers if answer.status == 200]
    rows = [
        bar("p50 of refusals, ms", milliseconds_of(refused, 0.5), 10, is_most=True),
        bar("p99 of refusals, ms", milliseconds_of(refused, 0.99), 100, is_most=True),
        bar("wrong answers", wrong, 0, is_most=True),
        bar("requests without an answer", lost, 0, is_most=True),
        bar("seconds until a request takes no more than twice as long as when idle", recovery, 1, is_most=True),
    ]
    note = (
        f"{2 * capacity:.0f} requests/s for {options.seconds:g} s, twice the {capacity:.0f} that {CLIENTS} clients "
        f"get; queue of {queue}; {statuses[200]:,} translated, p50 {milliseconds_of(taken, 0.5):.0f} ms, "
        f"{statuses[429]:,} refused. Memory of the server: {before:.0f} MiB before, {peak:.0f} MiB at most."
    )
    return [bar_table(rows)], [note]


async def flood(
    server: Server, work: Workload, rate: float, seconds: float, normal: float
) -> tuple[list[tuple[int, Answer]], int, float]:
    """Send requests at a fixed rate, whether or not earlier ones have been answered.

    Returns:
        The answers, each with the number of its text; the number of unanswered requests; and the seconds from the last
        request until a request takes at most twice `normal` milliseconds.
    """
    free: list[Client] = []
    answers: list[tuple[int, Answer]] = []
    lost = 0

    async def ask(index: int) -> None:
        nonlocal lost
        client = free.pop() if free else Client(server)
        try:
            answers.append((index, await client.ask(work.requests[index])))
            free.append(client)
        except (OSError, asyncio.IncompleteReadError):
            lost += 1
            client.close()

    tasks: set[asyncio.Task[None]] = set()
    begin, sent = time.perf_counter(), 0
    while (now := time.perf_counter() - begin) < seconds:
        for _ in range(int(now * rate) - sent):
            task = asyncio.create_task(ask(sent % len(work.texts)))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
            sent += 1
        await asyncio.sleep(0.002)
    end, client = time.perf_counter(), Client(server)
    while True:
        answer = await client.ask(work.requests[0])
        # about as fast as before: the clients of the flood still exist
        if (answer.status == 200 and 1000 * answer.seconds <= 2 * normal) or time.perf_counter() - end > PATIENCE:
            break
    recovery = time.perf_counter() - end
    await asyncio.gather(*tasks)
    for connection in (client, *free):
        connection.close()
    return answers, lost, recovery


def faults_rows(run: Path, options: argparse.Namespace) -> tuple[list[ResultTable], list[str]]:
    """Subject a server to faulty clients while other clients request translations."""
    work = workload(run, options.sources)
    expected = offline_texts(load(run), work)
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "run"
        shutil.copytree(run, copy)
        # all clients have the same address
        server = Server(copy, "--address-limit", str(MAX_CONNECTIONS), "--connection-limit", str(MAX_CONNECTIONS))
        try:
            check_answered(asyncio.run(ask_side_by_side(server, work.requests[:512], CLIENTS)))
            rows.append(state("at the start", server, ""))
            end, rounds = time.monotonic() + 60 * options.minutes, 0
            while not rounds or time.monotonic() < end:
                rounds += 1
                for name, (faults, count) in FAULTS.items():
                    doing = faults(server, work, copy, max(int(options.share * count), 1))
                    rows.append(state(name, server, asyncio.run(beside_others(server, work, expected, doing))))
            # kept-alive connections are closed after some seconds
            time.sleep(6)
            rows.append(state("at the end", server, ""))
            rows.append({"name": "SIGTERM under load", "result": asyncio.run(ended(server, work, expected))})
        finally:
            if server.is_running:
                server.stop()
    columns = [
        Column("name", "what"),
        Column("result", "result"),
        Column("memory", "memory, MiB", ".0f"),
        Column("descriptors", "descriptors", "d"),
    ]
    return [ResultTable("", columns, rows)], []


def state(name: str, server: Server, result: str) -> Row:
    """Return a row with what was done, and the server's memory and descriptors after it."""
    return {"name": name, "result": result, "memory": server.memory, "descriptors": server.descriptors}


async def beside_others(
    server: Server, work: Workload, expected: dict[str, str], faults: Coroutine[Any, Any, str]
) -> str:
    """Let 8 clients send requests while faults occur; return the result of both."""
    is_over, answers = False, list[tuple[int, Answer]]()

    async def ask(first: int) -> None:
        client, index = Client(server), first
        while not is_over:
            answers.append((index, await client.ask(work.requests[index])))
            index = (index + 8) % len(work.texts)
        client.close()

    others = [asyncio.create_task(ask(first)) for first in range(8)]
    result = await faults
    is_over = True
    await asyncio.gather(*others)
    wrong = sum(answer.status != 200 or answer.text != expected[work.texts[index]] for index, answer in answers)
    p95 = 1000 * percentile((answer.seconds for _, answer in answers), 0.95)
    return f"{result}; of {len(answers):,} answers to others {wrong} wrong, p95 {p95:.0f} ms"


async def clients_gone(server: Server, work: Workload, run: Path, count: int) -> str:
    """Send whole or partial requests, and close the connections immediately."""
    draw = random.Random(0)
    for number in range(count):
        _, writer = await asyncio.open_connection(server.host, server.port)
        request = work.requests[number % len(work.requests)]
        writer.write(request[: draw.randrange(1, len(request))] if number % 2 else request)
        with suppress(OSError):
            await writer.drain()
            writer.close()
        if number % 50 == 0:
            await asyncio.sleep(0)
    return f"{count:,} gone"


async def malformed(server: Server, work: Workload, run: Path, count: int) -> str:
    """Send invalid bodies, and count the answers by status."""
    draw, statuses = random.Random(0), Counter[int]()
    client = Client(server)
    for _ in range(count):
        body = malformed_body(draw, work.texts)
        kind = draw.choice(
            ["application/json", "application/x-www-form-urlencoded", "multipart/form-data; boundary=a", "text/plain"]
        )
        head = (
            f"POST /translate HTTP/1.1\r\nHost: benchmark\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
            "\r\n"
        )
        statuses[(await client.ask(head.encode() + body)).status] += 1
    client.close()
    failures = sum(number for status, number in statuses.items() if status >= 500)
    return (
        f"{count:,} sent, {failures} answered as errors of the server "
        f"({', '.join(f'{n}: {statuses[n]:,}' for n in sorted(statuses))})"
    )


def malformed_body(draw: random.Random, texts: Sequence[str]) -> bytes:
    """Return a body that is invalid or barely valid."""
    text = draw.choice(texts)
    values = [
        None,
        True,
        -1,
        1e308,
        "",
        "x" * 9000,
        [],
        [[]],
        [None],
        {},
        {"q": text},
        "\ud800",
        "\x00",
        "../../etc/passwd",
        "{{7*7}}",
    ]
    request = {"q": text, "source": "en", "target": "de"}
    request |= {
        draw.choice(["q", "source", "target", "format", "alternatives", "alignment", "api_key"]): draw.choice(values)
    }
    body = json.dumps(request).encode()
    match draw.randrange(5):
        case 0:
            return body[: draw.randrange(len(body))]
        case 1:
            return bytes(draw.randrange(256) for _ in range(draw.randrange(200)))
        case 2:
            return b"[" * draw.randrange(1, 50_000)
        case 3:
            index = draw.randrange(len(body))
            return body[:index] + bytes([draw.randrange(256)]) + body[index + 1 :]
        case _:
            return body


async def reloads(server: Server, work: Workload, run: Path, count: int) -> str:
    """Rewrite the run's config, so that the run is reloaded while it is served."""
    for _ in range(count):
        shutil.copy(run / "config.json", run / "config.new")
        (run / "config.new").replace(run / "config.json")
        await asyncio.sleep(2)
    return f"{count} reloads"


async def slow(server: Server, work: Workload, run: Path, count: int) -> str:
    """Send headers and bodies byte by byte, and read no answers, until the server closes the connections."""
    config, closed = read_config(run), 0
    client, content = Client(server), work.texts[0].encode() + b" " * LARGE_UPLOAD
    answer = await client.ask(document_request(content, str(config.source_language), str(config.target_language)))
    client.close()
    path = urllib.parse.urlsplit(json.loads(answer.body)["translatedFileUrl"]).path
    download = f"GET {path} HTTP/1.1\r\nHost: benchmark\r\n\r\n".encode()

    async def drip(begin: bytes, rest: bytes) -> None:
        nonlocal closed
        reader, writer = await asyncio.open_connection(server.host, server.port)
        writer.write(begin)
        # the connection may be closed while a byte is written
        with suppress(OSError):
            for index in range(len(rest)):
                if reader.at_eof():
                    break
                writer.write(rest[index : index + 1])
                await writer.drain()
                await asyncio.sleep(1)
        closed += reader.at_eof() or writer.is_closing() or reader.exception() is not None
        writer.close()

    async def read_nothing() -> None:
        nonlocal closed
        connection = socket.socket()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.setblocking(False)
        await asyncio.get_running_loop().sock_connect(connection, (server.host, server.port))
        reader, writer = await asyncio.open_connection(sock=connection, limit=1)
        # more than fits in the buffers
        writer.write(download * 4)
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(PATIENCE):
                while True:
                    # a closed connection is noticed only when writing
                    await asyncio.sleep(2)
                    writer.write(download)
                    await writer.drain()
        closed += writer.is_closing() or reader.exception() is not None
        writer.close()

    begin = time.perf_counter()
    body = b"POST /translate HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n"
    headers = [drip(b"POST /trans", b"l" * int(PATIENCE)) for _ in range(count // 3)]
    bodies = [drip(body, b" " * int(PATIENCE)) for _ in range(count // 3)]
    readers = [read_nothing() for _ in range(count - len(headers) - len(bodies))]
    await asyncio.gather(*headers, *bodies, *readers)
    return f"{closed} of {count} were cut off within {time.perf_counter() - begin:.0f} s"


async def disk_full(server: Server, work: Workload, run: Path, count: int) -> str:
    """Send small and large documents while the server cannot write files, and again when it can."""
    config, statuses, client = read_config(run), Counter[int](), Client(server)
    content = "\n".join(work.texts[:3]).encode()
    contents = content, content + b" " * LARGE_UPLOAD

    async def send(content: bytes) -> int:
        return (
            await client.ask(document_request(content, str(config.source_language), str(config.target_language)))
        ).status

    limits = resource.prlimit(server.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (0, limits[1]))
    try:
        for number in range(count):
            statuses[await send(contents[number % 2])] += 1
    finally:
        resource.prlimit(server.pid, resource.RLIMIT_FSIZE, limits)
    after = [await send(content) for content in contents]
    client.close()
    return (
        f"{count} documents refused ({', '.join(f'{n}: {statuses[n]}' for n in sorted(statuses))}); with room again "
        f"{after}"
    )


def document_request(content: bytes, source: str, target: str) -> bytes:
    """Return a request to translate a plain-text document, as bytes."""
    fields = "".join(
        f'--part\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'
        for name, value in (("source", source), ("target", target))
    )
    fields += (
        '--part\r\nContent-Disposition: form-data; name="file"; filename="a.txt"\r\nContent-Type: text/plain\r\n\r\n'
    )
    body = fields.encode() + content + b"\r\n--part--\r\n"
    kind = "multipart/form-data; boundary=part"
    head = f"POST /translate_file HTTP/1.1\r\nHost: a\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


FAULTS: dict[str, tuple[Callable[[Server, Workload, Path, int], Coroutine[Any, Any, str]], int]] = {
    "clients that go": (clients_gone, GONE),
    "malformed bodies": (malformed, MALFORMED),
    "reloads": (reloads, RELOADS),
    "a full disk": (disk_full, FULL),
    "slow clients": (slow, SLOW),
}


async def ended(server: Server, work: Workload, expected: dict[str, str]) -> str:
    """Send SIGTERM while many clients send requests; return the results of their requests."""
    counts, is_ending = Counter[str](), False

    async def ask(first: int) -> None:
        client, index = Client(server), first
        while True:
            begun_before = not is_ending
            try:
                answer = await client.ask(work.requests[index])
            except (OSError, asyncio.IncompleteReadError):
                # a request on a connection that is being closed was not accepted
                counts["cut off although sent before" if begun_before else "not taken after"] += 1
                return
            is_right = answer.status == 200 and answer.text == expected[work.texts[index]]
            counts["answered" if is_right else f"status {answer.status}"] += 1
            index = (index + CLIENTS) % len(work.texts)

    clients = [asyncio.create_task(ask(first)) for first in range(CLIENTS)]
    await asyncio.sleep(2)
    is_ending = True
    begin = time.perf_counter()
    status = await asyncio.to_thread(server.stop)
    seconds = time.perf_counter() - begin
    await asyncio.gather(*clients)
    return (
        f"exit status {status} after {seconds:.1f} s; "
        f"{', '.join(f'{name}: {count:,}' for name, count in counts.items())}"
    )
