"""What was measured on: the processor, the threads, the versions; and the most memory that this process has held."""

from __future__ import annotations

import os
import platform
import sys
from pathlib import Path

import torch

PROCESS, PROCESSOR = Path("/proc/self/status"), Path("/proc/cpuinfo")


def processor() -> str:
    """The processor's name."""
    lines = PROCESSOR.read_text(encoding="utf-8").splitlines() if PROCESSOR.exists() else []
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
    if PROCESS.exists():
        return next(int(line.split()[1]) for line in PROCESS.read_text().splitlines() if line.startswith("VmHWM")) / 1024
    if sys.platform == "win32":
        return None
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)


def physical() -> float | None:
    """The memory that the machine has, in MiB; None where the system does not tell."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**20
    except (AttributeError, ValueError, OSError):
        return None
