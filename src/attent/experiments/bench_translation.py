"""Translation by attent and by the engines that a run was exported to.

Lines a second in batches, and milliseconds of one line.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import torch

from attent.errors import AttentError
from attent.experiments.machine import machine_info
from attent.experiments.report import Column, Report, ResultTable, Row
from attent.formats.exporting import ENGINES, SEARCHES, load
from attent.runs.config import DType
from attent.search.settings import SearchSettings
from attent.tasks.translation.translator import Engine
from attent.tasks.translation.translator import load as load_translator

# Lines of a batch: a search with a beam holds that many times as many.
BATCH_SIZES = {"greedy": (32, 64, 128, 256), "beam 5": (8, 16, 32, 64)}
# Lines that are translated one at a time.
SINGLE_LINES = 100
# Lines that warm an engine up.
WARM_UP_LINES = 8
# Lines that each engine translates before the next one's turn.
TURN_LINES = 20
Say = Callable[[str], None]


def load_engines(
    run: Path, device: torch.device | str = "cpu", *, trust_code: bool = False, dtype: DType | None = None
) -> tuple[dict[str, Engine], list[str]]:
    """Return the engines that can translate, by name, attent on this device; and notes on why others cannot.

    Raises:
        RunError: the run folder is missing or damaged.
    """
    engines: dict[str, Engine] = {"attent": load_translator(run, device, trust_code=trust_code, dtype=dtype)}
    notes: list[str] = []
    for name in ENGINES:
        try:
            engines[name] = load(run, name)
        except AttentError as error:
            notes.append(f"{name} is left out: {error}")
    return engines, notes


def search_seconds(engine: Engine, texts: Sequence[str], settings: SearchSettings, batch: int) -> float:
    """Return the duration of a search."""
    begin = time.perf_counter()
    engine.search(texts, settings, batch=batch)
    return time.perf_counter() - begin


def batch_rates(
    engines: Mapping[str, Engine],
    texts: Sequence[str],
    search: str,
    sizes: Sequence[int],
    rounds: int,
    say: Say = lambda line: None,
) -> list[Row]:
    """Measure lines a second of each engine in batches of each size: of the fastest round and of the median one."""
    durations: dict[tuple[str, int], list[float]] = {(name, size): [] for name in engines for size in sizes}
    for number in range(1, rounds + 1):
        for size in sizes:
            for name, engine in engines.items():
                say(f"{search}, batches of {size}, round {number} of {rounds}: {name}")
                durations[name, size].append(search_seconds(engine, texts, SEARCHES[search], size))
    rows: list[Row] = []
    for name in engines:
        row: Row = {"engine": name}
        for size in sizes:
            row[f"batch {size}"] = len(texts) / min(durations[name, size])
            row[f"batch {size}, median"] = len(texts) / statistics.median(durations[name, size])
        rows.append(row)
    return rows


def line_latencies(
    engines: Mapping[str, Engine], texts: Sequence[str], searches: Sequence[str], say: Say = lambda line: None
) -> list[Row]:
    """Measure milliseconds of one line at a time, the engines in turn: the median, and the 95th percentile."""
    rows: dict[str, Row] = {name: {"engine": name} for name in engines}
    for search in searches:
        durations: dict[str, list[float]] = {name: [] for name in engines}
        say(f"{search}, {len(texts)} lines one at a time")
        # several lines a turn: the threads of the engine before spin on for a moment
        for begin in range(0, len(texts), TURN_LINES):
            for name, engine in engines.items():
                for text in texts[begin : begin + TURN_LINES]:
                    durations[name].append(1000 * search_seconds(engine, [text], SEARCHES[search], 1))
        for name, times in durations.items():
            rows[name][f"{search}, p50"] = statistics.median(times)
            rows[name][f"{search}, p95"] = sorted(times)[int(0.95 * (len(times) - 1))]
    return list(rows.values())


def compare(
    run: Path,
    texts: Sequence[str],
    *,
    rounds: int = 3,
    sizes: Mapping[str, Sequence[int]] = BATCH_SIZES,
    single_lines: int = SINGLE_LINES,
    device: torch.device | str = "cpu",
    trust_code: bool = False,
    dtype: DType | None = None,
    say: Say = lambda line: None,
) -> Report:
    """Measure translation by every engine that the run has.

    Args:
        run: the run folder.
        texts: the lines to translate.
        rounds: the fastest of them counts.
        sizes: lines of a batch, by the name of the search; those beyond the number of lines are left out, except the
            first.
        single_lines: number of lines that are also translated one at a time.
        device: of attent; the other engines stay on the CPU.
        trust_code: whether the run may name modules to import.
        dtype: the type of attent's weights; the run's own unless given.
        say: gets a line for each measurement.

    Raises:
        RunError: the run folder is missing or damaged.
    """
    engines, notes = load_engines(run, device, trust_code=trust_code, dtype=dtype)
    for engine in engines.values():
        engine.search(texts[:WARM_UP_LINES])
    tables: list[ResultTable] = []
    for search, all_sizes in sizes.items():
        search_sizes = [size for index, size in enumerate(all_sizes) if size <= len(texts) or not index]
        columns = [
            Column("engine", "engine"),
            *(Column(f"batch {size}", f"batch {size}", ".0f") for size in search_sizes),
        ]
        tables.append(
            ResultTable(
                f"{search}, lines per second", columns, batch_rates(engines, texts, search, search_sizes, rounds, say)
            )
        )
    if single_lines:
        keys = [f"{search}, {percentile}" for search in sizes for percentile in ("p50", "p95")]
        columns = [Column("engine", "engine"), *(Column(key, key, ".1f") for key in keys)]
        tables.append(
            ResultTable(
                "one line at a time, milliseconds",
                columns,
                line_latencies(engines, texts[:single_lines], list(sizes), say),
            )
        )
    return Report(f"{len(texts):,} lines translated", machine_info(), tables, notes)
