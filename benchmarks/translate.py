"""Translation by our own engine, by ONNX's runtime under our search, and by CTranslate2 in float32, in turn in one process.

    benchmarks/translate.py RUN FILE [--lines N] [--rounds N] [--threads N]

RUN is a run folder; an engine whose package is not installed, or which has no export in RUN/export, is left out. Where there is
CTranslate2 it is also said how many lines its int8 translates otherwise than its float32.
"""

from __future__ import annotations

import argparse
import time
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from _sides import head, table

from attent.data.reading import lines
from attent.decoding.settings import SearchSettings
from attent.decoding.translator import load as own
from attent.errors import AttentError
from attent.export.comparison import SEARCHES, Engine, compare
from attent.export.exporting import export, load

OTHERS = ("onnx", "ctranslate2")
SIZES = {"greedy": (32, 64, 128, 256), "beam 5": (8, 16, 32, 64)}
# Lines that are translated one at a time.
ALONE = 100


def engines(run: Path) -> dict[str, Engine]:
    """What can translate, by name."""
    found: dict[str, Engine] = {"attent": own(run)}
    for name in OTHERS:
        try:
            found[name] = load(run, name)
        except AttentError as error:
            print(f"{name} is left out: {error}")
    return found


def taken(engine: Engine, texts: list[str], settings: SearchSettings, batch: int) -> float:
    """Seconds for some texts."""
    started = time.perf_counter()
    engine.search(texts, settings, batch=batch)
    return time.perf_counter() - started


def together(sides: dict[str, Engine], texts: list[str], rounds: int) -> None:
    """Lines per second in batches; of each size the least time of some rounds."""
    for name, settings in SEARCHES.items():
        print(f"\n{name}, lines per second:\n")
        best = {side: dict.fromkeys(SIZES[name], float("inf")) for side in sides}
        for _ in range(rounds):
            for size in SIZES[name]:
                for side, engine in sides.items():
                    best[side][size] = min(best[side][size], taken(engine, texts, settings, size))
        rows = [[side, *(f"{len(texts) / times[size]:.0f}" for size in SIZES[name])] for side, times in best.items()]
        table(["engine", *(f"batch {size}" for size in SIZES[name])], rows)


def alone(sides: dict[str, Engine], texts: list[str]) -> None:
    """Milliseconds for one line at a time, the engines in turn."""
    print("\none line at a time, milliseconds, the middle of all lines:\n")
    rows = {side: [side] for side in sides}
    for settings in SEARCHES.values():
        times: dict[str, list[float]] = {side: [] for side in sides}
        for text in texts[:ALONE]:
            for side, engine in sides.items():
                times[side].append(taken(engine, [text], settings, 1))
        for side, seconds in times.items():
            rows[side].append(f"{1000 * sorted(seconds)[len(seconds) // 2]:.1f}")
    table(["engine", *SEARCHES], list(rows.values()))


def quantised(run: Path, exact: Engine, texts: list[str]) -> None:
    """The share of lines that CTranslate2 translates otherwise once its weights are int8."""
    with TemporaryDirectory() as folder:
        out, _ = export(run, "ctranslate2", Path(folder) / "int8", quantisation="int8")
        found = compare(exact, load(run, "ctranslate2", out), texts)
    print("\nlines that ctranslate2 translates otherwise in int8 than in float32, per cent:\n")
    table([*found.differences], [[f"{100 * len(lines) / found.lines:.1f}" for lines in found.differences.values()]])


def main() -> None:
    """What the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, nargs="?")
    parser.add_argument("file", type=Path, nargs="?")
    parser.add_argument("--lines", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    given = parser.parse_args()
    if given.run is None or given.file is None:
        print("benchmarks/translate.py needs a run folder and a file of text: RUN FILE")
        return
    torch.set_num_threads(given.threads)
    texts = list(islice((line for line in lines(given.file) if line), given.lines))
    head(f"{len(texts)} lines translated")
    sides = engines(given.run)
    for engine in sides.values():
        engine.search(texts[:8])
    together(sides, texts, given.rounds)
    alone(sides, texts)
    if "ctranslate2" in sides:
        quantised(given.run, sides["ctranslate2"], texts)


if __name__ == "__main__":
    main()
