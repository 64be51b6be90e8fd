"""attent serve under load: requests per second and latencies, beside one request at a time and beside CTranslate2.

    scripts/bench serve load RUN SOURCES [--seconds 10] [--rounds 3]   64 clients, three servers in turn
    scripts/bench serve idle RUN SOURCES                               a single request beside the same sentence offline
    scripts/bench serve same RUN SOURCES [--answers 20000]             answers under load beside offline translations
    scripts/bench serve overload RUN SOURCES [--seconds 60]            twice the requests that the server can handle
    scripts/bench serve memory RUN SOURCES [--rounds 3]                memory after rounds of requests, faults, reloads
    scripts/bench serve hostile RUN SOURCES [--seconds 60]             the worst requests at once, and others with them
    scripts/bench serve faults RUN SOURCES [--minutes 0] [--share 1]   bad clients, reloads and a full disk

RUN is a run folder that names its languages, SOURCES a file in its source language with one text per line. The clients
run in this process, on the same cores as the servers. The CTranslate2 row needs `attent export RUN --to ctranslate2`.
"""

from __future__ import annotations

import argparse
import asyncio
import shlex
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from _engines import load as load_export
from _faults import faults_rows, overload_rows
from _hostile import hostile_rows
from _memory import memory_rows
from _report import Column, Report, ResultTable, Row, machine_info
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
    serve_engine,
    workload,
)
from _sides import show

from attent.tasks.translation.translator import load

ENGINE = "ctranslate2"
# Answers to warm up a server.
WARM_UP = 512
# Lines per turn, offline and with the server: torch's threads keep spinning for a moment after each turn.
TURN = 20


def load_rows(run: Path, options: argparse.Namespace) -> tuple[list[ResultTable], list[str]]:
    """Measure three servers in turn under the load of many clients."""
    work, notes = workload(run, options.sources), list[str]()
    servers = {
        "attent serve": Server(run),
        "attent, one at a time": Server(run, "--batch", "1", "--window", "0", "--threads", "1"),
    }
    try:
        load_export(run, ENGINE)
        servers["CTranslate2, same front-end"] = Server(run, engine=ENGINE)
    except (ImportError, OSError) as error:
        notes.append(f"{ENGINE} is left out: {error}")
    samples: dict[str, list[Row]] = {name: [] for name in servers}
    try:
        for server in servers.values():
            asyncio.run(ask_side_by_side(server, work.requests[:WARM_UP], CLIENTS))
        for _ in range(options.rounds):
            for name, server in servers.items():
                samples[name].append(load_sample(server, work, options.seconds))
    finally:
        for server in servers.values():
            server.stop()
    rows = [
        {"server": name} | {key: statistics.median(row[key] for row in of_server) for key in of_server[0]}
        for name, of_server in samples.items()
    ]
    columns = [
        Column("server", "server"),
        Column("rate", "requests/s", ".0f"),
        Column("p50", "p50, ms", ".1f"),
        Column("p95", "p95, ms", ".1f"),
        Column("processor", "server's processor time a request, ms", ".2f"),
    ]
    title = f"{CLIENTS} clients, {options.seconds:g} s a round, median of {options.rounds} rounds"
    batched, single, *engine = rows
    bars = [
        bar("requests/s over one at a time", float(batched["rate"]) / float(single["rate"]), 4),
        bar("p95 over one at a time", float(batched["p95"]) / float(single["p95"]), 1, is_most=True),
    ]
    bars[1:1] = [bar("requests/s over CTranslate2", float(batched["rate"]) / float(row["rate"]), 1.2) for row in engine]
    return [ResultTable(title, columns, rows), bar_table(bars)], notes


def load_sample(server: Server, work: Workload, seconds: float) -> Row:
    """Measure the rate and the latencies of one server for some seconds."""
    before, begin = server.processor_seconds, time.perf_counter()
    answers = asyncio.run(ask_side_by_side(server, endless(work.requests), CLIENTS, seconds))
    duration = time.perf_counter() - begin
    check_answered(answers)
    processor = 1000 * (server.processor_seconds - before) / len(answers)
    return {
        "rate": len(answers) / duration,
        "p50": milliseconds_of(answers, 0.5),
        "p95": milliseconds_of(answers, 0.95),
        "processor": processor,
    }


