"""Many pairs in one server: memory of its cgroup, cold requests, latency of a mixed load, and swaps.

scripts/bench pairs make DIR TEXT… [--pairs 50]
scripts/bench pairs serve DIR LINES [--memory 2GiB] [--seconds 15] [--rate R]

`make` writes random models of Firefox's tiny size, each with its own numbers, as runs: 32,000 pieces, learned from the
texts, in 8 bits; half of them translate from English, half into it. The server runs in a memory cgroup of its own
(version 1; root is needed), whose usage includes the page cache. 64 clients send their next sentence as soon as the
last is answered, first to one pair, then each to a pair drawn at random; with --rate, sentences arrive at that rate per
second instead, whatever the answers take. Every answer is compared with the translation of the same run without a
server.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch
from _firefox_models import SIZES, Planted, binary, settings, vocabulary
from _serving import CLIENTS, Answer, Client, Server, ask_side_by_side, milliseconds_of, request_bytes
from _sides import head, table

from attent.runs.config import read_config
from attent.runs.hugging_face import import_run
from attent.tasks.translation.translator import load
from attent.text.readers import read_lines

LANGUAGES = "bg ca cs da de el es et fi fr hr hu it lt lv nl pl pt ro ru sk sl sv tr uk"
PIECES = 32_000
CGROUP = Path("/sys/fs/cgroup/memory/attent-pairs")
# By name: the lines to translate, the expected answers, and each pair's requests.
Requests = dict[tuple[str, str], list[tuple[bytes, str]]]


def make(folder: Path, texts: Sequence[Path], count: int) -> None:
    """Write random models in Marian's format, and import them."""
    lines = [line for text in texts for line in read_lines(text)]
    model, size = vocabulary(lines, PIECES), SIZES["tiny"]
    pairs = [pair for code in LANGUAGES.split() for pair in ((code, "en"), ("en", code))][:count]
    for seed, (source, target) in enumerate(pairs):
        planted = Planted(size, PIECES, 1, seed, noise=0.3, sharpness=12.0, peak=2.0)
        marian = folder / "models" / f"{source}{target}"
        marian.mkdir(parents=True)
        (marian / f"vocab.{source}{target}.spm").write_bytes(model)
        content = binary(planted.arrays, settings(size, 1, PIECES), {})
        (marian / f"model.{source}{target}.intgemm.bin").write_bytes(content)
        import_run(marian, folder / "runs" / f"{source}{target}", source, target)
        shutil.rmtree(marian)
        print(f"{seed + 1} of {len(pairs)}: {source} → {target}", file=sys.stderr)


def expected_requests(folder: Path, lines: Sequence[str]) -> Requests:
    """Return the requests of each pair, with the translations by its run without a server."""
    result: Requests = {}
    for run in sorted(folder.iterdir()):
        config = read_config(run)
        pair = str(config.source_language), str(config.target_language)
        answers = load(run).translate(list(lines))
        requests = [request_bytes(line, *pair) for line in lines]
        result[pair] = list(zip(requests, answers, strict=True))
    return result


@contextmanager
def served(folder: Path, memory: str) -> Iterator[Server]:
    """Serve a folder of runs in a cgroup of its own."""
    CGROUP.mkdir(exist_ok=True)
    own = Path("/proc/self/cgroup").read_text("ascii")
    before = next(line.partition(":memory:")[2] for line in own.splitlines() if ":memory:" in line)
    (CGROUP / "cgroup.procs").write_text("0")
    try:
        options = () if memory == "none" else ("--memory", memory)
        server = Server(folder, *options, is_folder=True)
    finally:
        (Path("/sys/fs/cgroup/memory") / before.strip("/") / "cgroup.procs").write_text("0")
    (CGROUP / "memory.max_usage_in_bytes").write_text("0")
    with server:
        yield server
    CGROUP.rmdir()


def mebibytes(name: str) -> float:
    """Return a number of the cgroup, in MiB."""
    return int((CGROUP / f"memory.{name}_in_bytes").read_text("ascii")) / 2**20


