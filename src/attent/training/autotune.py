"""In which precision and on how many threads training goes faster on this machine: found by trying."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple

import torch

from attent.devices import synchronize
from attent.training.progress import Log, Progress
from attent.training.settings import TrainingSettings

Precision = Literal["float32", "bfloat16"]
# As `Processes.from_rank0`.
FromRank0 = Callable[[Callable[[], Any]], Any]
TRIALS = 5
# A way that is preferred is given up only for one that takes less than this share of its time: so that noise does not decide.
CLEARLY = 0.9
# A way that takes more than so many times the quickest one's time is not tried again.
HOPELESS = 1.5


class ComputeConfig(NamedTuple):
    """A way to compute: the precision of matrix products, and how many of the processor's cores take part."""

    precision: Precision
    threads: int

    def __str__(self) -> str:
        return f"{self.precision} on {self.threads} thread{'s' if self.threads > 1 else ''}"


def autocast(device: torch.device, precision: Precision) -> torch.autocast:
    """A context in which matrix products run in this precision; weights and sums stay float32."""
    return torch.autocast(device.type, torch.bfloat16, enabled=precision == "bfloat16")


def candidates(settings: TrainingSettings, device: torch.device) -> list[ComputeConfig]:
    """The ways that the settings leave open, the preferred one first: float32, and as many threads as torch has.

    One thread is tried besides: where other programs use the cores too, several wait for one another.
    """
    # where autocast may be missing float32 is certain
    known: tuple[Precision, ...] = ("float32",) if device.type == "mps" else ("float32", "bfloat16")
    precisions: tuple[Precision, ...] = known if settings.precision == "auto" else (settings.precision,)
    most = torch.get_num_threads()
    alone = device.type == "cpu" and most > 1
    threads = ((most, 1) if alone else (most,)) if settings.threads == "auto" else (settings.threads,)
    return [ComputeConfig(precision, number) for precision in precisions for number in threads]


def _call(work: Callable[[], Any]) -> Any:
    return work()


def benchmark(
    step: Callable[[Precision], None], device: torch.device, configs: Sequence[ComputeConfig], from_rank0: FromRank0 = _call
) -> dict[ComputeConfig, float]:
    """The seconds that one step takes each way: the least of five, taken in turn, after one to warm up; of fewer where that is plenty.

    Args:
        step: computes a loss and its gradients, and changes nothing else; random numbers it draws are given back.
        device: where it computes.
        paces: the ways to try.
        from_rank0: as `Processes.from_rank0`: where several processes compute a step together, all try what the first one's clock says.
    """
    seconds = dict.fromkeys(configs, float("inf"))
    before = torch.get_num_threads()
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        for trial in range(TRIALS + 1):
            best = min(seconds.values())
            hopeful = [pace for pace in configs if trial < 2 or seconds[pace] <= HOPELESS * best]
            for pace in [ComputeConfig(*one) for one in from_rank0(partial(list, hopeful))]:
                torch.set_num_threads(pace.threads)
                started = time.perf_counter()
                step(pace.precision)
                synchronize(device)
                if trial:
                    seconds[pace] = min(seconds[pace], time.perf_counter() - started)
    torch.set_num_threads(before)
    return seconds


def fastest(seconds: dict[ComputeConfig, float]) -> ComputeConfig:
    """The way that took less time; the first of them that no other clearly beats."""
    best = min(seconds.values())
    return next(pace for pace, time in seconds.items() if best >= CLEARLY * time)


def autotune(
    step: Callable[[Precision], None],
    configs: Sequence[ComputeConfig],
    device: torch.device,
    log: Log,
    progress: Progress,
    from_rank0: FromRank0 = _call,
) -> ComputeConfig:
    """Of the ways that the settings leave open, the one in which a step takes less time.

    Args:
        step: as `benchmark` takes it.
        paces: as `candidates` finds them.
        device: where the step computes.
        log: gets what was measured, if anything was.
        progress: shows it.
        from_rank0: as `benchmark` takes it.
    """
    if len(configs) == 1:
        return configs[0]
    seconds = benchmark(step, device, configs, from_rank0)
    best = fastest(seconds)
    log({"pace": str(best), "seconds": {str(pace): time for pace, time in seconds.items()}})
    times = ", ".join(f"{1000 * time:.0f} ms in {pace}" for pace, time in seconds.items())
    progress.say(f"{best}: the gradients of a batch take {times}")
    return best
