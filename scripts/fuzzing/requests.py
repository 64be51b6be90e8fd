"""Requests to a live server.

Hostile requests run beside valid ones; answers, log, memory, descriptors and shutdown are checked.
"""

from __future__ import annotations

import asyncio
import json
import time
import urllib.parse
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from fuzzing.exchanges import Exchange, draw
from fuzzing.live_server import Answer, Connection, LiveServer, request
from fuzzing.valid_requests import valid_requests

# Concurrent connections.
WORKERS = 16
# The loopback addresses of hostile and of valid clients.
STRANGERS, VALID = tuple(f"127.0.0.{number}" for number in range(2, 10)), "127.0.0.1"
# Statuses with which the server may report that it is busy or too slow.
BUSY = frozenset((429, 503, 504))
# Maximum bytes of an error response, seconds for /health and MB of all processes; MB at which the server is killed.
MAX_ERROR, MAX_HEALTH, MAX_MEGABYTES, FATAL_MEGABYTES = 2_000, 5.0, 1024.0, 4096.0
# Seconds until memory and descriptors must be released, and the allowed ratio of memory to that before.
SETTLING, MEMORY_SHARE, SPARE_DESCRIPTORS = 60.0, 1.1, 4
# Requests after which the server has seen every kind.
WARM_UP = 1_000
# The maximum share of valid requests that may be refused because the server is busy.
MAX_REFUSED = 0.1


class Attack:
    """Exchanges with a server, and the faults of its answers.

    Args:
        server: the server.
        seed: the seed of the exchanges.
    """

    def __init__(self, server: LiveServer, seed: int) -> None:
        self.server, self.seed, self.faults = server, seed, list[str]()
        self.statuses, self.health = Counter[str](), list[float]()
        self.refused, self.valid, self.peak = 0, 0, 0.0
        self._requests, self._expected = valid_requests(), list[Answer]()
        self._under_way: dict[int, int] = {}
        self._complaints = 0

    async def prepare(self) -> None:
        """Send each valid request by itself, twice."""
        connection = Connection(self.server.host, self.server.port)
        for data in self._requests:
            answers = [await self._follow(await connection.ask(data), connection) for _ in range(2)]
            if answers[0] != answers[1] or answers[0].status != 200:
                self.faults.append(f"a valid request alone was answered by {answers}: {data[:300]!r}")
            self._expected.append(answers[0])
        connection.close()

    async def run(self, numbers: Iterable[int], *, verbose: bool = False) -> None:
        """Run the exchanges with these numbers concurrently."""
        remaining = iter(numbers)
        monitor = asyncio.create_task(self._monitor())
        await asyncio.gather(*(self._work(worker, remaining, verbose=verbose) for worker in range(WORKERS)))
        monitor.cancel()

    async def _work(self, worker: int, numbers: Iterable[int], *, verbose: bool) -> None:
        stranger, client = (
            Connection(self.server.host, self.server.port, source) for source in (STRANGERS[worker % 8], VALID)
        )
        for number in numbers:
            exchange = draw(self.seed, number, self._requests)
            self._under_way[worker] = number
            if not self.server.is_running:
                break
            answers, problem = await self._exchange(exchange, client if exchange.expected else stranger)
            self._judge(number, exchange, answers, problem)
            if verbose:
                print(
                    f"{exchange.kind}: {sum(len(piece) for piece in exchange.pieces if isinstance(piece, bytes)):,} "
                    f"bytes; {problem}"
                )
                print(*(f"{answer.status} {answer.body[:2000]!r}" for answer in answers), sep="\n")
        self._under_way.pop(worker, None)
        stranger.close()
        client.close()

    async def _exchange(self, exchange: Exchange, connection: Connection) -> tuple[list[Answer], str]:
        """Return the answers to an exchange, and the problem of the connection, if any."""
        answers, problem = list[Answer](), ""
        is_head = isinstance(exchange.pieces[0], bytes) and exchange.pieces[0].startswith(b"HEAD ")
        try:
            async with asyncio.timeout(exchange.seconds):
                if (
                    len(exchange.pieces) == 1
                    and exchange.ends == "keep"
                    and isinstance(data := exchange.pieces[0], bytes)
                ):
                    answers.append(await connection.ask(data))
                else:
                    # a valid request must not meet the timeout of an idle connection
                    connection.close()
                    await self._send(exchange, connection)
                while len(answers) < (len(exchange.expected) or exchange.answers):
                    answers.append(await connection.read(has_body=not is_head))
                if exchange.expected:
                    answers = [await self._follow(answer, connection) for answer in answers]
        except TimeoutError:
            problem = f"no answer within {exchange.seconds:g} s"
        except (OSError, EOFError, ValueError) as error:
            # ValueError: an answer without a head, or with an endless one
            problem = f"{type(error).__name__}: {error}"
        if problem or exchange.ends != "keep":
            connection.close(is_abrupt=exchange.ends == "abort")
        return answers, problem

    async def _send(self, exchange: Exchange, connection: Connection) -> None:
        reader, writer = await connection.open()
        for piece in exchange.pieces:
            if isinstance(piece, bytes):
                if reader.at_eof() or writer.is_closing():
                    break
                writer.write(piece)
                await writer.drain()
            else:
                await asyncio.sleep(piece)
        if exchange.ends == "half":
            writer.write_eof()

    async def _follow(self, answer: Answer, connection: Connection) -> Answer:
        """Return the answer; for a translated document, the document, and for a stream, its last event."""
        if answer.body.startswith(b'{"translatedFileUrl"'):
            path = urllib.parse.urlsplit(json.loads(answer.body)["translatedFileUrl"]).path
            return await connection.ask(request("GET", path))
        return answer._replace(body=answer.body.rpartition(b"data: ")[2], is_last=False)

    def _judge(self, number: int, exchange: Exchange, answers: Sequence[Answer], problem: str) -> None:
        self.statuses.update(str(answer.status) for answer in answers)
        self.statuses.update(["none"] if problem else [])
        wrong = [f"status {answer.status}" for answer in answers if answer.status >= 500 and answer.status not in BUSY]
        if exchange.statuses:
            wrong += [f"status {answer.status}" for answer in answers if answer.status not in exchange.statuses | BUSY]
        if exchange.expected:
            self.valid += 1
            self.refused += any(answer.status in BUSY for answer in answers)
            expected = [self._expected[index] for index in exchange.expected]
            if problem or len(answers) < len(expected):
                wrong.append(f"no answer to a valid request: {problem}")
            wrong += [
                f"another answer: {answer.status} {answer.body[:300]!r}, expected {known.body[:300]!r}"
                for answer, known in zip(answers, expected, strict=False)
                if answer.status not in BUSY and (answer.status, answer.body) != (known.status, known.body)
            ]
        wrong += [
            f"an error of {len(answer.body)} bytes"
            for answer in answers
            if answer.status >= 400 and len(answer.body) > MAX_ERROR
        ]
        if wrong:
            self.faults.append(
                f"--requests {number + 1} --seed {self.seed} --case {number}: {exchange.kind}: {'; '.join(wrong)}"
            )

    async def _monitor(self) -> None:
        """Check health, memory and log twice a second; on a fault, name the running exchanges."""
        while self.server.is_running:
            connection, begin = Connection(self.server.host, self.server.port), time.monotonic()
            with suppress(OSError, EOFError):
                await connection.ask(request("GET", "/health"))
            connection.close()
            self.health.append(time.monotonic() - begin)
            memory = self.server.megabytes
            self.peak = max(self.peak, memory)
            complaints = len(self.server.complaints)
            wrong = [f"/health waited {self.health[-1]:.1f} s"] if self.health[-1] > MAX_HEALTH else []
            wrong += [f"{memory:.0f} MB"] if memory > MAX_MEGABYTES else []
            wrong += [f"the log: {self.server.last_line}"] if complaints > self._complaints else []
            self._complaints = complaints
            if wrong:
                self.faults.append(
                    f"{'; '.join(wrong)}, while cases {sorted(self._under_way.values())} of seed {self.seed} were "
                    "under way"
                )
            if memory > FATAL_MEGABYTES:
                self.server.kill()
            await asyncio.sleep(0.5)
        self.faults.append(
            f"the server ended while cases {sorted(self._under_way.values())} of seed {self.seed} were under way"
        )


