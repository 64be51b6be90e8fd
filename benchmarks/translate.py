"""Translation speed of attent, ONNX Runtime and CTranslate2, alternating in one process.

ONNX Runtime is used with attent's search; CTranslate2 computes in float32.

    benchmarks/translate.py RUN FILE [--lines N] [--rounds N] [--threads N] [--dtype int8]

RUN is a run folder. An engine is left out if its package is not installed or RUN/export has no export for it. Hugging
Face's `generate` of a Marian model as large as RUN's takes part if RUN holds a Transformer and scripts/peers has made
the environment: its weights are random, and each batch takes as many steps as the longest of attent's own translations
of its lines. If RUN has an export to CTranslate2, a table also gives the share of lines that differ between its int8
and its float32.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import get_args

import torch
from _engines import load as exported
from _peers import GENERATED, Peers, write_lines
from _report import Column, ResultTable
from _sides import show
from _speed import BATCH_SIZES, SEARCHES, measure_translation

from attent.formats.exporting import export
from attent.runs.config import DType, read_config
from attent.tasks.translation.engine import Engine
from attent.tasks.translation.translator import load
from attent.text.readers import read_lines


def generated(run: Path, texts: Sequence[str], threads: int, rounds: int) -> tuple[list[ResultTable], list[str]]:
    """Return a table of the peers' fastest rounds for each search, and notes."""
    model, translator = read_config(run).model, load(run)
    if model.kind != "transformer":
        return [], []
    peers, own = Peers(GENERATED), translator.source_tokenizer
    searches = {
        name: (settings.beam, [best[0] for best in translator.search(texts, settings)], BATCH_SIZES[name])
        for name, settings in SEARCHES.items()
    }
    best: dict[str, dict[str, dict[str, float]]] = {name: {} for name in searches}
    with tempfile.TemporaryDirectory() as folder:
        write_lines(Path(folder), [own.encode(text) for text in texts], searches, model, own.size)
        for name in [peer for _ in range(rounds) for peer in peers.available]:
            for search, rates in (
                (peers.run(name, folder, "--threads", threads) or {}).get("lines_per_second") or {}
            ).items():
                before = best[search].setdefault(name, {"engine": name})  # pyright: ignore[reportArgumentType]
                before |= {
                    f"batch {batch}": max(rate, before.get(f"batch {batch}", 0.0)) for batch, rate in rates.items()
                }
    tables = [
        ResultTable(
            f"{search}, as many steps with random weights, lines per second",
            [
                Column("engine", "engine"),
                *(Column(f"batch {batch}", f"batch {batch}", ".0f") for batch in BATCH_SIZES[search]),
            ],
            list(rows.values()),
        )
        for search, rows in best.items()
        if rows
    ]
    return tables, [*peers.versions.values(), *peers.notes]


def quantized(run: Path, texts: Sequence[str]) -> list[ResultTable]:
    """Return a table with the share of lines that CTranslate2 translates differently in int8.

    There is no table without an export to CTranslate2.
    """
    try:
        exact = exported(run, "ctranslate2")
    except (ImportError, OSError):
        return []
    with tempfile.TemporaryDirectory() as folder:
        out = export(run, "ctranslate2", Path(folder) / "int8", quantization="int8")
        rounded, shares = exported(run, "ctranslate2", out), dict[str, float]()
        for name, settings in SEARCHES.items():
            lines = zip(exact.translate(texts, settings), rounded.translate(texts, settings), strict=True)
            shares[name] = 100 * sum(first != second for first, second in lines) / len(texts)
    return [
        ResultTable(
            "lines that ctranslate2 translates differently in int8 and in float32, per cent",
            [Column(name, name, ".1f") for name in shares],
            [shares],
        )
    ]


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("file", type=Path)
    parser.add_argument("--lines", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--dtype", choices=get_args(DType), help="of attent's weights; the run's own unless given")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    texts = list(islice((line for line in read_lines(options.file) if line), options.lines))
    engines: dict[str, Engine] = {"attent": load(options.run, dtype=options.dtype)}
    notes: list[str] = []
    for engine in ("ctranslate2", "onnx"):
        try:
            engines[engine] = exported(options.run, engine)
        except (ImportError, OSError) as error:
            notes.append(f"{engine} is omitted: {error}")
    report = measure_translation(
        engines,
        texts,
        rounds=options.rounds,
        say=lambda line: print(line, file=sys.stderr, flush=True),
    )
    tables, peer_notes = generated(options.run, texts, options.threads, options.rounds)
    tables = [*report.tables, *tables, *quantized(options.run, texts)]
    show(replace(report, tables=tables, notes=[*notes, *peer_notes]))


if __name__ == "__main__":
    main()
