"""`attent.load`: from a run folder to what its task makes of it, such as a translator."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from attent.devices import device_of
from attent.errors import RunError
from attent.runs.config import DType, read_config
from attent.runs.hugging_face import families
from attent.runs.packed import use_dtype
from attent.tasks.task import task_of_run
from attent.tasks.translation import translator
from attent.tasks.translation.translator import Translator


def load(
    path: Path | str,
    device: torch.device | str = "cpu",
    trust_code: bool = False,
    dtype: DType | None = None,
    *,
    source_language: str | None = None,
    target_language: str | None = None,
) -> Translator | Any:
    """Load a run folder as its task does: as a `Translator`, a `FillMask`, a `TextGenerator` or a `Classifier`.

    Args:
        path: the run folder; or a folder of Hugging Face's Marian, M2M100 or NLLB, which `attent import` makes a run
            of.
        device: a device, or a name of `attent.devices.device_of`, such as "auto".
        trust_code: True if the run may import the modules that it names, such as the score "my.module:Class"; their
            code then runs.
        dtype: the type of weights in which a Transformer searches on a CPU, "float32", "bfloat16" or "int8"; the run's
            own unless given.
        source_language: of the sources, for M2M100 and NLLB.
        target_language: to translate into, for M2M100, NLLB and those of Marian's models that translate into several.

    Raises:
        ArgumentError: the model cannot be computed in this type here.
        DeviceError: this machine does not have the device.
        RunError: the folder is missing, damaged, or written by a newer version, or names code and is not trusted; or
            attent cannot express the model; or a language is missing, or given for a run.
    """
    if families.is_translator(path):
        run = families.read(path, source_language, target_language)
        result = translator.of_run(run, device_of(device))
        use_dtype(path, run, device_of(device), dtype)
        return result
    if source_language is not None or target_language is not None:
        raise RunError(
            f"{path} has languages of its own: source_language and target_language are for folders of Hugging Face's"
        )
    task = task_of_run(path, read_config(path))
    return task.load(path, device_of(device), trust_code=trust_code, dtype=dtype)
