"""A model's parameters in a safetensors file, read strictly."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from attent.errors import RunError


def tensors_of(model: torch.nn.Module) -> dict[str, Tensor]:
    """Parameters and buffers; one that serves in two places under its first name only, for the model ties it again itself."""
    named: dict[int, tuple[str, Tensor]] = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        named.setdefault(id(tensor), (name, tensor))
    return dict(named.values())


def write_tensors(tensors: Mapping[str, Tensor], file: Path) -> None:
    """Write tensors under their names, wherever they lie."""
    save_file({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}, file)


def read_tensors(file: Path) -> dict[str, Tensor]:
    """Every tensor in a file, by name.

    Raises:
        RunError: the file is missing or damaged.
    """
    try:
        with safe_open(file, framework="pt") as tensors:
            return {name: tensors.get_tensor(name) for name in tensors.keys()}  # noqa: SIM118 - it is no mapping
    except (OSError, SafetensorError) as error:
        raise RunError(f"{file} is missing or damaged: {error}") from error


@torch.no_grad()
def fill(places: Mapping[str, Tensor], file: Path) -> None:
    """Copy a file's tensors into those of the same names, once all of them are found to fit.

    Raises:
        RunError: as `fitting`.
    """
    for name, tensor in fitting(places, file).items():
        places[name].copy_(tensor)


def fitting(places: Mapping[str, Tensor], file: Path) -> dict[str, Tensor]:
    """A file's tensors, all of which fit those of the same names.

    Raises:
        RunError: the file is missing or damaged, or one of its tensors has no place, or a place none, or another shape.
    """
    tensors = read_tensors(file)
    if tensors.keys() != places.keys():
        missing, extra = sorted(places.keys() - tensors.keys()), sorted(tensors.keys() - places.keys())
        raise RunError(f"{file} is damaged: " + (f"{missing[0]} is missing" if missing else f"{extra[0]} has no place in the model"))
    for name, place in places.items():
        if tensors[name].shape != place.shape:
            raise RunError(f"{file} is damaged: {name} must be {tuple(place.shape)}, got {tuple(tensors[name].shape)}")
    return tensors
