"""The speed of translators and language models on this machine.

For a translator, lines per second and milliseconds per line; for a language model, new tokens per second.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import torch
from _report import CPU, Column, Report, ResultTable, Row, machine_info

from attent.search.settings import GenerationSettings, SearchSettings
from attent.tasks.text_generation.text_generator import TextGenerator
from attent.tasks.translation.engine import Engine

SEARCHES = {"greedy": SearchSettings(), "beam 5": SearchSettings(beam=5)}
# The maximum number of lines to translate.
LINES = 1000
# Lines per batch: a beam search has several hypotheses for each line.
BATCH_SIZES = {"greedy": (32, 64, 128, 256), "beam 5": (8, 16, 32, 64)}
# The number of lines that are also translated one at a time.
SINGLE_LINES = 100
# The number of lines to warm up an engine with.
WARM_UP_LINES = 8
# The number of lines that an engine translates before the next engine's turn.
TURN_LINES = 20
# Batch sizes of text generation, new tokens per text, and new tokens for the warm-up.
TEXTS, NEW_TOKENS, WARM_UP_TOKENS = (1, 8, 32), 64, 4
# The number of rounds, of which the fastest counts.
ROUNDS = 3
Say = Callable[[str], None]


def measure_translation(
    engines: Mapping[str, Engine],
    texts: Sequence[str],
    *,
    rounds: int = ROUNDS,
    sizes: Mapping[str, Sequence[int]] = BATCH_SIZES,
    device: torch.device = CPU,
    say: Say = lambda line: None,
) -> Report:
    """Measure translators, in turn.

    Args:
        engines: the translators by name.
        texts: lines to translate.
        rounds: number of rounds, of which the fastest counts.
        sizes: lines per batch, by the name of the search; sizes above the number of lines are omitted, except the
            first.
        device: device of the translators.
        say: called with a line for each measurement.
    """
    for engine in engines.values():
        engine.search(texts[:WARM_UP_LINES])
    tables: list[ResultTable] = []
    for search, all_sizes in sizes.items():
        search_sizes = [size for index, size in enumerate(all_sizes) if size <= len(texts) or not index]
        sides = {name: partial(_search, engine, texts, SEARCHES[search]) for name, engine in engines.items()}
        title = f"{search}, lines per second"
        tables.append(rate_table(title, sides, search_sizes, lambda _: len(texts), rounds=rounds, say=say))
    rows = line_latencies(engines, texts[:SINGLE_LINES], list(sizes), say)
    columns = [Column("engine", "engine"), *(Column(key, key, ".1f") for key in rows[0] if key != "engine")]
    tables.append(ResultTable("one line at a time, milliseconds", columns, rows))
    return Report(f"{len(texts):,} lines translated", machine_info(device), tables)


def rate_table(
    title: str,
    sides: Mapping[str, Callable[[int], object]],
    sizes: Sequence[int],
    amount: Callable[[int], int],
    *,
    rounds: int = ROUNDS,
    say: Say = lambda line: None,
) -> ResultTable:
    """Measure the amount of work per second for each side and batch size, the sides in turn.

    Args:
        title: title of the table.
        sides: functions by name that do the work for a batch size and return when it is done.
        sizes: batch sizes.
        amount: function from a batch size to the amount of work.
        rounds: number of rounds; the table shows the fastest, and its values include the median.
        say: called with a line for each measurement.
    """
    durations: dict[tuple[str, int], list[float]] = {(name, size): [] for name in sides for size in sizes}
    for number in range(1, rounds + 1):
        for size in sizes:
            for name, work in sides.items():
                say(f"{title}, batches of {size}, round {number} of {rounds}: {name}")
                begin = time.perf_counter()
                work(size)
                durations[name, size].append(time.perf_counter() - begin)
    rows: list[Row] = [{"engine": name} for name in sides]
    for row in rows:
        for size in sizes:
            seconds = durations[row["engine"], size]
            row[f"batch {size}"] = amount(size) / min(seconds)
            row[f"batch {size}, median"] = amount(size) / statistics.median(seconds)
    columns = [Column("engine", "engine"), *(Column(f"batch {size}", f"batch {size}", ",.0f") for size in sizes)]
    return ResultTable(title, columns, rows)


def line_latencies(
    engines: Mapping[str, Engine], texts: Sequence[str], searches: Sequence[str], say: Say = lambda line: None
) -> list[Row]:
    """Measure the median and the 95th percentile of milliseconds per line, one line at a time, engines in turn."""
    rows: dict[str, Row] = {name: {"engine": name} for name in engines}
    for search in searches:
        durations: dict[str, list[float]] = {name: [] for name in engines}
        say(f"{search}, {len(texts)} lines one at a time")
        # several lines per turn, since the threads of the previous engine keep spinning for a moment
        for first in range(0, len(texts), TURN_LINES):
            for name, engine in engines.items():
                for text in texts[first : first + TURN_LINES]:
                    begin = time.perf_counter()
                    _search(engine, [text], SEARCHES[search], 1)
                    durations[name].append(1000 * (time.perf_counter() - begin))
        for name, times in durations.items():
            rows[name][f"{search}, p50"] = statistics.median(times)
            rows[name][f"{search}, p95"] = sorted(times)[int(0.95 * (len(times) - 1))]
    return list(rows.values())


def generate(generator: TextGenerator, texts: int, tokens: int = NEW_TOKENS) -> object:
    """Generate this many texts greedily without a prompt, each of exactly `tokens` tokens."""
    generator.stops_at_line_end = False
    return generator.generate([""] * texts, GenerationSettings(max_new_tokens=tokens))


def _search(engine: Engine, texts: Sequence[str], settings: SearchSettings, batch: int) -> object:
    return engine.search(texts, settings, batch=batch)


def _generation(generator: TextGenerator, device: torch.device, say: Say) -> Report:
    generate(generator, max(TEXTS), WARM_UP_TOKENS)
    sides = {"attent": partial(generate, generator)}
    table = rate_table("greedy, new tokens per second", sides, TEXTS, lambda size: size * NEW_TOKENS, say=say)
    return Report(f"Text generation, {NEW_TOKENS} tokens per text", machine_info(device), [table])
