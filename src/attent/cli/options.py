"""Options that several commands have, and settings that commands offer as options."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Generic, TypeVar

import typer

from attent import devices
from attent.cli.output import say
from attent.errors import ArgumentError
from attent.setting import Flag, Help

if TYPE_CHECKING:
    import torch

    from attent.search.settings import GenerationSettings, SearchSettings
    from attent.tasks.loading import StoredRun
    from attent.tasks.pretrained import PretrainedModel

Tool = TypeVar("Tool")
Settings = TypeVar("Settings")
# The bounds of a number in messages, by their names in pydantic.
BOUNDS = {"ge": "at least", "gt": "above", "le": "at most", "lt": "below"}
# The number of a head or layer; no model has more digits.
NUMBER = re.compile(r"[0-9]{1,9}")
AUTO = devices.AUTO
DEVICES = "auto|cpu|cuda|cuda:N|mps"
RunFolder = Annotated[Path, typer.Argument(help="The run folder.")]
RunOrModel = Annotated[
    Path, typer.Argument(metavar="RUN", help="The run folder; or a Hugging Face model, its folder or its name.")
]
JsonLines = Annotated[bool, Flag("--json"), Help("Print one JSON object per line.")]
Json = Annotated[bool, Flag("--json"), Help("Print the results as JSON.")]
TrustCode = Annotated[bool, Help("Import and run the modules that the run's config names.")]
SourceLanguage = Annotated[str | None, Help("Source language, such as zh.", metavar="CODE")]
TargetLanguage = Annotated[str | None, Help("Target language, such as en; the run's unless given.", metavar="CODE")]
Device = Annotated[str, Help("Device of the model; auto uses a GPU through CUDA if there is one.", metavar=DEVICES)]


@dataclass(frozen=True)
class Offer:
    """The settings of a class that a command offers as options, all `None` unless given.

    Args:
        module: of the class, imported when the command is called or shows its help.
        name: of the class.
        settings: names of its fields; all of them if neither these nor options are named.
        options: names of further fields, and of their options.
        overrides: whether the values replace those of other settings, such as a recipe's. Then no defaults are shown,
            and the command line refuses values out of bounds; else `Given.settings` does.
    """

    module: str
    name: str
    settings: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    overrides: bool = False


@dataclass(frozen=True)
class Given(Generic[Settings]):
    """The values of settings that were given to a command; the others keep their defaults.

    Attributes:
        kind: the class of the settings, a pydantic model.
        values: by the name of the setting.
        options: the option of each setting.
    """

    kind: type[Settings]
    values: Mapping[str, Any]
    options: Mapping[str, str]

    def settings(self, **values: Any) -> Settings:
        """Return the settings with the values that were given, and with these.

        Raises:
            ArgumentError: a value cannot be used, or two do not go together.
        """
        from pydantic import ValidationError

        try:
            return self.kind(**{**self.values, **values})
        except ValidationError as error:
            raise ArgumentError(self._message(error.errors()[0])) from error

    def _message(self, fault: Any) -> str:
        """Return the message about the first fault, by its option where it is about a single one."""
        context = fault.get("ctx", {})
        limits = [f"{words} {context[bound]:g}" for bound, words in BOUNDS.items() if bound in context]
        limits = ["a finite number"] if fault["type"] == "finite_number" else limits
        if not limits or not fault["loc"]:
            return fault["msg"].removeprefix("Value error, ")
        return f"{self.options[fault['loc'][0]]} must be {limits[0]}, got {fault['input']}"


class DType(StrEnum):
    """The types of weights."""

    float32 = "float32"
    bfloat16 = "bfloat16"
    int8 = "int8"


Weights = Annotated[DType | None, Flag("--dtype"), Help("Type of the weights; the run's own unless given.")]
SEARCH = "attent.search.settings"
Generation = Annotated[
    "Given[GenerationSettings]",
    Offer(SEARCH, "GenerationSettings", ("max_new_tokens", "temperature", "top_k", "top_p", "seed", "copies")),
]
Search = Annotated["Given[SearchSettings]", Offer(SEARCH, "SearchSettings")]
Beam = Annotated["Given[SearchSettings]", Offer(SEARCH, "SearchSettings", ("beam",))]
BeamSearch = Annotated[
    "Given[SearchSettings]", Offer(SEARCH, "SearchSettings", ("beam", "length_penalty", "length_form"))
]


@dataclass(frozen=True)
class Loading:
    """Loads runs on a device, with their own code if that is trusted."""

    device: Device = AUTO
    trust_code: TrustCode = False

    def torch_device(self) -> torch.device:
        """Return the device; see `device_of`."""
        return self._torch_device

    @cached_property
    def _torch_device(self) -> torch.device:
        # reported once
        return device_of(self.device)

    def tool(self, run: Path | str, load: Callable[..., Tool]) -> Tool:
        """Load a run folder.

        Args:
            run: the folder.
            load: loads the runs of a task, such as `attent.tasks.translation.translator.load`.

        Raises:
            ArgumentError: the model cannot be computed in this type here.
            DeviceError: this machine does not have the device.
            RunError: the run is missing, damaged, written by a newer version, has another task, or names code and is
                not trusted.
        """
        return load(run, self.torch_device(), trust_code=self.trust_code, **self._types())

    def stored_run(self, run: Path | str) -> StoredRun:
        """Return a run folder, which its task loads when it is needed.

        Raises:
            DeviceError: this machine does not have the device.
            RunError: the run is missing, damaged, written by a newer version, or its task is unknown.
        """
        from attent.tasks.loading import StoredRun

        return self.tool(run, StoredRun)

    def _types(self) -> dict[str, Any]:
        """Return the type of weights, if the command has an option for it and it was given."""
        return {}


@dataclass(frozen=True)
class TypedLoading(Loading):
    """Loads runs with weights of a type."""

    dtype: Weights = None

    def _types(self) -> dict[str, Any]:
        return {} if self.dtype is None else {"dtype": self.dtype.value}


@dataclass(frozen=True)
class PretrainedLoading(Loading):
    """Loads runs and Hugging Face models, which it may download."""

    download: Annotated[bool, Help("Download a Hugging Face model given by its name.")] = False

    def pretrained(self, model: Path) -> PretrainedModel | None:
        """Return the Hugging Face model of a folder or a name; None for what is no such model, such as a run folder.

        Raises:
            DeviceError: this machine does not have the device.
            RunError: it cannot be loaded, or there is neither a folder nor a model of this name.
        """
        from attent.runs.config import is_pretrained

        device = self.torch_device()
        if model.exists() and not is_pretrained(model):
            return None
        from attent.tasks.pretrained import find, load

        folder = find(model, download=self.download)
        return None if folder is None else load(folder, device)


def known_language(code: str | None) -> str | None:
    """Return the code of a language, or None if none is given.

    Raises:
        ArgumentError: it is no code.
    """
    from attent.text.settings import check_language

    return None if code is None else check_language(code)


def device_of(name: str) -> torch.device:
    """Return the device of a name, reported on standard error unless it is the CPU.

    A numbered GPU becomes the process' own.

    Raises:
        DeviceError: this machine does not have it.
        UnknownNameError: no device is called so.
    """
    import torch

    from attent.training.distributed import is_main_process

    device = devices.device_of(name)
    if device.type == "cuda" and device.index is not None:
        # Triton launches kernels on the current GPU, whichever their tensors are on
        torch.cuda.set_device(device)
    if device.type != "cpu" and is_main_process():
        say(f"device: {devices.described(device)}")
    return device


def head_number(head: str | None, choices: str) -> int | None:
    """Return the number of a head; None for the mean over all heads, which is meant unless one is given.

    Raises:
        ArgumentError: it is neither; the message names the choices.
    """
    if head in (None, "mean"):
        return None
    if not NUMBER.fullmatch(head):
        raise ArgumentError(f"--head must be a number from 0{choices}, got {head!r}")
    return int(head)
