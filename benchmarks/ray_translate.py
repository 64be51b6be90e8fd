"""Translation with Ray Data on a cluster on this machine.

Workers, one of which is killed during the run, are compared with a single process.

    scripts/bench ray_translate RUN SOURCES [--lines 200000] [--workers 2] [--batch-rows 512]

SOURCES is a file with one text per line, repeated until there are enough. The exit status is 1 unless the translations
are complete, in order and identical to those of a single process.
"""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import sys
import time
from itertools import cycle, islice
from pathlib import Path

import ray
import ray.data
import torch
from _sides import show

from attent.benchmark.report import Column, Report, ResultTable, Row, machine_info
from attent.tasks.translation.ray import BATCH_ROWS, translate
from attent.tasks.translation.translator import load
from attent.text.readers import read_lines


def kill_worker() -> int:
    """Kill a worker process, and return its process ID.

    Raises:
        SystemExit: there is no worker.
    """
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            command = (folder / "cmdline").read_bytes()
        except OSError:
            continue
        # Ray names a process after its class and method
        if command.startswith(b"ray::") and b"MapWorker" in command:
            os.kill(int(folder.name), signal.SIGKILL)
            return int(folder.name)
    raise SystemExit("no worker was found to be killed")


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("sources", type=Path)
    parser.add_argument("--lines", type=int, default=200_000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--batch-rows", type=int, default=BATCH_ROWS)
    options = parser.parse_args()
    texts = list(islice(cycle([line for line in read_lines(options.sources) if line.strip()]), options.lines))
    ray.data.DataContext.get_current().enable_progress_bars = False
    ray.init(num_cpus=options.workers + 1, include_dashboard=False, log_to_driver=False)
    rows = [{"index": index, "text": text} for index, text in enumerate(texts)]
    dataset = ray.data.from_items(rows, override_num_blocks=max(8, 4 * options.workers))
    indices: list[int] = []
    translations: list[str] = []
    begin, killed = time.perf_counter(), 0
    translated = translate(dataset, options.run.resolve(), workers=options.workers, batch_rows=options.batch_rows)
    for batch in translated.iter_batches(batch_size=options.batch_rows):
        indices += batch["index"].tolist()
        translations += batch["translation"].tolist()
        if not killed:
            killed = kill_worker()
    seconds = time.perf_counter() - begin
    ray.shutdown()
    torch.set_num_threads(1)
    begin = time.perf_counter()
    translator = load(options.run)
    expected = translator.translate(texts)
    single_seconds = time.perf_counter() - begin
    is_ordered = indices == list(range(len(texts)))
    differences = sum(translation != expected[index] for index, translation in zip(indices, translations, strict=True))
    is_same = is_ordered and not differences
    columns = [Column("side", "side"), Column("rate", "lines/s", ".0f")]
    sides: list[Row] = [
        {"side": f"Ray Data, {options.workers} workers, from their start on", "rate": len(texts) / seconds},
        {"side": "one process, one thread", "rate": len(texts) / single_seconds},
    ]
    notes = [
        f"Ray {ray.__version__}. Worker {killed} was killed after the first batch had come.",
        (
            f"Complete and in order: {'yes' if is_ordered else 'NO'}; translations unlike those of one process: "
            f"{differences}."
        ),
    ]
    command = shlex.join(["scripts/bench", "ray_translate", *sys.argv[1:]])
    show(Report(f"{len(texts):,} lines by Ray Data", machine_info(), [ResultTable("", columns, sides)], notes, command))
    sys.exit(not is_same)


if __name__ == "__main__":
    main()
