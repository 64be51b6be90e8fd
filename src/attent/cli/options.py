"""Options shared by several commands, and settings that commands offer as options."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
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
    from attent.tasks.text_generation.continuation import ContinuesText

Tool = TypeVar("Tool")
Settings = TypeVar("Settings")
# Wording of a number's bounds in messages, by pydantic's names.
BOUNDS = {"ge": "at least", "gt": "above", "le": "at most", "lt": "below"}
# The number of a head or layer, at most nine digits.
NUMBER = re.compile(r"[0-9]{1,9}")
# Bytes, with a decimal or a binary prefix.
SIZE = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,9})?) ?(?:([KMGT])(i?))?B?", re.IGNORECASE | re.ASCII)
AUTO = devices.AUTO
DEVICES = "auto|cpu|cuda|cuda:N|mps"
RunFolder = Annotated[Path, typer.Argument(help="The run folder.")]
Runs = Annotated[list[Path] | None, typer.Argument(metavar="RUN", help="Run folders.")]
RunOrModel = Annotated[
    Path, typer.Argument(metavar="RUN", help="A run folder, or a Hugging Face model: folder or name.")
]
JsonLines = Annotated[bool, Flag("--json"), Help("Print one JSON object per line.")]
Json = Annotated[bool, Flag("--json"), Help("Print the results as JSON.")]
TrustCode = Annotated[bool, Help("Import and run the modules named in the run's config.")]
SourceLanguage = Annotated[str | None, Help("Source language, such as zh.", metavar="CODE")]
TargetLanguage = Annotated[str | None, Help("Target language, such as en; the run's unless given.", metavar="CODE")]
Device = Annotated[str, Help("Device of the model; auto uses a CUDA GPU if there is one.", metavar=DEVICES)]


def is_run(text: str) -> bool:
    """Return whether an argument that may also be a text is the path of a run folder."""
    try:
        return (Path(text) / "config.json").is_file()
    # a text may be too long for a path
    except OSError:
        return False


@dataclass(frozen=True)
class Offer:
    """The settings of a class that a command offers as options, all `None` unless given.

    Args:
        module: module of the class, imported when the command is called or shows its help.
        name: name of the class.
        settings: names of the fields to offer; all fields if both this and `options` are empty.
        options: further fields, each mapped to the name of its option.
        overrides: True if the values replace other settings, such as a recipe's. Then no defaults are shown, and the
            command line checks the bounds; otherwise `Given.settings` does.
    """

    module: str
    name: str
    settings: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    overrides: bool = False


@dataclass(frozen=True)
class Given(Generic[Settings]):
    """The settings that were given to a command; the others keep their defaults.

    Attributes:
        kind: class of the settings, a pydantic model.
        values: given values by the name of the setting.
        options: name of each setting's option.
    """

    kind: type[Settings]
    values: Mapping[str, Any]
    options: Mapping[str, str]

    def settings(self, **values: Any) -> Settings:
        """Return the settings with the given values and these; raise `ArgumentError` if they are invalid."""
        from pydantic import ValidationError

        try:
            return self.kind(**{**self.values, **values})
        except ValidationError as error:
            raise ArgumentError(self._message(error.errors()[0])) from error

    def _message(self, fault: Any) -> str:
        """Return the message about the first fault, naming the option if only one is at fault."""
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


Weights = Annotated[DType | None, Flag("--dtype"), Help("Type of the weights; the run's unless given.")]
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
    """Options for loading runs: the device, and whether their code is trusted."""

    device: Device = AUTO
    trust_code: TrustCode = False

    def torch_device(self) -> torch.device:
        """Return the device; see `device_of`."""
        return self._torch_device

    @cached_property
    def _torch_device(self) -> torch.device:
        # reported once
        return device_of(self.device)

    def tool(self, run: Path | str | Sequence[Path], load: Callable[..., Tool]) -> Tool:
        """Load a run folder.

        Args:
            run: the run folder, or several for an ensemble.
            load: a task's function for loading runs, such as `attent.tasks.translation.translator.load`.

        Raises:
            ArgumentError: the model cannot be computed in this type here.
            DeviceError: this machine does not have the device.
            RunError: the run cannot be loaded, has another task, or names code and is not trusted.
        """
        return load(run, self.torch_device(), trust_code=self.trust_code, **self._types())

    def stored_run(self, run: Path | str | Sequence[Path]) -> StoredRun:
        """Return a run that its task loads on demand; errors as of `tool`."""
        from attent.tasks.loading import StoredRun

        return self.tool(run, StoredRun)

    def _types(self) -> dict[str, Any]:
        """Return the data type of the weights as a keyword argument, if it was given."""
        return {}


@dataclass(frozen=True)
class TypedLoading(Loading):
    """Options for loading runs, with the data type of the weights."""

    dtype: Weights = None

    def _types(self) -> dict[str, Any]:
        return {} if self.dtype is None else {"dtype": self.dtype.value}


@dataclass(frozen=True)
class PretrainedLoading(Loading):
    """Options for loading runs and Hugging Face models."""

    download: Annotated[bool, Help("Download a Hugging Face model that is given by name.")] = False

    def pretrained(self, model: Path) -> PretrainedModel | None:
        """Return the Hugging Face model in a folder or of a name; None if it is something else, such as a run folder.

        Raises:
            DeviceError: this machine does not have the device.
            RunError: the model cannot be loaded, or neither a folder nor a model has this name.
        """
        from attent.runs.config import is_pretrained

        device = self.torch_device()
        if model.exists() and not is_pretrained(model):
            return None
        from attent.tasks.pretrained import find, load

        folder = find(model, download=self.download)
        return None if folder is None else load(folder, device, **self._types())

    def generator(self, model: Path) -> ContinuesText:
        """Return the language model in a run folder or a Hugging Face folder, or of a name.

        Raises:
            ArgumentError, DeviceError, RunError: as of `tool` and `pretrained`, or it does not generate text.
        """
        from attent.tasks.text_generation.continuation import ContinuesText
        from attent.tasks.text_generation.text_generator import load

        pretrained = self.pretrained(model)
        if pretrained is None:
            return self.tool(model, load)
        if not isinstance(pretrained, ContinuesText):
            name = type(pretrained.model).__name__
            raise ArgumentError(f"{name} does not generate text; use a model whose class ends in ForCausalLM")
        return pretrained


@dataclass(frozen=True)
class TypedPretrainedLoading(TypedLoading, PretrainedLoading):
    """Options for loading runs and Hugging Face models, with the data type of the weights."""


def known_language(code: str | None) -> str | None:
    """Return the language code, or None if none is given; raise `ArgumentError` if it is not a code."""
    from attent.text.settings import check_language

    return None if code is None else check_language(code)


def device_of(name: str) -> torch.device:
    """Return the device with this name, and report it on standard error unless it is the CPU.

    A GPU with a number becomes the current GPU of the process.

    Raises:
        DeviceError: this machine does not have it.
        UnknownNameError: no device has this name.
    """
    import torch

    from attent.training.distributed import is_main_process

    device = devices.device_of(name)
    if device.type == "cuda" and device.index is not None:
        # Triton launches kernels on the current GPU, even if their tensors are on another
        torch.cuda.set_device(device)
    if device.type != "cpu" and is_main_process():
        say(f"device: {devices.described(device)}")
    return device


def head_number(head: str | None, choices: str) -> int | None:
    """Return the number of a head; None for the mean over all heads, which is the default.

    Raises:
        ArgumentError: it is neither; the message names the choices.
    """
    if head in (None, "mean"):
        return None
    if not NUMBER.fullmatch(head):
        raise ArgumentError(f"--head must be a number from 0{choices}, got {head!r}")
    return int(head)


def bytes_in(size: str, option: str) -> int:
    """Return the number of bytes in a size such as 2GiB, 500 MB or 4096.

    Raises:
        ArgumentError: the size has another form.
    """
    match = SIZE.fullmatch(size.strip())
    if match is None:
        raise ArgumentError(f"{option} must be a size such as 2GiB or 500MB, got {size!r}")
    number, prefix, binary = match.groups()
    return int(float(number) * (1024 if binary else 1000) ** " KMGT".index(prefix.upper() if prefix else " "))
