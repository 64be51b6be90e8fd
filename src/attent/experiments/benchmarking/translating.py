"""Translation by our own engine and by those that a run was exported to: lines a second in batches, and how long one line takes."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import torch

from attent.decoding.settings import SearchSettings
from attent.decoding.translator import load as own
from attent.errors import AttentError
from attent.experiments.benchmarking.machine import machine
from attent.experiments.benchmarking.report import Column, Report, Row, Table
from attent.export.comparison import SEARCHES, Engine
from attent.export.exporting import ENGINES, load

OURS = "attent"
# Lines side by side: a search with a beam holds that many times as many.
SIZES = {"greedy": (32, 64, 128, 256), "beam 5": (8, 16, 32, 64)}
# Lines that are translated one at a time, those that warm an engine up, and those that each takes in turn.
ALONE, WARM, TURN = 100, 8, 20
Say = Callable[[str], None]


def engines(run: Path, device: torch.device | str = "cpu", *, trust_code: bool = False) -> tuple[dict[str, Engine], list[str]]:
    """What can translate, by name, our own on this device; and why the others cannot.

    Raises:
        RunError: the run folder is missing or damaged.
    """
    found: dict[str, Engine] = {OURS: own(run, device, trust_code=trust_code)}
    left_out: list[str] = []
    for name in ENGINES:
        try:
            found[name] = load(run, name)
        except AttentError as error:
            left_out.append(f"{name} is left out: {error}")
    return found, left_out


def seconds(engine: Engine, texts: Sequence[str], settings: SearchSettings, batch: int) -> float:
    """How long some texts take."""
    started = time.perf_counter()
    engine.search(texts, settings, batch=batch)
    return time.perf_counter() - started


def together(
    sides: Mapping[str, Engine], texts: Sequence[str], search: str, sizes: Sequence[int], rounds: int, say: Say = lambda line: None
) -> list[Row]:
    """Lines a second of each engine in batches of each size: of the fastest round and of the middle one."""
    taken: dict[tuple[str, int], list[float]] = {(side, size): [] for side in sides for size in sizes}
    for number in range(1, rounds + 1):
        for size in sizes:
            for side, engine in sides.items():
                say(f"{search}, batches of {size}, round {number} of {rounds}: {side}")
                taken[side, size].append(seconds(engine, texts, SEARCHES[search], size))
    found: list[Row] = []
    for side in sides:
        row: Row = {"engine": side}
        for size in sizes:
            row[f"batch {size}"] = len(texts) / min(taken[side, size])
            row[f"batch {size}, median"] = len(texts) / statistics.median(taken[side, size])
        found.append(row)
    return found


def alone(sides: Mapping[str, Engine], texts: Sequence[str], searches: Sequence[str], say: Say = lambda line: None) -> list[Row]:
    """Milliseconds of one line at a time, the engines in turn: the middle line's, and those that 95 of 100 lines stay below."""
    rows: dict[str, Row] = {side: {"engine": side} for side in sides}
    for search in searches:
        taken: dict[str, list[float]] = {side: [] for side in sides}
        say(f"{search}, {len(texts)} lines one at a time")
        # some lines at a time, for the threads of the engine before spin on a little
        for first in range(0, len(texts), TURN):
            for side, engine in sides.items():
                for text in texts[first : first + TURN]:
                    taken[side].append(1000 * seconds(engine, [text], SEARCHES[search], 1))
        for side, times in taken.items():
            rows[side][f"{search}, p50"] = statistics.median(times)
            rows[side][f"{search}, p95"] = sorted(times)[int(0.95 * (len(times) - 1))]
    return list(rows.values())


def compare(
    run: Path,
    texts: Sequence[str],
    *,
    rounds: int = 3,
    sizes: Mapping[str, Sequence[int]] = SIZES,
    apart: int = ALONE,
    device: torch.device | str = "cpu",
    trust_code: bool = False,
    say: Say = lambda line: None,
) -> Report:
    """Measure translation by every engine that the run has.

    Args:
        run: the run folder.
        texts: the lines to translate.
        rounds: of which the fastest counts.
        sizes: lines side by side, by the name of the search; those beyond the number of lines are left out, but for the first.
        apart: how many of the lines are also translated one at a time.
        device: where our own computes; the others stay on the CPU.
        trust_code: whether the run may name modules to import.
        say: told what is measured.

    Raises:
        RunError: the run folder is missing or damaged.
    """
    sides, notes = engines(run, device, trust_code=trust_code)
    for engine in sides.values():
        engine.search(texts[:WARM])
    tables: list[Table] = []
    for search, of in sizes.items():
        some = [size for place, size in enumerate(of) if size <= len(texts) or not place]
        columns = [Column(f"batch {size}", f"batch {size}", ".0f") for size in some]
        found = together(sides, texts, search, some, rounds, say)
        tables.append(Table(f"{search}, lines per second", [Column("engine", "engine"), *columns], found))
    if apart:
        columns = [Column(f"{search}, {which}", f"{search}, {which}", ".1f") for search in sizes for which in ("p50", "p95")]
        found = alone(sides, texts[:apart], list(sizes), say)
        tables.append(Table("one line at a time, milliseconds", [Column("engine", "engine"), *columns], found))
    return Report(f"{len(texts):,} lines translated", machine(), tables, notes)
