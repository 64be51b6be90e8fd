"""Where a model computes: devices by name.

PyTorch is imported when a device is asked for, so that commands know the names at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from attent.errors import DeviceError, UnknownNameError

if TYPE_CHECKING:
    import torch

AUTO = "auto"
KINDS = (AUTO, "cpu", "cuda", "mps")


def device_of(name: str | torch.device = AUTO) -> torch.device:
    """The device of a name, which this machine has.

    Args:
        name: "cpu"; "cuda" for a GPU, or "cuda:1" for the one of that number; "mps"; "auto" for a GPU where PyTorch sees one through
            CUDA or ROCm, else the CPU. A `torch.device` is returned as it is.

    Raises:
        DeviceError: this machine has no such device; the message lists those that it has.
        UnknownNameError: no device is called so.
    """
    import torch

    if isinstance(name, torch.device):
        return name
    check_name(name)
    present = devices()
    if name == AUTO:
        return torch.device("cuda" if "cuda:0" in present else "cpu")
    if (name if name != "cuda" else "cuda:0") not in present:
        reason = "" if torch.backends.cuda.is_built() or not name.startswith("cuda") else "; this PyTorch is built without CUDA"
        raise DeviceError(f"this machine has no device {name!r}: there is {', '.join(present)}{reason}")
    return torch.device(name)


def check_name(name: str) -> None:
    """Check that a device may be called so, on whichever machine.

    Raises:
        UnknownNameError: no device is called so.
    """
    kind, colon, number = name.partition(":")
    if kind not in KINDS or (colon and (kind != "cuda" or not number.isdecimal())):
        raise UnknownNameError("device", name, (*KINDS, "cuda:0"))


def devices() -> list[str]:
    """The names of the devices that this machine has."""
    import torch

    gpus = [f"cuda:{number}" for number in range(torch.cuda.device_count())] if torch.cuda.is_available() else []
    return ["cpu", *gpus, *(["mps"] if torch.backends.mps.is_available() else [])]


def synchronize(device: torch.device) -> None:
    """Wait until a GPU has done all that it was given; the CPU is never behind."""
    import torch

    if device.type in ("cuda", "mps"):
        getattr(torch, device.type).synchronize()


def described(device: torch.device) -> str:
    """A device for a person: its name, and what a GPU is sold as."""
    import torch

    if device.type != "cuda":
        return str(device)
    number = torch.cuda.current_device() if device.index is None else device.index
    return f"cuda:{number} ({torch.cuda.get_device_name(number)})"
