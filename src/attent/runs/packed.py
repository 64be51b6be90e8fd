"""Models of runs in bfloat16 or 8 bits.

Weights are packed on loading, or mapped from the file written by `attent quantize`.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import cast, get_args

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from attent import system
from attent.errors import ArgumentError, RunError
from attent.models import transformer_packing
from attent.models.model import Model
from attent.ops import packed_linear
from attent.ops.packed_linear import WeightType
from attent.runs.config import DType, RunConfig, write_config
from attent.runs.durable import new_file
from attent.runs.folder import MAX_HASHED, MODEL, Run
from attent.runs.weights import check_shapes, digest, metadata_of, read_tensors, shapes_in

# The format number in the files' metadata.
FORMAT = "1"
# In the metadata of a file: activations are rounded by factors in it.
FIXED = "fixed"
# Alignment of the tensors in a file, in bytes, so that numbers do not straddle cache lines.
ALIGNMENT = 64


def packed_file(kind: WeightType) -> str:
    """Return the name of the file with a run's packed weights."""
    return f"model.{kind.name.lower()}.safetensors"


def use_dtype(path: Path | str, run: Run, device: torch.device | str, dtype: DType | None = None) -> None:
    """Set the type of the weights that a run's model computes with; later calls of `train` and `eval` pack them again.

    Args:
        path: the run folder.
        run: the run read from it.
        device: the device of the model; devices other than the CPU compute in float32.
        dtype: the type; by default the run's own, or float32 if that is not available.

    Raises:
        ArgumentError: the model cannot be computed in this type on this machine.
        RunError: the file of packed weights is damaged.
    """
    if dtype is not None and dtype not in get_args(DType):
        raise ArgumentError(f"dtype must be {', '.join(get_args(DType)[:-1])} or {get_args(DType)[-1]}, got {dtype!r}")
    model, kind = run.model, WeightType[(dtype or run.config.dtype).upper()]
    if kind is WeightType.FLOAT32:
        return
    if problem := _problem(model, torch.device(device)):
        if dtype is not None:
            raise ArgumentError(f"{path} cannot be computed in {dtype}: {problem}")
        return
    packed_linear.set_kind(model, kind)
    _adopt(Path(path), run.config, model, kind)


def _problem(model: Model, device: torch.device) -> str | None:
    if device.type != "cpu":
        return f"it requires the CPU, and the device is {device}"
    if not packed_linear.is_there():
        return "it requires the compiled extension, which this installation lacks"
    return None if transformer_packing.parts(model) else "it requires a Transformer with dot products and softmax"


def _adopt(path: Path, config: RunConfig, model: Model, kind: WeightType) -> None:
    """Map the packed weights of a run folder, if they were made from its current weights; on Windows, copy them."""
    file, parts = path / packed_file(kind), transformer_packing.parts(model)
    weights, own = config.digests.get(MODEL), config.digests.get(packed_file(kind))
    if weights is None or own is None or not file.is_file():
        return
    metadata = metadata_of(file)
    if metadata.get("weights") != weights:
        return
    if metadata.get("activations") == FIXED:
        packed_linear.set_kind(model, WeightType.INT8_FIXED)
        parts = transformer_packing.parts(model)
    if metadata.get("format") != FORMAT:
        raise RunError(
            f"{file} has format {metadata.get('format')!r}, but this attent reads {FORMAT}: rewrite it with "
            f"attent quantize {path}"
        )
    if file.stat().st_size <= MAX_HASHED and digest(file) != own:
        raise RunError(
            f"{file} is damaged: its SHA-256 does not match config.json; rewrite it with attent quantize {path}"
        )
    check_shapes(
        {name: (packed_linear.size_of(pieces()),) for name, (_, pieces) in parts.items()}, shapes_in(file), file
    )
    for name, tensor in read_tensors(file).items():
        if tensor.dtype != torch.uint8:
            raise RunError(f"{file} is damaged: {name} must be bytes, got {tensor.dtype}")
        packed_linear.adopt(parts[name][0], tensor.clone() if system.IS_WINDOWS else tensor)


def write_packed(path: Path, run: Run, dtype: DType, factors: Mapping[str, float] | None = None) -> int:
    """Set a run's default type of weights, write the packed weights, and return their size in bytes.

    Args:
        path: the run folder, locked by `held`.
        run: the run read from it.
        dtype: the type; float32 removes the files of other types.
        factors: the factors by which the inputs of layers are rounded to 8 bits, by the names of their weights; by
            default they are computed for each row.

    Raises:
        ArgumentError: the model cannot be computed in this type on this machine.
        RunError: the folder cannot be written.
    """
    kind, config, size = WeightType[dtype.upper()], run.config, 0
    digests = {name: value for name, value in config.digests.items() if name not in map(packed_file, WeightType)}
    if kind is not WeightType.FLOAT32:
        if problem := _problem(run.model, torch.device("cpu")):
            raise ArgumentError(f"{path} cannot be computed in {dtype}: {problem}")
        packed_linear.set_kind(run.model, WeightType.INT8_FIXED if factors else kind)
        for name, factor in (factors or {}).items():
            packed_linear.set_factor(cast(nn.Linear, run.model.get_submodule(name.removesuffix(".weight"))), factor)
        tensors = {
            name: packed_linear.packed_weights(module, pieces)
            for name, (module, pieces) in transformer_packing.parts(run.model).items()
        }
        digests[MODEL] = digest(path / MODEL)
        with new_file(path / packed_file(kind)) as file:
            metadata = {"format": FORMAT, "weights": digests[MODEL]} | ({"activations": FIXED} if factors else {})
            _write(tensors, metadata, file)
        digests[packed_file(kind)], size = digest(path / packed_file(kind)), (path / packed_file(kind)).stat().st_size
    write_config(config.model_copy(update={"dtype": dtype, "digests": digests}), path)
    for stale in WeightType:
        if stale is not kind:
            (path / packed_file(stale)).unlink(missing_ok=True)
    return size


def _write(tensors: dict[str, Tensor], metadata: dict[str, str], file: Path) -> None:
    """Write byte tensors by name, padding the header so that the first tensor is aligned."""
    save_file(tensors, file, metadata | {"padding": ""})
    with file.open("rb") as stream:
        header = 8 + int.from_bytes(stream.read(8), "little")
    save_file(tensors, file, metadata | {"padding": " " * (-header % ALIGNMENT)})
