"""Selection of precision and number of threads by timing steps on this machine, and estimates of training time."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple

import torch

from attent.devices import limit_threads, synchronize
from attent.training.optimizer import peak_ratio
from attent.training.progress import Log, Progress, format_duration
from attent.training.settings import TrainingSettings

Precision = Literal["float32", "bfloat16"]
# See `Processes.from_rank0`.
FromRank0 = Callable[[Callable[[], Any]], Any]
TRIALS = 5
# A candidate replaces the preferred one only if it takes less than this share of its time: noise must not decide.
SWITCH_RATIO = 0.9
# A candidate slower than the fastest by this factor is not timed again.
DROP_RATIO = 1.5
# If the learning rate of a training stays below this share of its peak, the warm-up is too long.
ENOUGH = 0.5


class ComputeConfig(NamedTuple):
    """The precision of matrix products and the number of CPU threads."""

    precision: Precision
    threads: int

    def __str__(self) -> str:
        return f"{self.precision} on {self.threads} thread{'s' if self.threads > 1 else ''}"


def autocast(device: torch.device, precision: Precision) -> torch.autocast:
    """Return a context in which matrix products run in this precision; weights and sums stay float32."""
    return torch.autocast(device.type, torch.bfloat16, enabled=precision == "bfloat16")


def candidates(settings: TrainingSettings, device: torch.device) -> list[ComputeConfig]:
    """Return the configurations that the settings leave open.

    The preferred one, float32 on all of torch's threads, comes first. A single thread is also a candidate: if other
    programs use the cores, several threads wait for one another.
    """
    # On MPS autocast may be missing.
    supported: tuple[Precision, ...] = ("float32",) if device.type == "mps" else ("float32", "bfloat16")
    precisions: tuple[Precision, ...] = supported if settings.precision == "auto" else (settings.precision,)
    maximum = torch.get_num_threads()
    threads = (
        (settings.threads,)
        if settings.threads != "auto"
        else (maximum, 1)
        if device.type == "cpu" and maximum > 1
        else (maximum,)
    )
    return [ComputeConfig(precision, number) for precision in precisions for number in threads]


def benchmark(
    step: Callable[[Precision], None],
    device: torch.device,
    configs: Sequence[ComputeConfig],
    from_rank0: FromRank0 = lambda work: work(),
    trials: int = TRIALS,
) -> dict[ComputeConfig, float]:
    """Return the seconds that a step takes with each configuration.

    This is the minimum over interleaved trials after a warm-up; configurations that are clearly slower are dropped
    after the first trial.

    Args:
        step: computes a loss and its gradients and has no other effect; the random generator is restored afterwards.
        device: the device of the step.
        configs: the configurations to time.
        from_rank0: see `Processes.from_rank0`; processes that compute a step together follow the clock of process 0.
        trials: the number of trials of each configuration.
    """
    seconds = dict.fromkeys(configs, float("inf"))
    with limit_threads(), torch.random.fork_rng([device] if device.type == "cuda" else []):
        for trial in range(trials + 1):
            best = min(seconds.values())
            remaining = [config for config in configs if trial < 2 or seconds[config] <= DROP_RATIO * best]
            # JSON turns the tuples into lists.
            for config in [ComputeConfig(*values) for values in from_rank0(partial(list, remaining))]:
                torch.set_num_threads(config.threads)
                start = time.perf_counter()
                step(config.precision)
                synchronize(device)
                if trial:
                    seconds[config] = min(seconds[config], time.perf_counter() - start)
    return seconds


def fastest(seconds: dict[ComputeConfig, float]) -> ComputeConfig:
    """Return the first configuration that no other clearly beats."""
    best = min(seconds.values())
    return next(config for config, time in seconds.items() if best >= SWITCH_RATIO * time)


def autotune(
    step: Callable[[Precision], None],
    configs: Sequence[ComputeConfig],
    device: torch.device,
    log: Log,
    progress: Progress,
    from_rank0: FromRank0,
) -> ComputeConfig:
    """Return the configuration with the shortest time per step, preferring earlier ones unless clearly slower.

    Args:
        step: see `benchmark`.
        configs: see `candidates`; a single one is returned without timing.
        device: the device of the step.
        log: receives the times.
        progress: shows the times.
        from_rank0: see `benchmark`.
    """
    if len(configs) == 1:
        return configs[0]
    seconds = benchmark(step, device, configs, from_rank0)
    best = fastest(seconds)
    log({"pace": str(best), "seconds": {str(config): time for config, time in seconds.items()}})
    times = ", ".join(f"{1000 * time:.0f} ms in {config}" for config, time in seconds.items())
    progress.say(f"{best}: the gradients of a batch take {times}")
    return best


@dataclass(frozen=True)
class Budget:
    """The number of updates and the time that the limits of a training allow.

    Args:
        settings: the training settings.
        width: the width of the model.
        epoch_updates: the number of updates in an epoch.
        epoch_seconds: the time of an epoch on this machine in seconds, estimated by timing a few steps.
        validation_seconds: the approximate time of a validation in seconds; 0 if unknown.
    """

    settings: TrainingSettings
    width: int
    epoch_updates: float
    epoch_seconds: float
    validation_seconds: float = 0.0

    @property
    def update_seconds(self) -> float:
        """The seconds per update, including its share of validations."""
        interval = self.settings.validate_every
        return max(self.epoch_seconds / self.epoch_updates, 1e-9) + (
            self.validation_seconds / interval if interval else 0.0
        )

    @property
    def updates(self) -> float:
        """The number of updates until training ends, unless patience ends it earlier."""
        limits = [self.settings.updates, self.settings.minutes and 60 * self.settings.minutes / self.update_seconds]
        return max(min(limit for limit in limits if limit is not None), 1.0)

    @property
    def epochs(self) -> float:
        """The number of passes through the examples."""
        return self.updates / self.epoch_updates

    def lines(self) -> list[str]:
        """Return lines with the estimated training time and, if the warm-up is too long, a warning."""
        updates, interval = round(self.updates), self.settings.validate_every
        has_last = not interval or updates % interval > 0
        validations = updates // (interval or updates + 1) + has_last
        seconds = self.updates * self.epoch_seconds / self.epoch_updates + validations * self.validation_seconds
        link = "with" if self.validation_seconds else "and"
        line = (
            f"about {format_duration(seconds)} on this machine, {link} {validations} "
            f"validation{'s' if validations > 1 else ''}: {updates:,} updates of "
            f"{self.epoch_seconds / self.epoch_updates:.2g} s, {self.epochs:.3g} epochs"
        )
        fault = rate_fault(self.settings, updates, 1.0, self.width)
        return [line] if fault is None else [line, f"warning: {fault}"]


def rate_fault(settings: TrainingSettings, updates: int, progress: float, width: int) -> str | None:
    """Return a warning if the learning rate stays below half of its peak in these updates, else None.

    The warning also says what to change.

    Args:
        settings: the training settings.
        updates: the number of updates.
        progress: the progress of training after these updates, 0 to 1.
        width: the width of the model.
    """
    ratio = peak_ratio(settings, updates, progress, width) if updates else 1.0
    if ratio >= ENOUGH:
        return None
    length = f"{settings.warmup:,} updates" if settings.warmup >= 1 else f"{settings.warmup:.0%} of the training"
    return (
        f"{updates:,} updates are too few for a warm-up of {length}: the learning rate reaches {ratio:.0%} of its "
        "peak; --set training.warmup=0.1 warms up during the first tenth of --minutes or --updates"
    )
