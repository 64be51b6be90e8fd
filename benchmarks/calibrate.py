"""Choose the row of the machine table whose choices between implementations cost least here, and use it from now on.

    scripts/bench calibrate [--threads 1]

Dense attention and PyTorch's are timed on this machine, in about half a minute. The choice is a small file in the
user's cache folder, which `attend` reads in every environment; its path and the timings are printed.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import torch
from _report import Column, Report, ResultTable, Row, machine_info, three_digits
from torch.nn import functional as F

from attent.attention import attend
from attent.attention.backends.heuristics import ROWS, MachineRow, save_calibration
from attent.devices import limit_threads
from attent.errors import ImplementationError
from attent.ops.dense_attention import is_compiled
from attent.ops.eligibility import processor_class

Work = Callable[[], object]
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
KEYS, HEADS, WIDTH = (128, 256, 512, 1024, 2048, 4096), 2, 64
# Relative difference of costs between two calibrations of the same machine.
NOISE = 0.02
COLUMNS = (
    Column("keys", "keys", ",d"),
    Column("dtype", "dtype"),
    Column("measured", "measured"),
    Column("dense", "dense, ms", three_digits),
    Column("pytorch", "PyTorch, ms", three_digits),
)
COSTS = Column("row", "row"), Column("machine", "measured on"), Column("cost", "times the faster side", ".2f")


class Timing(NamedTuple):
    """Milliseconds of one side: the minimum and the median."""

    best: float
    median: float


def time_in_turn(
    sides: Mapping[str, Work], *, rounds: int = 15, seconds: float = 3.0, wait: Callable[[], object] = lambda: None
) -> dict[str, Timing]:
    """Time each side in turn, in fewer rounds if they take long.

    In each round, a side runs four times in a row, and the first run does not count. Thus caches and the allocator are
    in the state that the side itself left, not the one before it.

    Args:
        sides: work to time, by name; each side also runs once as a warm-up.
        rounds: maximum number of rounds.
        seconds: time after which no new round begins, except for the first three.
        wait: function that returns when the device is idle.

    Returns:
        The timing of each side.
    """
    durations: dict[str, list[float]] = {name: [] for name in sides}
    for work in sides.values():
        work()
    start = time.perf_counter()
    for number in range(rounds):
        if number >= 3 and time.perf_counter() - start > seconds:
            break
        for name, work in sides.items():
            work()
            for _ in range(3):
                wait()
                begin = time.perf_counter()
                work()
                wait()
                durations[name].append(1000 * (time.perf_counter() - begin))
    return {name: Timing(min(times), statistics.median(times)) for name, times in durations.items()}


def calibrate(
    *, keys: Sequence[int] = KEYS, seconds: float = 0.5, say: Callable[[str], None] = lambda line: None
) -> Report:
    """Time both sides at each length, choose the cheapest row, and write it to the user's cache folder.

    Args:
        keys: lengths to measure.
        seconds: time for each measurement, after which no new round begins.
        say: called with a line for each length.

    Raises:
        ImplementationError: dense attention was not compiled, so there is nothing to choose.
    """
    if not is_compiled():
        raise ImplementationError(
            "there is nothing to choose: attent's library was not compiled, so PyTorch is always used"
        )
    timings: list[Row] = []
    for dtype in DTYPES:
        for length in keys:
            say(f"{length:,} keys in {dtype}")
            timings += [
                _timing(length, dtype, with_gradients=with_gradients, seconds=seconds)
                for with_gradients in (False, True)
            ]
    costs = {row.name: cost(row, timings) for row in ROWS.values()}
    best = ROWS[cheapest(costs)]
    path = save_calibration(best, costs)
    tables = [
        ResultTable("", COLUMNS, timings),
        ResultTable(
            "The rows",
            COSTS,
            [{"row": row.name, "machine": row.machine, "cost": costs[row.name]} for row in ROWS.values()],
        ),
    ]
    note = f"attent now uses the row {best.name!r}, stored in {path}; remove that file to use the processor's own row."
    return Report("Dense attention beside PyTorch's", machine_info(), tables, [note])


def cheapest(costs: Mapping[str, float]) -> str:
    """Return the name of the cheapest row.

    Prefer the row of this processor's class unless another is cheaper by more than the noise of the timings.
    """
    own, best = processor_class(), min(costs, key=lambda name: costs[name])
    return own if own in costs and costs[own] <= (1 + NOISE) * costs[best] else best


def cost(row: MachineRow, timings: Sequence[Row]) -> float:
    """Return the mean ratio of the time of a row's choices to the faster side's; 1 if all choices are the fastest."""
    factors: list[float] = []
    for timing in timings:
        limit = row.dense_keys(
            DTYPES[timing["dtype"]], with_gradients=timing["measured"] == "gradients", with_table=False
        )
        side = "dense" if limit is None or timing["keys"] <= limit else "pytorch"
        factors.append(timing[side] / min(timing["dense"], timing["pytorch"]))
    return sum(factors) / len(factors)


def _timing(length: int, dtype: str, *, with_gradients: bool, seconds: float) -> Row:
    torch.manual_seed(0)
    query, key, value = (
        torch.randn(1, HEADS, length, WIDTH, dtype=DTYPES[dtype], requires_grad=with_gradients) for _ in range(3)
    )

    def dense() -> torch.Tensor:
        return attend(query, key, value, implementation="dense")

    def pytorch() -> torch.Tensor:
        return F.scaled_dot_product_attention(query, key, value)

    sides = {"dense": dense, "pytorch": pytorch}
    if with_gradients:
        gradient = torch.randn_like(query)
        sides = {
            name: lambda side=side: torch.autograd.grad(side(), (query, key, value), gradient)
            for name, side in sides.items()
        }
    with torch.set_grad_enabled(with_gradients):
        times = time_in_turn(sides, seconds=seconds)
    measured = "gradients" if with_gradients else "forward"
    return {
        "keys": length,
        "dtype": dtype,
        "measured": measured,
        **{name: timing.best for name, timing in times.items()},
    }


def main() -> None:
    """Calibrate, and print the timings."""
    parser = argparse.ArgumentParser(description="Choose the row of the machine table that costs least here.")
    parser.add_argument("--threads", type=int, help="number of threads; PyTorch's default unless given")
    with limit_threads(parser.parse_args().threads):
        report = calibrate(say=lambda line: print(line, file=sys.stderr))
    print("\n".join(report.lines()).lstrip())


if __name__ == "__main__":
    main()
