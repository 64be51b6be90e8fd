"""Loading of run folders, as their tasks do."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NoReturn

import torch

from attent.devices import device_of
from attent.errors import RunError
from attent.runs import hugging_face
from attent.runs.config import DType, read_config
from attent.runs.packed import use_dtype
from attent.search.settings import GREEDY, SearchSettings
from attent.tasks.evaluation import Results, Say
from attent.tasks.task import Task, refusal, task_of_run
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
    if hugging_face.is_translator(path):
        run = hugging_face.read(path, source_language, target_language)
        result = translator.of_run(run, device_of(device))
        use_dtype(path, run, device_of(device), dtype)
        return result
    if source_language is not None or target_language is not None:
        raise RunError(
            f"{path} has languages of its own: source_language and target_language are for folders of Hugging Face's"
        )
    task = task_of_run(path, read_config(path))
    return task.load(path, device_of(device), trust_code=trust_code, dtype=dtype)


class StoredRun:
    """A run folder, which is loaded when its tool is asked for.

    Args:
        path: of the folder.
        device: of the model.
        trust_code: whether it may name modules to import.
        dtype: the type of weights; the run's own unless given.

    Attributes:
        config: the run's config.
        task: the run's task.

    Raises:
        RunError: the config is missing, damaged, or written by a newer version, or its task is unknown.
    """

    def __init__(
        self,
        path: Path | str,
        device: torch.device | str = "cpu",
        *,
        trust_code: bool = False,
        dtype: DType | None = None,
    ) -> None:
        self.path, self.config = Path(path), read_config(path)
        self.task: Task[Any] = task_of_run(path, self.config)
        self._device, self._trust_code, self._dtype, self._tool = device, trust_code, dtype, None

    @property
    def tool(self) -> Any:
        """The translator, language model or whatever else `attent.load` returns.

        Raises:
            ArgumentError, RunError: as `attent.load`.
        """
        if self._tool is None:
            self._tool = self.task.load(self.path, self._device, trust_code=self._trust_code, dtype=self._dtype)
        return self._tool

    def refuse(self) -> NoReturn:
        """Refuse what the run cannot do.

        Raises:
            RunError: the message names what it does.
        """
        raise refusal(self.path, self.config)

    def validate(self, say: Say, search: SearchSettings = GREEDY) -> Results:
        """Evaluate the run on the validation part of its corpus; see `attent.tasks.recipe.validate`."""
        from attent.tasks.recipe import validate

        return validate(self.path, self.tool.model, say, search)