def settled(server: LiveServer, megabytes: float, descriptors: int, seconds: float = SETTLING) -> list[str]:
    """Wait until memory and descriptors are as before; return a line for each that is not in the end."""
    end = time.monotonic() + seconds
    while True:
        memory, count = server.megabytes, server.descriptors
        wrong = [f"memory {memory:.0f} MB, {megabytes:.0f} before"] if memory > MEMORY_SHARE * megabytes else []
        wrong += [f"{count} descriptors, {descriptors} before"] if count > descriptors + SPARE_DESCRIPTORS else []
        if not wrong or time.monotonic() > end or not server.is_running:
            return wrong
        time.sleep(1)


def attack(
    run: Path, folder: Path, seed: int, numbers: Sequence[int], *, verbose: bool = False
) -> tuple[list[str], str]:
    """Send requests to a new server, and return the faults and a summary.

    Args:
        run: the run folder.
        folder: the folder for the server's log and files.
        seed: the seed of the requests.
        numbers: the request numbers; memory is first measured after a tenth of them or more, once the server has seen
            every kind.
        verbose: whether to print each exchange.
    """
    keys = folder / "keys"
    keys.write_text("a-key-that-nobody-sends 1000\n")
    options = ("--languages", "en:de", "--threads", "1", "--api-keys-file", str(keys))
    begin, warm = time.monotonic(), max(len(numbers) // 10, min(len(numbers) // 2, WARM_UP))
    with LiveServer(run, folder, options) as server:
        this = Attack(server, seed)

        async def first() -> None:
            await this.prepare()
            await this.run(numbers[:warm], verbose=verbose)

        asyncio.run(first())
        # a kept-alive connection is closed after some seconds
        time.sleep(6 if len(numbers) > 1 else 0)
        before = server.megabytes, server.descriptors
        asyncio.run(this.run(numbers[warm:], verbose=verbose))
        if server.is_running:
            this.faults += settled(server, *before) if len(numbers) > 1 else []
            memory = server.megabytes
            this.faults += [end] if (end := server.stop()) else []
        else:
            memory = 0.0
        if server.complaints and not any("the log" in fault for fault in this.faults):
            this.faults.append(f"the log: {server.last_line}")
    if this.refused > MAX_REFUSED * this.valid:
        this.faults.append(f"{this.refused} of {this.valid} valid requests were refused")
    health, counts = (
        sorted(this.health),
        ", ".join(f"{name}: {count:,}" for name, count in sorted(this.statuses.items())),
    )
    return this.faults, (
        f"{len(numbers):,} requests of seed {seed}: {len(this.faults)} failures; {this.valid:,} valid, {this.refused} "
        f"refused; {counts}; /health p50 {1000 * health[len(health) // 2]:.0f} ms, at most {1000 * health[-1]:.0f} "
        f"ms; memory {before[0]:.0f} MB, {this.peak:.0f} at most, {memory:.0f} in the end; "
        f"{time.monotonic() - begin:.0f} s in all"
    )
