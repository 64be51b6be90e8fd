"""Training time by size.

It measures microseconds per source or target token by batch size, vocabulary size and sentence length.

    benchmarks/scaling.py [--out docs] [--preset tiny] [--tokens N ...] [--pieces N ...] [--lengths N ...]
        [--threads N ...] [--rounds N]

It trains on random sentences, in float32 and bfloat16, on one thread and on all, and writes scaling.md with a figure in
figures/ as PNG and SVG.
"""

from __future__ import annotations

import argparse
import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

import _corpora as corpora
import _training
import torch
from _report import Column, Report, ResultTable, Row, machine_info
from comparison.results import COLORS, DASHES, MARKERS

from attent.devices import limit_heap_fragmentation
from attent.models.settings import TRANSFORMER_PRESETS
from attent.text import tokenizers
from attent.text.batches import BatchSize
from attent.training.autotune import ComputeConfig

# Default sizes while one of them varies; lengths are distributed as in captions.
TOKENS, PIECES, LENGTH = 4096, 10_000, 14
# Titles in tables and figures, by the name of the varying size.
TITLES = {"tokens": "target tokens per batch", "pieces": "vocabulary size", "length": "tokens per sentence"}
INCHES = (13, 4)
DOTS = 150


def point(
    options: Namespace,
    paces: Sequence[ComputeConfig],
    *,
    tokens: int = TOKENS,
    pieces: int = PIECES,
    length: int | None = None,
) -> Row:
    """Return microseconds per token in the fastest round for each precision and number of threads.

    Sentences have one length, or lengths distributed as in captions.
    """
    # enough pairs for a different batch in each update
    number = max(2 * options.updates * tokens // (length or LENGTH), 64)
    spread = corpora.SPREAD if length is None else 0.0
    pairs = corpora.synthetic_pairs(pieces, number=number, length=length or LENGTH, spread=spread)
    data = corpora.bitext(pairs, tokenizers.learn("word", corpora.both_sides(pairs), pieces))
    torch.manual_seed(0)
    model = _training.transformer(options.preset)
    sides = [
        _training.Side(str(pace), pace, _training.attent_update(model, pieces, pace, data, tokens)) for pace in paces
    ]
    results = _training.measure(sides, data.stream(BatchSize(tokens=tokens), 1), options.rounds, options.updates)
    return {name: 1e6 / max(rates) for name, rates in results.items()}


def series(options: Namespace, paces: Sequence[ComputeConfig]) -> dict[str, list[Row]]:
    """Measure each size, and return table rows by the name of the varying size."""
    variables: dict[str, list[int]] = {"tokens": options.tokens, "pieces": options.pieces, "length": options.lengths}
    points: dict[str, list[Row]] = {}
    for name, sizes in variables.items():
        points[name] = []
        for size in sizes:
            print(f"{size:,} {TITLES[name]}", file=sys.stderr, flush=True)
            points[name].append({name: size} | point(options, paces, **{name: size}))
    return points


def draw(points: dict[str, list[Row]], paces: Sequence[ComputeConfig], out: Path) -> None:
    """Draw a panel for each varying size."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    # for reproducible files
    with pyplot.rc_context({"svg.hashsalt": "attent", "svg.fonttype": "none"}):
        figure, panels = pyplot.subplots(1, len(points), figsize=INCHES, sharey=True, layout="constrained")
        for panel, (name, rows) in zip(panels, points.items(), strict=True):
            sizes = [row[name] for row in rows]
            for pace, hue, dash, mark in zip(paces, COLORS, DASHES, MARKERS, strict=False):
                times = [row[str(pace)] for row in rows]
                panel.plot(sizes, times, color=hue, linestyle=dash, marker=mark, label=str(pace))
            panel.set(xscale="log", xlabel=TITLES[name])
            panel.set_xticks(sizes, [f"{size:,}" for size in sizes])
            panel.minorticks_off()
            panel.grid(alpha=0.3)
        panels[0].set(ylim=(0, None), ylabel="µs a token")
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper center", ncols=len(paces))
        out.mkdir(parents=True, exist_ok=True)
        figure.savefig(out / "scaling.svg", metadata={"Date": None})
        figure.savefig(out / "scaling.png", dpi=DOTS)
        pyplot.close(figure)


def page(points: dict[str, list[Row]], paces: Sequence[ComputeConfig], options: Namespace) -> str:
    """Return the page in Markdown: the figure, and its values as tables."""
    tables = [
        ResultTable(
            f"Microseconds per token, by {TITLES[name]}",
            [Column(name, TITLES[name], ",d"), *(Column(str(pace), str(pace), ".1f") for pace in paces)],
            rows,
        )
        for name, rows in points.items()
    ]
    notes = [
        "Times are per source and target token, without padding, on synthetic sentences, for the fastest of",
        f"{options.rounds} rounds of {options.updates} updates. "
        f"Unless they vary: {TOKENS:,} target tokens per batch, a vocabulary of {PIECES:,}, and",
        (
            f"{LENGTH} tokens per sentence on average, with lengths distributed as in captions; where the length "
            "varies, all sentences have"
        ),
        "the same length. Measured by `scripts/bench scaling`.",
    ]
    report = Report(f"How training scales: a Transformer of preset {options.preset}", machine_info(), tables)
    _, title, *rest = report.lines()
    figure = "![Microseconds per token by batch size, vocabulary size and sentence length](figures/scaling.svg)"
    return "\n".join([title.removeprefix("#"), *rest[:2], "", *notes, "", figure, *rest[2:], ""])


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path(__file__).parents[1] / "docs", help="the folder to write to")
    parser.add_argument("--preset", default="tiny", choices=TRANSFORMER_PRESETS)
    parser.add_argument("--tokens", type=int, nargs="+", default=[1024, 2048, 4096, 8192, 16384])
    parser.add_argument("--pieces", type=int, nargs="+", default=[4000, 8000, 16000, 32000, 64000])
    parser.add_argument("--lengths", type=int, nargs="+", default=[8, 16, 32, 64, 128, 256])
    parser.add_argument("--threads", type=int, nargs="+", default=sorted({1, torch.get_num_threads()}))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--updates", type=int, default=4, help="in a round")
    options = parser.parse_args()
    limit_heap_fragmentation()
    threads = torch.get_num_threads()
    paces = [ComputeConfig(precision, number) for number in options.threads for precision in _training.PRECISIONS]
    points = series(options, paces)
    # the page reports this process's number of threads
    torch.set_num_threads(threads)
    draw(points, paces, options.out / "figures")
    (options.out / "scaling.md").write_text(page(points, paces, options), encoding="utf-8")
    print(options.out / "scaling.md")


if __name__ == "__main__":
    main()