async def ask_at_rate(server: Server, requests: Iterator[bytes], rate: float, seconds: float) -> list[Answer]:
    """Send requests at random times with this mean rate per second; return the answers in order."""
    idle, numbers = [Client(server) for _ in range(8 * CLIENTS)], random.Random(1)

    async def ask(request: bytes, due: float) -> Answer:
        client = idle.pop()
        answer = await client.ask(request)
        idle.append(client)
        return answer._replace(seconds=time.perf_counter() - due)

    tasks, due = list[asyncio.Task[Answer]](), time.perf_counter()
    end = due + seconds
    while due < end:
        await asyncio.sleep(max(due - time.perf_counter(), 0))
        tasks.append(asyncio.create_task(ask(next(requests), due)))
        due += numbers.expovariate(rate)
    answers = await asyncio.gather(*tasks)
    for client in idle:
        client.close()
    return answers


def numbers_of(server: Server, name: str) -> float:
    """Return a number of the server's metrics."""
    answer = asyncio.run(Client(server).ask(b"GET /metrics HTTP/1.1\r\nHost: benchmark\r\n\r\n"))
    return next(float(line.split()[-1]) for line in answer.body.decode().splitlines() if line.startswith(name))


def load_row(server: Server, name: str, requests: Requests, seconds: float, rate: float) -> list[str]:
    """Return a row of the table for a load over the given pairs."""
    generator, sent = random.Random(0), list[str]()
    pairs = list(requests.values())

    def drawn() -> Iterator[bytes]:
        while True:
            request, answer = generator.choice(generator.choice(pairs))
            sent.append(answer)
            yield request

    loads = numbers_of(server, "attent_loads ")
    if rate:
        answers = asyncio.run(ask_at_rate(server, drawn(), rate, seconds))
    else:
        answers = asyncio.run(ask_side_by_side(server, drawn(), CLIENTS, seconds))
    good = [answer for answer in answers if answer.status == 200]
    wrong = sum(answer.status == 200 and answer.text != text for answer, text in zip(answers, sent, strict=False))
    swaps = numbers_of(server, "attent_loads ") - loads
    return [
        name, f"{len(good) / seconds:.0f}", *(f"{milliseconds_of(good, share):.0f}" for share in (0.5, 0.95)),
        str(wrong), str(len(answers) - len(good)), f"{swaps:.0f}", f"{mebibytes('usage'):,.0f}",
        f"{mebibytes('max_usage'):,.0f}", f"{server.memory:,.0f}",
    ]  # fmt: skip


def measure(folder: Path, lines: Path, memory: str, seconds: float, rate: float) -> None:
    """Print the table of a server of all runs in a folder."""
    texts = [line for line in lines.read_text("utf-8").splitlines() if line][:20]
    torch.set_num_threads(1)
    requests = expected_requests(folder, texts)
    head(f"{len(requests)} pairs in one server, --memory {memory}")
    with served(folder, memory) as server:
        print(f"at the start: {mebibytes('usage'):,.0f} MiB in the cgroup, {server.memory:,.0f} resident")
        cold, wrong = list[Answer](), 0
        for of_pair in requests.values():
            cold += asyncio.run(ask_side_by_side(server, [of_pair[0][0]], 1))
            wrong += cold[-1].text != of_pair[0][1]
        times = [milliseconds_of(cold, share) for share in (0.5, 0.95, 1.0)]
        print(f"first request of a cold pair: {times[0]:.0f} ms median, {times[1]:.0f} p95, {times[2]:.0f} longest; ")
        print(f"{wrong} wrong; then {mebibytes('usage'):,.0f} MiB in the cgroup, {server.memory:,.0f} resident\n")
        first = dict(list(requests.items())[:1])
        columns = ["load", "answers/s", "p50, ms", "p95, ms", "wrong", "lost", "loads"]
        columns += ["cgroup, MiB", "its peak, MiB", "resident, MiB"]
        loads = {"one pair": first, "all pairs": requests, "one pair again": first, "all pairs again": requests}
        rows = [load_row(server, name, of_load, seconds, rate) for name, of_load in loads.items()]
        table(columns, rows)


def main() -> None:
    """Make runs, or serve them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    maker, server = commands.add_parser("make"), commands.add_parser("serve")
    maker.add_argument("folder", type=Path)
    maker.add_argument("texts", type=Path, nargs="+")
    maker.add_argument("--pairs", type=int, default=50)
    server.add_argument("folder", type=Path)
    server.add_argument("lines", type=Path)
    server.add_argument("--memory", default="2GiB")
    server.add_argument("--seconds", type=float, default=15.0)
    server.add_argument("--rate", type=float, default=0.0)
    options = parser.parse_args()
    if options.command == "make":
        make(options.folder, options.texts, options.pairs)
    else:
        measure(options.folder / "runs", options.lines, options.memory, options.seconds, options.rate)


if __name__ == "__main__":
    main()
