"""A model's parameters in a safetensors file, read strictly."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from attent.bounded import open_regular
from attent.errors import DataError, RunError

# Bytes that the names and shapes of a file's tensors may have: those of 100,000 tensors.
LARGEST_HEADER = 2**24


def tensors_of(model: torch.nn.Module) -> dict[str, Tensor]:
    """Parameters and buffers; one that serves in two places under its first name only, for the model ties it again itself."""
    named: dict[int, tuple[str, Tensor]] = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        named.setdefault(id(tensor), (name, tensor))
    return dict(named.values())


def write_tensors(tensors: Mapping[str, Tensor], file: Path) -> None:
    """Write tensors under their names, wherever they lie."""
    save_file({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}, file)


def digest(file: Path) -> str:
    """The SHA-256 of a file in hexadecimal.

    Raises:
        RunError: it cannot be read.
    """
    try:
        with open_regular(file) as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except (OSError, DataError) as error:
        raise RunError(f"{file} cannot be read: {getattr(error, 'strerror', error)}") from error


@contextmanager
def _opened(file: Path) -> Iterator[safe_open]:
    """A file of tensors, of which the header alone has been read."""
    try:
        with open_regular(file) as stream:
            if int.from_bytes(stream.read(8), "little") > LARGEST_HEADER:
                raise DataError(f"its header says that it has more than {LARGEST_HEADER:,} bytes")
        with safe_open(file, framework="pt") as tensors:
            yield tensors
    except (OSError, DataError, SafetensorError) as error:
        raise RunError(f"{file} is missing or damaged: {error}") from error


def shapes_in(file: Path) -> dict[str, tuple[int, ...]]:
    """The shape of every tensor in a file, by name.

    Raises:
        RunError: the file is missing or damaged.
    """
    with _opened(file) as tensors:
        return {name: tuple(tensors.get_slice(name).get_shape()) for name in tensors.keys()}  # noqa: SIM118 - it is no mapping


def check_shapes(expected: Mapping[str, Sequence[int]], shapes: Mapping[str, Sequence[int]], file: Path) -> None:
    """Check that a file's tensors are those that are expected, in names and in shapes.

    Raises:
        RunError: one has no place, or a place none, or another shape.
    """
    if shapes.keys() != expected.keys():
        missing, extra = sorted(expected.keys() - shapes.keys()), sorted(shapes.keys() - expected.keys())
        raise RunError(f"{file} is damaged: " + (f"{missing[0]} is missing" if missing else f"{extra[0]} has no place in the model"))
    for name, shape in expected.items():
        if tuple(shapes[name]) != tuple(shape):
            raise RunError(f"{file} is damaged: {name} must be {tuple(shape)}, got {tuple(shapes[name])}")


def read_tensors(file: Path, like: Callable[[str], Tensor] | None = None) -> dict[str, Tensor]:
    """Read every tensor in a file, by name.

    Args:
        file: the file.
        like: the tensor whose shape that of a name must have, unless it is a single number; any shape unless given.

    Raises:
        RunError: the file is missing or damaged, or a tensor has another shape or kind of number, or values that are not finite.
    """
    if like is not None:
        shapes = {name: shape for name, shape in shapes_in(file).items() if shape}
        check_shapes({name: like(name).shape for name in shapes}, shapes, file)
    with _opened(file) as opened:
        tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118 - it is no mapping
    if like is not None:
        _check_numbers({name: tensor for name, tensor in tensors.items() if tensor.shape}, like, file)
    return tensors


@torch.no_grad()
def fill(places: Mapping[str, Tensor], file: Path) -> None:
    """Copy a file's tensors into those of the same names, once all of them are seen to fit.

    Raises:
        RunError: as `fitting`.
    """
    for name, tensor in fitting(places, file).items():
        places[name].copy_(tensor)


def fitting(places: Mapping[str, Tensor], file: Path) -> dict[str, Tensor]:
    """A file's tensors, all of which fit those of the same names.

    Raises:
        RunError: as `check_shapes`; the file is missing or damaged, or a tensor has another kind of number, or values that are not finite.
    """
    check_shapes({name: place.shape for name, place in places.items()}, shapes_in(file), file)
    tensors = read_tensors(file)
    _check_numbers(tensors, places.__getitem__, file)
    return tensors


def _check_numbers(tensors: Mapping[str, Tensor], like: Callable[[str], Tensor], file: Path) -> None:
    """Check that a file's tensors have the kind of number that they must have, and finite values."""
    for name, tensor in tensors.items():
        if tensor.is_floating_point() != like(name).is_floating_point():
            raise RunError(f"{file} is damaged: {name} must be of {like(name).dtype}, got {tensor.dtype}")
        if not tensor.isfinite().all():
            raise RunError(f"{file} is damaged: {name} holds values that are not finite")
