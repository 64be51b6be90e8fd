"""Other libraries that attent runs with: the oldest versions, and the extras of rooms beyond the core.

Both are checked by the `__init__` of the folder that imports them first.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from typing import NamedTuple

from attent.errors import MissingExtraError, VersionError

# As pyproject.toml says.
OLDEST = {"torch": "2.11", "transformers": "5.0"}


class Extra(NamedTuple):
    """An extra that a folder needs whole.

    Args:
        need: the beginning of the message where it is missing.
        packages: by the names that they are imported by.
        contains: other extras.
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


@cache
def check_extra(name: str) -> None:
    """Check that the packages of an extra are installed, without importing them.

    Raises:
        MissingExtraError: some are not; the message names them and the extra.
    """
    missing = dict.fromkeys(package for package in _packages(name) if find_spec(package) is None)
    if missing:
        raise MissingExtraError(f"{EXTRAS[name].need} {', '.join(missing)}: pip install 'attent[{name}]'")


def _packages(name: str) -> Iterator[str]:
    """Yield the packages of an extra, and of those that it contains."""
    yield from EXTRAS[name].packages
    for contained in EXTRAS[name].contains:
        yield from _packages(contained)


def is_older(version: str, oldest: str) -> bool:
    """Return whether a version such as "2.4.0+cpu" is older than one such as "2.11".

    A version without numbers is not.
    """
    parts = re.match(r"\d+(\.\d+)*", version)
    return parts is not None and [*map(int, parts[0].split("."))] < [*map(int, oldest.split("."))]


def check_version(package: str, version: str) -> None:
    """Check that the imported version of a library is not too old.

    Raises:
        VersionError: it is; the message names the version that is needed and how to get it.
    """
    oldest = OLDEST[package]
    if is_older(version, oldest):
        raise VersionError(
            f"attent needs {package} {oldest} or newer, got {version}: pip install --upgrade '{package}>={oldest}'"
        )
