"""Libraries that attent depends on: the oldest supported versions, and the extras of packages beyond the core.

Both are checked by the `__init__` of the package that imports the libraries first.
"""

import re
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from typing import NamedTuple

from attent.errors import MissingExtraError, VersionError

# The same as in pyproject.toml.
OLDEST = {"torch": "2.11", "transformers": "5.0"}


class Extra(NamedTuple):
    """An extra that a subpackage requires in full.

    Args:
        need: the beginning of the message shown if it is missing.
        packages: the import names of its packages.
        contains: other extras that it includes.
    """

    need: str
    packages: tuple[str, ...]
    contains: tuple[str, ...] = ()


EXTRAS = {
    "models": Extra(
        "text, models and training need",
        ("babel", "markdown_it", "pydantic", "sacrebleu", "safetensors", "sentencepiece"),
    ),
    "cli": Extra("the command attent needs", ("typer",), ("models",)),
    "documents": Extra("documents of word processors need", ("lxml", "sentencex"), ("models",)),
    "explore": Extra("attent explore needs", ("starlette", "uvicorn"), ("cli",)),
    "serve": Extra(
        "attent serve needs",
        ("httptools", "prometheus_client", "py3langid", "python_multipart"),
        ("documents", "explore"),
    ),
}


def check_torch() -> None:
    """Check that PyTorch is installed, without importing it.

    Raises:
        VersionError: it is not installed; the message gives the required version and how to install it.
    """
    if find_spec("torch") is None:
        oldest = OLDEST["torch"]
        raise VersionError(
            f"attent needs torch {oldest} or newer, which is not installed: pip install 'torch>={oldest}'"
        )


@cache
def check_extra(name: str) -> None:
    """Check that the packages of an extra are installed, without importing them.

    Raises:
        MissingExtraError: some are missing; the message names them and the extra.
        VersionError: PyTorch is not installed.
    """
    check_torch()
    missing = dict.fromkeys(package for package in _packages(name) if find_spec(package) is None)
    if missing:
        raise MissingExtraError(
            f"{EXTRAS[name].need} {', '.join(missing)}: in a clone of attent, pip install '.[{name}]'"
        )


def _packages(name: str) -> Iterator[str]:
    """Yield the packages of an extra and of the extras that it contains."""
    yield from EXTRAS[name].packages
    for contained in EXTRAS[name].contains:
        yield from _packages(contained)


def is_older(version: str, oldest: str) -> bool:
    """Return whether a version such as "2.4.0+cpu" is older than one such as "2.11".

    A version without numbers does not count as older.
    """
    parts = re.match(r"\d+(\.\d+)*", version)
    return parts is not None and [*map(int, parts[0].split("."))] < [*map(int, oldest.split("."))]


def check_version(package: str, version: str) -> None:
    """Check that the imported version of a library is not too old.

    Raises:
        VersionError: it is too old; the message gives the required version and how to install it.
    """
    oldest = OLDEST[package]
    if is_older(version, oldest):
        raise VersionError(
            f"attent needs {package} {oldest} or newer, got {version}: pip install --upgrade '{package}>={oldest}'"
        )
