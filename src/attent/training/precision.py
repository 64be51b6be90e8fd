"""Which precision trains faster on this machine: found by trying."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Literal

import torch

Precision = Literal["float32", "bfloat16"]
TRIALS = 3


def autocast(device: torch.device, precision: Precision) -> torch.autocast:
    """A context in which matrix products run in this precision; weights and sums stay float32."""
    return torch.autocast(device.type, torch.bfloat16, enabled=precision == "bfloat16")


def measured(step: Callable[[Precision], None], device: torch.device) -> dict[Precision, float]:
    """The seconds that one step takes in each precision: the least of three, taken in turn, after one to warm up.

    Args:
        step: computes a loss and its gradients, and changes nothing else; random numbers it draws are given back.
        device: where it computes.
    """
    seconds: dict[Precision, float] = {"float32": float("inf"), "bfloat16": float("inf")}
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        for trial in range(TRIALS + 1):
            for precision in seconds:
                started = time.perf_counter()
                step(precision)
                if device.type == "cuda":
                    torch.cuda.synchronize(device)
                if trial:
                    seconds[precision] = min(seconds[precision], time.perf_counter() - started)
    return seconds


def faster(seconds: dict[Precision, float]) -> Precision:
    """The precision that took less time; of equals float32."""
    return min(seconds, key=lambda precision: seconds[precision])
