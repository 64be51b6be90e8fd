"""How much more memory a process holds for some work, which takes a process of its own to say."""

from __future__ import annotations

import multiprocessing
import signal
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from attent.experiments.benchmarking.machine import CPU, peak


def apart(function: Callable[..., Any], *arguments: Any) -> Any:
    """What a function of a module returns in a fresh process; None if that process died, as it does when memory runs out."""
    # Ctrl-C is for the process that waits, which then ends the other
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), signal.signal, (signal.SIGINT, signal.SIG_IGN)) as process:
        try:
            return process.submit(function, *arguments).result()
        except BrokenProcessPool:
            return None


def grown(work: Callable[[], object], device: torch.device = CPU) -> float | None:
    """By how much the most memory that this process has held, of a GPU or of the machine, grows while it works, in MiB.

    None where the system does not tell.
    """
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    # Linux lets the peak start again at what is held now
    elif sys.platform == "linux":
        with suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    before = peak(device)
    work()
    after = peak(device)
    return None if before is None or after is None else after - before
