"""The memory of a server over rounds of the same requests, faults and reloads, to see whether it keeps growing."""

from __future__ import annotations

import argparse
import asyncio
import shutil
import sys
import tempfile
from itertools import islice
from pathlib import Path

from _faults import MAX_CONNECTIONS, clients_gone, disk_full, malformed, reloads
from _report import Column, ResultTable, Row
from _serving import CLIENTS, Server, ask_side_by_side, check_answered, endless, workload

# Per round: requests, clients that disconnect, malformed bodies, reloads of the run, and documents on a full disk.
REQUESTS, GONE, MALFORMED, RELOADS, FULL = 1_000, 100, 100, 2, 2


def memory_rows(run: Path, options: argparse.Namespace) -> tuple[list[ResultTable], list[str]]:
    """Measure the memory of a server after each round."""
    work, rows = workload(run, options.sources), list[Row]()
    requests = endless(work.requests)
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "run"
        shutil.copytree(run, copy)
        with Server(
            copy, "--address-limit", str(MAX_CONNECTIONS), "--connection-limit", str(MAX_CONNECTIONS)
        ) as server:
            rows.append(row("at the start", server))
            for number in range(1, options.rounds + 1):
                check_answered(asyncio.run(ask_side_by_side(server, islice(requests, REQUESTS), CLIENTS)))
                for faults, count in (
                    (clients_gone, GONE),
                    (malformed, MALFORMED),
                    (disk_full, FULL),
                    (reloads, RELOADS),
                ):
                    asyncio.run(faults(server, work, copy, count))
                rows.append(row(f"after round {number}", server))
    columns = [
        Column("name", "when"),
        Column("memory", "memory, MiB", ".0f"),
        Column("peak", "at most, MiB", ".0f"),
        Column("descriptors", "descriptors", "d"),
    ]
    note = (
        f"A round: {REQUESTS:,} requests of {CLIENTS} clients, {GONE} clients that go, {MALFORMED} malformed bodies, "
        f"{FULL} documents that the disk does not take, {RELOADS} reloads."
    )
    return [ResultTable("", columns, rows)], [note]


def row(name: str, server: Server) -> Row:
    """Return a row with the server's memory and descriptors."""
    result: Row = {"name": name, "memory": server.memory, "peak": server.peak_memory, "descriptors": server.descriptors}
    # show progress, since rounds take a while
    print(", ".join(f"{key}: {value}" for key, value in result.items()), file=sys.stderr, flush=True)
    return result
