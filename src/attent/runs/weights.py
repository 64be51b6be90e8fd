"""A model's tensors in a safetensors file, checked against the model before they are loaded."""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from attent.bounded import open_regular
from attent.errors import ArgumentError, DataError, RunError, refuse, reraise
from attent.models.build import build
from attent.ops.mapped import adopt, give_back
from attent.runs.old_formats import present_name

# The metadata key of a run's weights for the digests of its other files; the digest of the weights is in the config, so
# that config, weights and tokenizers are known to belong together.
FILES = "files"
# Maximum bytes of the header with the names and shapes of tensors, enough for 100,000 tensors.
LARGEST_HEADER = 2**24
# The number of values checked at a time.
CHECKED = 2**20


def tensors_of(model: torch.nn.Module) -> dict[str, Tensor]:
    """Return the saved parameters and buffers of a model by name.

    Tied tensors appear under their first name only, since the model ties them again.
    """
    named: dict[int, tuple[str, Tensor]] = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        named.setdefault(id(tensor), (name, tensor))
    return dict(named.values())


def write_tensors(tensors: Mapping[str, Tensor], file: Path, metadata: dict[str, str] | None = None) -> None:
    """Write named tensors from any device to a file, with its metadata."""
    save_file({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}, file, metadata)


def digest(file: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal.

    Raises:
        RunError: the file cannot be read.
    """
    with reraise(RunError, f"{file} cannot be read", OSError, DataError), open_regular(file) as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def files_metadata(folder: Path, names: Iterable[str]) -> dict[str, str]:
    """Return the metadata of weights about files next to them: digests in sha256sum's format; errors as `digest`."""
    return {FILES: "".join(f"{digest(folder / name)}  {name}\n" for name in names)}


def check_files(file: Path, names: Iterable[str]) -> None:
    """Check that the files next to weights match the digests in the weights, if there are any.

    Raises:
        RunError: a file differs or is missing, or the weights are missing or damaged.
    """
    metadata = metadata_of(file)
    if FILES in metadata and metadata[FILES] != (present := files_metadata(file.parent, names)[FILES]):
        written = metadata[FILES].splitlines()
        culprit = next(
            (line.partition("  ")[2] for line in present.splitlines() if line not in written), "an additional file"
        )
        raise RunError(f"{file.parent} is damaged: {culprit} does not have the SHA-256 recorded in {file.name}")


@contextmanager
def opened(file: Path) -> Iterator[safe_open]:
    """Open a file of tensors, reading only its header.

    Raises:
        RunError: the file is missing or damaged.
    """
    with reraise(RunError, f"{file} is missing or damaged", OSError, DataError, SafetensorError):
        with open_regular(file) as stream:
            if int.from_bytes(stream.read(8), "little") > LARGEST_HEADER:
                raise DataError(f"its header claims to have more than {LARGEST_HEADER:,} bytes")
        with safe_open(file, framework="pt") as tensors:
            yield tensors


def shapes_in(file: Path) -> dict[str, tuple[int, ...]]:
    """Return the shape of every tensor in a file, by name.

    Raises:
        RunError: the file is missing or damaged.
    """
    with opened(file) as tensors:
        return {present_name(name): tuple(tensors.get_slice(name).get_shape()) for name in tensors.keys()}  # noqa: SIM118 - it is no mapping


def metadata_of(file: Path) -> dict[str, str]:
    """Return the metadata of a file of tensors.

    Raises:
        RunError: the file is missing or damaged.
    """
    with opened(file) as tensors:
        return tensors.metadata() or {}


def check_shapes(expected: Mapping[str, Sequence[int]], shapes: Mapping[str, Sequence[int]], file: Path) -> None:
    """Check that a file's tensors have the expected names and shapes.

    Raises:
        RunError: a tensor is missing, unexpected, or has another shape.
    """
    if shapes.keys() != expected.keys():
        missing, extra = sorted(expected.keys() - shapes.keys()), sorted(shapes.keys() - expected.keys())
        raise RunError(
            f"{file} is damaged: "
            + (f"{missing[0]} is missing" if missing else f"{extra[0]} has no place in the model")
        )
    refuse(
        *(
            (
                tuple(shapes[name]) != tuple(shape),
                f"{file} is damaged: {name} must be {tuple(shape)}, got {tuple(shapes[name])}",
            )
            for name, shape in expected.items()
        ),
        kind=RunError,
    )


def read_tensors(file: Path, like: Callable[[str], Tensor] | None = None) -> dict[str, Tensor]:
    """Read every tensor in a file, by name.

    Args:
        file: the file.
        like: returns, for a name, a tensor with the expected shape and kind of number; stored scalars are not checked.
            By default, nothing is checked.

    Raises:
        RunError: the file is missing or damaged, or a tensor has another shape or kind of number, or values that are
            not finite.
    """
    if like is not None:
        shapes = {name: shape for name, shape in shapes_in(file).items() if shape}
        check_shapes({name: like(name).shape for name in shapes}, shapes, file)
    with opened(file) as stored:
        tensors = {present_name(name): stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118 - it is no mapping
    if like is not None:
        _check_numbers({name: tensor for name, tensor in tensors.items() if tensor.shape}, like, file)
    return tensors


@torch.no_grad()
def fill(tensors: Mapping[str, Tensor], file: Path) -> None:
    """Copy a file's tensors into those with the same names, after checking all of them.

    Raises:
        RunError: as `fitting`.
    """
    for name, tensor in fitting(tensors, file).items():
        tensors[name].copy_(tensor)


def map_into(model: nn.Module, file: Path) -> None:
    """Map a file's tensors into a model without copying them, after checking all of them.

    Raises:
        RunError: as `fitting`.
    """
    tensors = tensors_of(model)
    read = fitting(tensors, file)
    adopt(model, {tensor: read[name] for name, tensor in tensors.items()})


def fitting(expected: Mapping[str, Tensor], file: Path) -> dict[str, Tensor]:
    """Read a file's tensors, and check them against those with the same names.

    Raises:
        RunError: as `check_shapes`; the file is missing or damaged, or a tensor has another kind of number or values
            that are not finite.
    """
    check_shapes({name: tensor.shape for name, tensor in expected.items()}, shapes_in(file), file)
    tensors = read_tensors(file)
    _check_numbers(tensors, expected.__getitem__, file)
    return tensors


def _check_numbers(tensors: Mapping[str, Tensor], like: Callable[[str], Tensor], file: Path) -> None:
    """Check that a file's tensors have the expected kinds of numbers, and finite values."""
    for name, tensor in tensors.items():
        if tensor.is_floating_point() != like(name).is_floating_point():
            raise RunError(f"{file} is damaged: {name} must be {like(name).dtype}, got {tensor.dtype}")
        # in pieces whose memory is released again, since the tensors are mapped from the file
        for numbers in tensor.flatten().split(CHECKED):
            # a sum is read faster; it is finite only if all numbers are
            is_finite = bool(numbers.sum().isfinite() or numbers.isfinite().all())
            give_back(numbers)
            if not is_finite:
                raise RunError(f"{file} is damaged: {name} contains values that are not finite")


class _Uninitialized(TorchFunctionMode):
    """Skips `normal_` on the meta device, where it has no effect but takes 3 s to import PyTorch's compiler."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if function in (Tensor.normal_, nn.init.normal_):
            return args[0] if args else kwargs["tensor"]
        return function(*args, **kwargs)


def check_sizes(settings: Any, inputs: int, outputs: int, file: Path) -> nn.Module:
    """Check that a model with these settings has the tensors in a file, before allocating memory for either.

    Args:
        settings: the settings of a model of any kind.
        inputs: see `attent.models.build.build`.
        outputs: see `attent.models.build.build`.
        file: the file of weights; only its header is read.

    Returns:
        The model, on the meta device.

    Raises:
        ArgumentError: no model can have these sizes.
        RunError: the file is missing or damaged, or belongs to another model.
    """
    shapes = shapes_in(file)
    # each layer has at least one tensor, and building a layer takes time even without memory
    refuse(
        *(
            (value > len(shapes), f"{key} = {value:,}, and {file.name} has {len(shapes):,} tensors")
            for key, value in settings
            if key.endswith("layers")
        )
    )
    try:
        with torch.device("meta"), _Uninitialized():
            model = build(settings, inputs, outputs)
    except (TypeError, RuntimeError, OverflowError) as error:
        raise ArgumentError(f"sizes too large for memory: {str(error).splitlines()[0]}") from error
    check_shapes({name: tensor.shape for name, tensor in tensors_of(model).items()}, shapes, file)
    return model


def is_all_saved(model: nn.Module) -> bool:
    """Return whether saving a model's tensors saves all tensors that it computes with.

    This is not the case if it has unsaved buffers, or tensors as plain attributes.
    """
    buffers = {name for name, _ in model.named_buffers(remove_duplicate=False)}
    return buffers <= {*model.state_dict()} and not any(
        isinstance(value, Tensor) for part in model.modules() for value in vars(part).values()
    )
