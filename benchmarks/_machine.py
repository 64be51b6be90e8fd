"""Measuring the memory of a process, a GPU, or a single computation."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from _report import CPU


def peak_memory(device: torch.device = CPU) -> float | None:
    """Return the peak memory of this process, on a GPU or on the machine, in MiB.

    None if the system does not report it.
    """
    if device.type != "cpu":
        return torch.cuda.max_memory_allocated(device) / 2**20 if device.type == "cuda" else None
    # resource's number includes the process that started this one
    for line in _lines("/proc/self/status") if sys.platform == "linux" else []:
        if line.startswith("VmHWM"):
            return int(line.split()[1]) / 1024
    try:
        import resource
    except ImportError:
        return None
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)


def total_memory(device: torch.device = CPU) -> float | None:
    """Return the total memory of a GPU or the machine in MiB; None if the system does not report it."""
    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).total_memory / 2**20
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**20
    except (AttributeError, ValueError, OSError):
        return None


def run_in_process(function: Callable[..., Any], *arguments: Any) -> Any:
    """Run a function of a module in a fresh process.

    Return None if that process died, for example because memory ran out.
    """
    # Ctrl-C is handled by the waiting process, which then ends the other
    with ProcessPoolExecutor(
        1, multiprocessing.get_context("spawn"), signal.signal, (signal.SIGINT, signal.SIG_IGN)
    ) as process:
        try:
            return process.submit(function, *arguments).result()
        except BrokenProcessPool:
            return None


def memory_growth(work: Callable[[], object], device: torch.device = CPU) -> float | None:
    """Return by how many MiB the peak memory of this process grows during the work.

    None if the system does not report it.
    """
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    # Linux can reset the peak to the current memory
    elif sys.platform == "linux":
        with suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    before = peak_memory(device)
    work()
    after = peak_memory(device)
    return None if before is None or after is None else after - before


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
