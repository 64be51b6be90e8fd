"""Loading of run folders, by task."""

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn

import torch

from attent.devices import device_of
from attent.errors import RunError
from attent.runs import hugging_face
from attent.runs.config import DType, read_config
from attent.search.settings import GREEDY, SearchSettings
from attent.tasks.evaluation import Results, Say
from attent.tasks.from_run import tool_of_run
from attent.tasks.task import Task, refusal, task_of_run
from attent.tasks.translation import translator
from attent.tasks.translation.translator import Translator


def load(
    path: Path | str | Sequence[Path | str],
    device: torch.device | str = "cpu",
    trust_code: bool = False,
    dtype: DType | None = None,
    *,
    source_language: str | None = None,
    target_language: str | None = None,
) -> Translator | Any:
    """Load a run folder as the class of its task: a `Translator`, a `FillMask`, a `TextGenerator` or a `Classifier`.

    Args:
        path: the run folder, or the folder of a Hugging Face Marian, M2M100 or NLLB model, which `attent import`
            converts to a run; or several run folders of translators with the same vocabularies, whose distributions are
            averaged.
        device: a device, or a name accepted by `attent.devices.device_of`, such as "auto".
        trust_code: True if the run may import the modules that it names, such as the score "my.module:Class"; their
            code then runs.
        dtype: weight type of a Transformer's search on a CPU: "float32", "bfloat16" or "int8"; the run's own by
            default.
        source_language: language of the sources, for M2M100 and NLLB.
        target_language: language to translate into, for M2M100, NLLB and Marian models with several target languages.

    Raises:
        ArgumentError: this machine cannot compute the model with this weight type.
        DeviceError: this machine does not have the device.
        RunError: the folder is missing, damaged, or written by a newer version; it names code and is not trusted;
            attent does not support the model; or a language is missing, or is given for a run folder.
    """
    if not isinstance(path, Path | str):
        return translator.load_ensemble(path, device_of(device), trust_code=trust_code, dtype=dtype)
    if hugging_face.is_translator(path):
        run = hugging_face.read(path, source_language, target_language)
        return tool_of_run(path, run, translator.of_run, device_of(device), dtype)
    if source_language is not None or target_language is not None:
        raise RunError(
            f"{path} has its own languages: source_language and target_language are for Hugging Face folders"
        )
    task = task_of_run(path, read_config(path))
    return task.load(path, device_of(device), trust_code=trust_code, dtype=dtype)


class StoredRun:
    """A run folder, or several of an ensemble, loaded when its tool is first used.

    Args:
        path: path of the folder; or those of translators with the same vocabularies, whose distributions are averaged.
        device: device of the model.
        trust_code: whether the run may name modules to import.
        dtype: weight type; the run's own by default.

    Attributes:
        config: the run's config.
        task: the run's task.

    Raises:
        RunError: the config is missing, damaged, or written by a newer version, or its task is unknown.
    """

    def __init__(
        self,
        path: Path | str | Sequence[Path | str],
        device: torch.device | str = "cpu",
        *,
        trust_code: bool = False,
        dtype: DType | None = None,
    ) -> None:
        self.paths = [Path(path)] if isinstance(path, Path | str) else [*map(Path, path)]
        self.path, self.config = self.paths[0], read_config(self.paths[0])
        self.task: Task[Any] = task_of_run(self.path, self.config)
        self._device, self._trust_code, self._dtype = device, trust_code, dtype

    @cached_property
    def tool(self) -> Any:
        """The translator, language model or other tool that `attent.load` returns.

        Raises:
            ArgumentError, RunError: as `attent.load`.
        """
        options: dict[str, Any] = {"trust_code": self._trust_code, "dtype": self._dtype}
        if len(self.paths) > 1:
            return translator.load_ensemble(self.paths, self._device, **options)
        return self.task.load(self.path, self._device, **options)

    def refuse(self) -> NoReturn:
        """Raise the error for a command that the run does not support.

        Raises:
            RunError: always; the message names the command that suits the run.
        """
        raise refusal(self.path, self.config)

    def validate(self, say: Say, search: SearchSettings = GREEDY) -> Results:
        """Evaluate the run on the validation part of its corpus; see `attent.tasks.recipe.validate`."""
        from attent.tasks.recipe import validate

        return validate(self.path, self.tool.model, say, search)
