"""The oldest versions of other libraries that attent runs with, checked where they are first imported."""

from __future__ import annotations

import re

from attent.errors import VersionError

# As pyproject.toml says.
OLDEST = {"torch": "2.11", "transformers": "5.0"}


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
