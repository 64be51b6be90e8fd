"""What was measured on: the processor, the threads, the versions; and the most memory that this process has held."""

from __future__ import annotations

import os
import platform
import sys
from pathlib import Path

import torch


def processor() -> str:
    """The processor's name."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def machine() -> dict[str, str | int]:
    """The processor, how many cores this process may use, the threads that torch takes, and the versions."""
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    return {
        "processor": processor(),
        "cores": cores,
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "system": platform.system(),
    }


def peak() -> float | None:
    """The most memory this process has held, in MiB; None where the system does not tell."""
    # what resource tells includes the process that this one came from
    try:
        lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    for line in lines:
        if line.startswith("VmHWM"):
            return int(line.split()[1]) / 1024
    try:
        import resource
    except ImportError:
        return None
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)


def physical() -> float | None:
    """The memory that the machine has, in MiB; None where the system does not tell."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**20
    except (AttributeError, ValueError, OSError):
        return None
