"""From a run folder to what its task makes of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from attent.decoding import classifier, fill_mask, translator
from attent.decoding.translator import Translator
from attent.devices import device_of
from attent.errors import RunError
from attent.runs.config import Task, read_config

LOADERS: dict[Task, Callable[..., Any]] = {
    "translate": translator.load,
    "fill-mask": fill_mask.load,
    "classify": classifier.load,
}


def load(path: Path | str, device: torch.device | str = "cpu", trust_code: bool = False) -> Translator | Any:
    """What a run folder holds: a `Translator`, a `FillMask` or a `Classifier`, by what the run does.

    Args:
        path: the run folder.
        device: where the model is to be: a device, or a name of `attent.devices.device_of`, such as "auto".
        trust_code: whether the run may name modules to import, such as the score "my.module:Class"; their code then runs.

    Raises:
        DeviceError: this machine does not have the device.
        RunError: the folder is missing, damaged, or written by a newer version, or names code and is not trusted.
    """
    device, task = device_of(device), read_config(path).task
    if task not in LOADERS:
        raise RunError(f"{path} cannot be loaded: nothing is known of the task {task!r}")
    return LOADERS[task](path, device, trust_code=trust_code)
