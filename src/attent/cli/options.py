"""Options that several commands have: the device, trust in a run's code, and the settings of a search."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from attent import devices
from attent.cli.output import say
from attent.errors import ArgumentError

if TYPE_CHECKING:
    import torch

    from attent.runs.config import Task
    from attent.search.settings import GenerationSettings, SearchSettings
    from attent.tasks.pretrained import PretrainedModel

Settings = TypeVar("Settings", bound="SearchSettings | GenerationSettings")
# The number of a head or layer; no model has more digits.
NUMBER = re.compile(r"[0-9]{1,9}")
# The bounds of a number in messages.
BOUNDS = {"ge": "at least", "gt": "above", "le": "at most", "lt": "below"}
AUTO = devices.AUTO
DEVICES = "auto|cpu|cuda|cuda:N|mps"
LengthForms = StrEnum("LengthForms", ("wu", "length"))
RunFolder = Annotated[Path, typer.Argument(help="The run folder.")]
RunOrModel = Annotated[
    Path, typer.Argument(metavar="RUN", help="The run folder; or a Hugging Face model, its folder or its name.")
]
Download = Annotated[
    bool, typer.Option("--download", help="Fetch a Hugging Face model given by its name, unless it was before.")
]
Device = Annotated[
    str,
    typer.Option(metavar=DEVICES, help="Where the model computes; auto takes a GPU through CUDA where there is one."),
]


class DType(StrEnum):
    """The types of weights."""

    float32 = "float32"
    bfloat16 = "bfloat16"
    int8 = "int8"


Weights = Annotated[DType | None, typer.Option("--dtype", help="The type of weights; the run's own unless given.")]
TrustCode = Annotated[
    bool, typer.Option("--trust-code", help="Import and run the modules that the run's config names.")
]

LengthForm = Annotated[
    LengthForms | None,
    typer.Option(help="What the alpha is the power of: (5 + length) / 6 as in Wu et al., or the length itself."),
]
SourceLanguage = Annotated[str | None, typer.Option(metavar="CODE", help="The source's language, such as zh.")]
TargetLanguage = Annotated[
    str | None, typer.Option(metavar="CODE", help="The target's language, such as en; the run's unless given.")
]


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


def loaded(
    run: Path | str, device: torch.device, task: Task | None = None, *, trust_code: bool, dtype: DType | None = None
) -> Any:
    """Return the translator, FillMask, TextGenerator or classifier of a run folder.

    Args:
        run: the folder.
        device: of its model.
        task: that it must have; any task unless given.
        trust_code: whether it may name modules to import.
        dtype: the type of weights; the run's own unless given.

    Raises:
        ArgumentError: the model cannot be computed in this type here.
        RunError: it is missing, damaged, written by a newer version, has another task, or names code and is not
            trusted.
    """
    from attent.tasks.loading import LOADERS, load

    return (load if task is None else LOADERS[task])(
        run, device, trust_code=trust_code, dtype=None if dtype is None else dtype.value
    )


def pretrained(model: Path, device: torch.device, *, download: bool) -> PretrainedModel | None:
    """Return the Hugging Face model of a folder or a name; None for what is no such model, as a run folder is not.

    Raises:
        RunError: it cannot be loaded, or there is neither a folder nor a model of this name.
    """
    from attent.runs.config import is_pretrained

    if model.exists() and not is_pretrained(model):
        return None
    from attent.tasks.pretrained import find, load

    folder = find(model, download=download)
    return None if folder is None else load(folder, device)


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


def search_settings(**options: Any) -> SearchSettings:
    """Return the settings of a search, of those options that are not None.

    Raises:
        ArgumentError: a value cannot be used, or two do not go together.
    """
    from attent.search.settings import SearchSettings

    return _validated(SearchSettings, options)


def generation_settings(**options: Any) -> GenerationSettings:
    """Return the settings of text generation, of those options that are not None.

    Raises:
        ArgumentError: as `search_settings`.
    """
    from attent.search.settings import GenerationSettings

    return _validated(GenerationSettings, options)


def _validated(kind: type[Settings], options: Mapping[str, Any]) -> Settings:
    from pydantic import ValidationError

    try:
        return kind(**{name: value for name, value in options.items() if value is not None})
    except ValidationError as error:
        first = error.errors()[0]
        context = first.get("ctx", {})
        limit = next(
            (
                f"{words} {context[bound]:g}, got {first['input']}"
                for bound, words in BOUNDS.items()
                if bound in context
            ),
            "",
        )
        limit = f"a finite number, got {first['input']}" if first["type"] == "finite_number" else limit
        if not limit or not first["loc"]:
            raise ArgumentError(first["msg"].removeprefix("Value error, ")) from error
        option = str(first["loc"][0]).replace("maximum", "max").replace("minimum", "min").replace("_", "-")
        raise ArgumentError(f"--{option} must be {limit}") from error