def idle_rows(run: Path, options: argparse.Namespace) -> tuple[list[ResultTable], list[str]]:
    """Measure single requests beside the same sentences offline, in turns."""
    work, translator = workload(run, options.sources, options.answers), load(run)
    offline: list[float] = []
    answers: list[Answer] = []

    async def ask(requests: Sequence[bytes]) -> list[Answer]:
        client = Client(server)
        result = [await client.ask(request) for request in requests]
        client.close()
        return result

    with Server(run) as server:
        asyncio.run(ask(work.requests[:TURN]))
        translator.translate(work.texts[:TURN])
        for begin in range(0, len(work.texts), TURN):
            for text in work.texts[begin : begin + TURN]:
                start = time.perf_counter()
                translator.translate(text)
                offline.append(time.perf_counter() - start)
            # wait until the offline side's threads sleep
            time.sleep(0.2)
            answers += asyncio.run(ask(work.requests[begin : begin + TURN]))
    check_answered(answers)
    rows: list[Row] = [
        {"side": "offline", "p50": 1000 * percentile(offline, 0.5), "p95": 1000 * percentile(offline, 0.95)},
        {"side": "attent serve", "p50": milliseconds_of(answers, 0.5), "p95": milliseconds_of(answers, 0.95)},
    ]
    columns = [Column("side", "side"), Column("p50", "p50, ms", ".1f"), Column("p95", "p95, ms", ".1f")]
    more = bar("p50 of a request beyond offline, ms", rows[1]["p50"] - rows[0]["p50"], 10, is_most=True)
    return [ResultTable(f"{len(answers):,} sentences, a single client", columns, rows), bar_table([more])], []


def same_rows(run: Path, options: argparse.Namespace) -> tuple[list[ResultTable], list[str]]:
    """Compare answers under load with offline translations."""
    work = workload(run, options.sources, options.answers)
    with Server(run) as server:
        answers = asyncio.run(ask_side_by_side(server, work.requests, CLIENTS))
    check_answered(answers)
    expected = offline_texts(load(run), work)
    differences = sum(answer.text != expected[text] for answer, text in zip(answers, work.texts, strict=True))
    return [
        bar_table([bar(f"of {len(answers):,} answers under load, unlike offline", differences, 0, is_most=True)])
    ], []


PARTS: dict[str, Callable[[Path, argparse.Namespace], tuple[list[ResultTable], list[str]]]] = {
    "load": load_rows,
    "idle": idle_rows,
    "same": same_rows,
    "overload": overload_rows,
    "faults": faults_rows,
    "memory": memory_rows,
    "hostile": hostile_rows,
}
ANSWERS = {"idle": 200, "same": 20_000}


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = parser.add_subparsers(dest="part", required=True)
    for name in PARTS:
        part = parts.add_parser(name)
        part.add_argument("run", type=Path)
        part.add_argument("sources", type=Path)
        part.add_argument("--seconds", type=float, default=60 if name in ("overload", "hostile") else 10)
        part.add_argument("--rounds", type=int, default=3)
        part.add_argument("--minutes", type=float, default=0)
        part.add_argument("--share", type=float, default=1, help="of the faults, such as 0.1 for a short run")
        part.add_argument("--answers", type=int, default=ANSWERS.get(name))
    # used by this script to start the servers of other engines
    engine = parts.add_parser("engine")
    engine.add_argument("run", type=Path)
    engine.add_argument("name")
    options = parser.parse_args()
    if options.part == "engine":
        serve_engine(options.run, options.name)
        return
    tables, notes = PARTS[options.part](options.run, options)
    command = shlex.join(["scripts/bench", "serve", *sys.argv[1:]])
    show(Report(f"attent serve: {options.part}", machine_info(torch.device("cpu")), tables, notes, command))


if __name__ == "__main__":
    main()
