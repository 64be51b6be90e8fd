"""The most expensive requests at the same time, beside /health and one-sentence translations.

Measured are the times of the latter, the server's memory and its shutdown. The attack and the measurement run in
separate processes. All requests are prepared in advance; each loop of the attack waits between two requests, since it
shares the server's cores. The measurement sends requests at fixed times, whether or not earlier ones have been
answered.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "scripts"))

from fuzzing.documents import ARCHIVES, repeated
from fuzzing.live_server import Connection, LiveServer, json_request, request, upload

# Seconds between two requests to /health, between two translations, and of the measurement before the attack.
HEALTH_INTERVAL, TRANSLATION_INTERVAL, IDLE = 0.1, 0.25, 5.0
# Seconds that an attack waits for an answer, and between two requests of a loop; and that it continues after the
# measurement, while the server shuts down.
PATIENCE, PAUSE, AFTER = 30.0, 0.2, 15.0
MAX_MILLISECONDS, MAX_MEGABYTES, MAX_END = 250, 1024, 10
MEASURER_NICENESS = -10
SECONDS_LOST = 60.0
Piece = bytes | float


def documents() -> Iterator[bytes]:
    """Yield uploads of the most expensive documents that a server accepts."""
    sizes = {
        "a format with a long attribute and tabs": 8_000,
        "a format with a long name and few tabs": 400_000,
        "nested fields": 60_000,
    }
    sizes |= {
        "a format of many elements and tabs": 20_000,
        "nested paragraphs around texts": 200_000,
        "spans of a long style": 8_000,
    }
    sizes |= {"nested spans of long styles": 40_000, "nested spans around texts": 50_000}
    for ending, kinds in ARCHIVES.items():
        for name, (_, make) in kinds.items():
            if name in sizes:
                yield upload(make(sizes[name]), f"a{ending}")
    for unit in ("<!--a>", "<!--a--!>", "<![CDATA[a>", "<b>"):
        yield upload(repeated(unit, 200_000), "a.html")
    yield upload(repeated("b ", 4_000_000, "<a "), "a.html")
    yield upload(b"*a " * 3_000 + b"a_ " * 3_000, "a.md")


def loops() -> dict[str, tuple[int, list[Sequence[Piece]]]]:
    """Return by name the number of loops of an attack and what they send in turn: bytes, and seconds to wait."""
    head = b"POST /translate HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
    chunked, long = head + b"Transfer-Encoding: chunked\r\n\r\n0\r\n", head + b"Content-Length: 10400000\r\n\r\n"
    fields = b"A: b\r\n" * 10_000
    large = upload(b"one two three. " * 690_000, "a.txt")
    names = "&".join(map(str, range(11_000)))[:58_000]
    lists = request("POST", "/translate", b'{"source":"en","target":"de","q":[' + b"[]," * 3_400_000 + b"[]]}")
    markup = json_request({"q": ["<!--a>" * 833] * 50, "source": "en", "target": "de", "format": "html"})
    return {
        "queries of many names": (2, [[request("POST", f"/translate?{names}")]]),
        "documents": (12, [[data] for data in documents()]),
        "headers, trailers and paths without end": (
            6,
            [[begin, *[fields] * 900] for begin in (b"GET / HTTP/1.1\r\n", chunked, b"GET /")],
        ),
        "bodies that never end": (100, [[long + b"a" * 10_390_000, PATIENCE]]),
        "lists of lists": (2, [[lists]]),
        "uploads that are closed": (4, [[large, 0.25, b""]]),
        "markup": (2, [[markup]]),
    }


async def attack(host: str, port: int, seconds: float) -> Counter[str]:
    """Run all attacks for some seconds, and return how many times each was sent."""
    counts, end = Counter[str](), time.monotonic() + seconds

    async def repeat(name: str, sent: Iterator[Sequence[Piece]], source: str) -> None:
        while time.monotonic() < end:
            connection = Connection(host, port, source)
            with suppress(OSError, EOFError, ValueError, TimeoutError):
                async with asyncio.timeout(min(PATIENCE + 5, max(end - time.monotonic(), 0.1))):
                    reader, writer = await connection.open()
                    counts[name] += 1
                    for piece in (pieces := next(sent)):
                        if reader.at_eof() or writer.is_closing():
                            break
                        if isinstance(piece, bytes):
                            writer.write(piece)
                            await writer.drain()
                        else:
                            await asyncio.sleep(piece)
                    if pieces[-1] != b"":
                        await connection.read()
            connection.close(is_abrupt=True)
            await asyncio.sleep(PAUSE)

    prepared = [(name, count, itertools.cycle(sent)) for name, (count, sent) in loops().items()]
    print("ready", flush=True)
    end = time.monotonic() + seconds
    sources = itertools.cycle(f"127.0.0.{number}" for number in range(2, 10))
    await asyncio.gather(*(repeat(name, sent, next(sources)) for name, count, sent in prepared for _ in range(count)))
    return counts


async def measure(host: str, port: int, seconds: float, translations: dict[str, str]) -> dict[str, Any]:
    """Request /health and translations at fixed times; return milliseconds and the number of bad answers."""
    times: dict[str, list[float]] = {"health": [], "translation": []}
    wrong = 0

    async def ask(name: str, data: bytes, expected: str, free: list[Connection]) -> None:
        nonlocal wrong
        connection, begin = free.pop() if free else Connection(host, port), time.monotonic()
        try:
            async with asyncio.timeout(SECONDS_LOST):
                answer = await connection.ask(data)
            is_right = answer.status == 200 and expected in (
                answer.body.decode(),
                json.loads(answer.body).get("translatedText"),
            )
            wrong += not is_right
            free.append(connection)
        except (OSError, EOFError, TimeoutError):
            wrong += 1
            connection.close(is_abrupt=True)
        times[name].append(1000 * (time.monotonic() - begin))

    async def by_the_clock(name: str, requests: Iterator[tuple[bytes, str]], interval: float) -> None:
        tasks, free, begin = list[asyncio.Task[None]](), list[Connection](), time.monotonic()
        for number in range(int(seconds / interval)):
            await asyncio.sleep(max(begin + number * interval - time.monotonic(), 0))
            tasks.append(asyncio.create_task(ask(name, *next(requests), free)))
        await asyncio.gather(*tasks)

    pairs = itertools.cycle((data.encode("latin-1"), text) for data, text in translations.items())
    health = itertools.repeat((request("GET", "/health"), '{"status": "ok"}'))
    await asyncio.gather(
        by_the_clock("health", health, HEALTH_INTERVAL), by_the_clock("translation", pairs, TRANSLATION_INTERVAL)
    )
    return {"times": times, "wrong": wrong}


def start(role: str, *arguments: object, niceness: int = 0) -> subprocess.Popen[str]:
    """Start this file as a process that attacks or measures; a lower niceness is set if permitted."""

    def lower() -> None:
        with suppress(PermissionError):
            os.nice(niceness)

    command = [sys.executable, __file__, role, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, preexec_fn=lower)


def hostile_rows(run: Path, options: argparse.Namespace) -> tuple[list[Any], list[str]]:
    """Measure a server under attack."""
    from _serving import bar, bar_table, offline_texts, percentile, workload

    from attent.tasks.translation.translator import load

    work = workload(run, options.sources, 50)
    known = offline_texts(load(run), work)
    translations = {data.decode("latin-1"): known[text] for data, text in zip(work.requests, work.texts, strict=True)}
    with tempfile.TemporaryDirectory() as folder, LiveServer(run, Path(folder)) as server:
        file = Path(folder) / "translations.json"
        file.write_text(json.dumps(translations))

        def measuring(seconds: float) -> subprocess.Popen[str]:
            return start("measure", server.host, server.port, seconds, file, niceness=MEASURER_NICENESS)

        idle = json.loads(measuring(IDLE).communicate()[0])
        before, most = server.megabytes, 0.0
        attacking = start("attack", server.host, server.port, options.seconds + AFTER)
        assert attacking.stdout is not None
        attacking.stdout.readline()
        measurement = measuring(options.seconds)
        while measurement.poll() is None and server.is_running:
            most = max(most, server.megabytes)
            time.sleep(0.5)
        under = json.loads(measurement.communicate()[0])
        begin = time.monotonic()
        problem = server.stop()
        seconds = time.monotonic() - begin
        counts = json.loads(attacking.communicate()[0])
        complaints = server.complaints
    rows = [
        *(
            bar(f"p99 of {name}, ms", percentile(under["times"][name], 0.99), MAX_MILLISECONDS, is_most=True)
            for name in under["times"]
        ),
        bar("wrong or missing answers", under["wrong"], 0, is_most=True),
        bar("proportional memory at most, MiB", most, MAX_MEGABYTES, is_most=True),
        bar("seconds from SIGTERM to the end", seconds, MAX_END, is_most=True),
        bar("complaints in the log, or about the end", len(complaints) + bool(problem), 0, is_most=True),
    ]
    medians = ", ".join(f"{name} {percentile(values, 0.5):.0f} ms" for name, values in under["times"].items())
    idles = ", ".join(f"{name} {percentile(values, 0.99):.0f} ms" for name, values in idle["times"].items())
    sent = ", ".join(f"{name} {count:,}" for name, count in counts.items())
    notes = [
        f"p50 under attack: {medians}; p99 before it: {idles}; memory before it {before:.0f} MiB.",
        f"{options.seconds:g} s of {sent}.",
    ]
    return [bar_table(rows)], [*notes, *complaints[:3], *([problem] if problem else [])]


def main() -> None:
    """Attack or measure in a process started by `hostile_rows`."""
    role, host, port, seconds, *more = sys.argv[1:]
    if role == "attack":
        print(json.dumps(asyncio.run(attack(host, int(port), float(seconds)))))
    else:
        print(json.dumps(asyncio.run(measure(host, int(port), float(seconds), json.loads(Path(more[0]).read_text())))))


if __name__ == "__main__":
    main()
