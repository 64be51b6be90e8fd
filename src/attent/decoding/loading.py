"""`attent.load`: from a run folder to a translator, a language model, masked or not, or a classifier."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from attent.decoding import classifier, fill_mask, text_generator, translator
from attent.decoding.translator import Translator
from attent.devices import device_of
from attent.errors import RunError
from attent.runs.config import DType, Task, read_config

LOADERS: dict[Task, Callable[..., Any]] = {
    "translate": translator.load,
    "fill-mask": fill_mask.load,
    "classify": classifier.load,
    "text-generation": text_generator.load,
}


def load(path: Path | str, device: torch.device | str = "cpu", trust_code: bool = False, dtype: DType | None = None) -> Translator | Any:
    """Load a run folder as a `Translator`, a `FillMask`, a `TextGenerator` or a `Classifier`, by the run's task.

    Args:
        path: the run folder.
        device: a device, or a name of `attent.devices.device_of`, such as "auto".
        trust_code: True if the run may import the modules that it names, such as the score "my.module:Class"; their code then runs.

        dtype: the type of weights in which a Transformer searches on a CPU, "float32", "bfloat16" or "int8"; the run's own unless given.

    Raises:
        ArgumentError: the model cannot be computed in this type here.
        DeviceError: this machine does not have the device.
        RunError: the folder is missing, damaged, or written by a newer version, or names code and is not trusted.
    """
    device, task = device_of(device), read_config(path).task
    if task not in LOADERS:
        raise RunError(f"{path} cannot be loaded: nothing is known of the task {task!r}")
    return LOADERS[task](path, device, trust_code=trust_code, dtype=dtype)
