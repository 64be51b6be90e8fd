"""The speed of a run on this machine.

Lines a second and milliseconds of one line of a translator, by attent and by the engines that the run was exported to;
new tokens a second of a language model.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import islice
from pathlib import Path

import torch

from attent.benchmark.report import CPU, Column, Report, ResultTable, Row, machine_info
from attent.errors import ArgumentError, AttentError
from attent.formats import exporting
from attent.formats.exporting import SEARCHES, sample_of
from attent.runs.config import DType, read_config
from attent.search.settings import GenerationSettings, SearchSettings
from attent.tasks.loading import load
from attent.tasks.text_generation.text_generator import TextGenerator
from attent.tasks.translation.engine import Engine
from attent.tasks.translation.translator import Translator
from attent.text.readers import read_lines

# The most lines of a file that are translated.
LINES = 1000
# Lines of a batch: a search with a beam holds that many times as many.
BATCH_SIZES = {"greedy": (32, 64, 128, 256), "beam 5": (8, 16, 32, 64)}
# Lines that are also translated one at a time.
SINGLE_LINES = 100
# Lines that warm an engine up.
WARM_UP_LINES = 8
# Lines that each engine translates before the next one's turn.
TURN_LINES = 20
# Texts that are generated side by side, new tokens of each, and of those that warm the model up.
TEXTS, NEW_TOKENS, WARM_UP_TOKENS = (1, 8, 32), 64, 4
# Each side's fastest round counts.
ROUNDS = 3
Say = Callable[[str], None]


def measure(
    run: Path,
    file: Path | None = None,
    *,
    device: torch.device = CPU,
    trust_code: bool = False,
    dtype: DType | None = None,
    say: Say = lambda line: None,
) -> Report:
    """Measure how fast a run translates or generates text.

    Args:
        run: the run folder of a translator or of a language model.
        file: lines to translate; what the run was validated on unless given.
        device: of attent; exported engines compute on the CPU.
        trust_code: whether the run may name modules to import.
        dtype: the type of attent's weights; the run's own unless given.
        say: gets a line for each measurement.

    Raises:
        ArgumentError: the run does neither, or generates text and a file is given, or the file holds no line.
        DataError: the file cannot be read.
        RunError: the run folder is missing or damaged.
    """
    tool = load(run, device, trust_code, dtype)
    if isinstance(tool, TextGenerator):
        if file is not None:
            raise ArgumentError(f"{run} is a language model, which is measured without a file: attent bench {run}")
        return _generation(tool, device, say)
    if not isinstance(tool, Translator):
        raise ArgumentError(f"{run} neither translates nor generates text, and nothing else is timed")
    if file is None:
        tokenizers = tool.source_tokenizer, tool.target_tokenizer
        texts: Sequence[str] = sample_of(read_config(run), tokenizers, tool.longest).lines
    elif not (texts := list(islice((line for line in read_lines(file) if line), LINES))):
        raise ArgumentError(f"{file} has no line to translate")
    return measure_translation(run, tool, texts, device=device, say=say)


def measure_translation(
    run: Path,
    translator: Translator,
    texts: Sequence[str],
    *,
    rounds: int = ROUNDS,
    sizes: Mapping[str, Sequence[int]] = BATCH_SIZES,
    device: torch.device = CPU,
    say: Say = lambda line: None,
) -> Report:
    """Measure a translator and every engine that its run was exported to.

    Args:
        run: the run folder.
        translator: the run's.
        texts: the lines to translate.
        rounds: the fastest of them counts.
        sizes: lines of a batch, by the name of the search; those beyond the number of lines are left out, except the
            first.
        device: of the translator.
        say: gets a line for each measurement.
    """
    engines: dict[str, Engine] = {"attent": translator}
    notes: list[str] = []
    for name in exporting.ENGINES:
        try:
            engines[name] = exporting.load(run, name)
        except AttentError as error:
            notes.append(f"{name} is left out: {error}")
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
    return Report(f"{len(texts):,} lines translated", machine_info(device), tables, notes)


def rate_table(
    title: str,
    sides: Mapping[str, Callable[[int], object]],
    sizes: Sequence[int],
    amount: Callable[[int], int],
    *,
    rounds: int = ROUNDS,
    say: Say = lambda line: None,
) -> ResultTable:
    """Measure how much each side does in a second in batches of each size, the sides in turn.

    Args:
        title: of the table.
        sides: a batch size → the work, by name; it returns when the work is done.
        sizes: of the batches.
        amount: a batch size → the amount of the work.
        rounds: the table shows the fastest; values hold the median one too.
        say: gets a line for each measurement.
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
    """Measure milliseconds of one line at a time, the engines in turn: the median, and the 95th percentile."""
    rows: dict[str, Row] = {name: {"engine": name} for name in engines}
    for search in searches:
        durations: dict[str, list[float]] = {name: [] for name in engines}
        say(f"{search}, {len(texts)} lines one at a time")
        # several lines a turn: the threads of the engine before spin on for a moment
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
    """Generate this number of texts greedily, from their beginning, each of exactly so many tokens."""
    generator.stops_at_line_end = False
    return generator.generate([""] * texts, GenerationSettings(max_new_tokens=tokens))


def _search(engine: Engine, texts: Sequence[str], settings: SearchSettings, batch: int) -> object:
    return engine.search(texts, settings, batch=batch)


def _generation(generator: TextGenerator, device: torch.device, say: Say) -> Report:
    generate(generator, max(TEXTS), WARM_UP_TOKENS)
    sides = {"attent": partial(generate, generator)}
    table = rate_table("greedy, new tokens per second", sides, TEXTS, lambda size: size * NEW_TOKENS, say=say)
    return Report(f"Text generation, {NEW_TOKENS} tokens a text", machine_info(device), [table])
