"""What every command that reads a run is asked in the same words: where its model computes, and whether its code is trusted."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from attent import devices
from attent.cli.output import say

if TYPE_CHECKING:
    import torch

    from attent.runs.config import Task

# A number as head or layer of an option; more digits are none of a model.
NUMBER = re.compile(r"[0-9]{1,9}")
DEVICES = "auto|cpu|cuda|cuda:N|mps"
Device = Annotated[str, typer.Option(metavar=DEVICES, help="Where the model computes; auto takes a GPU through CUDA where there is one.")]
TrustCode = Annotated[bool, typer.Option("--trust-code", help="Import and run the modules that the run's config names.")]


def device_of(name: str) -> torch.device:
    """The device of a name, said on standard error unless it is the CPU; a GPU of that number becomes the process' own.

    Raises:
        DeviceError: this machine does not have it.
        UnknownNameError: no device is called so.
    """
    import torch

    from attent.training.distributed import is_main_process

    device = devices.device_of(name)
    if device.type == "cuda" and device.index is not None:
        # where Triton launches kernels, whatever GPU their tensors are on
        torch.cuda.set_device(device)
    if device.type != "cpu" and is_main_process():
        say(f"device: {devices.described(device)}")
    return device


def loaded(run: Path | str, device: torch.device, task: Task | None = None, *, trust_code: bool) -> Any:
    """The translator, filler or classifier that a run folder holds.

    Args:
        run: the folder.
        device: where its model computes.
        task: what it must do; anything unless given.
        trust_code: whether it may name modules to import.

    Raises:
        RunError: it is missing, damaged, written by a newer version, does something else, or names code and is not trusted.
    """
    from attent.decoding.loading import LOADERS, load

    return (load if task is None else LOADERS[task])(run, device, trust_code=trust_code)
