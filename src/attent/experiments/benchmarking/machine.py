"""What was measured on: the processor, the threads, the versions; and the most memory that this process has held."""

from __future__ import annotations

import os
import platform
import sys
from pathlib import Path

import torch

from attent.devices import described

CPU = torch.device("cpu")


def processor() -> str:
    """The processor's name."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def machine(device: torch.device = CPU) -> dict[str, str | int]:
    """The processor, how many cores this process may use, the threads that torch takes, the GPU if that computes, and the versions."""
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    return {
        "processor": processor(),
        "cores": cores,
        "threads": torch.get_num_threads(),
        **({} if device == CPU else {"device": described(device)}),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "system": platform.system(),
    }


def peak(device: torch.device = CPU) -> float | None:
    """The most memory this process has held, of a GPU or of the machine, in MiB; None where the system does not tell."""
    if device.type != "cpu":
        return torch.cuda.max_memory_allocated(device) / 2**20 if device.type == "cuda" else None
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


def physical(device: torch.device = CPU) -> float | None:
    """The memory that a GPU or the machine has, in MiB; None where the system does not tell."""
    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).total_memory / 2**20
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**20
    except (AttributeError, ValueError, OSError):
        return None
