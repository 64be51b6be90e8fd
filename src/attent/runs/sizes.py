"""Whether a model's settings are those of a file of weights, before any memory is taken for them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from attent.errors import ArgumentError
from attent.models.build import build
from attent.runs.weights import check_shapes, shapes_in, tensors_of


class _Uninitialized(TorchFunctionMode):
    """Leaves out normal_, for which PyTorch imports its compiler, 3 seconds, where there is no memory to fill."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if function in (Tensor.normal_, nn.init.normal_):
            return args[0] if args else kwargs["tensor"]
        return function(*args, **kwargs)


def check_sizes(settings: Any, inputs: int, outputs: int, file: Path) -> None:
    """Check that the model of these settings has the tensors of a file, in names and in shapes.

    Args:
        settings: of a model of any kind.
        inputs: as those of `attent.models.settings.build`.
        outputs: the same.
        file: the weights; of its tensors only the header is read.

    Raises:
        ArgumentError: there is no model of these sizes.
        RunError: the file is missing or damaged, or of another model.
    """
    shapes = shapes_in(file)
    for key, value in settings:
        # each layer has a tensor at least, and building it takes time even without memory
        if key.endswith("layers") and value > len(shapes):
            raise ArgumentError(f"{key} = {value:,}, and {file.name} has {len(shapes):,} tensors")
    try:
        with torch.device("meta"), _Uninitialized():
            model = build(settings, inputs, outputs)
    except (TypeError, RuntimeError, OverflowError) as error:
        raise ArgumentError(f"sizes that no memory holds: {str(error).splitlines()[0]}") from error
    check_shapes({name: tensor.shape for name, tensor in tensors_of(model).items()}, shapes, file)
