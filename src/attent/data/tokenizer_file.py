"""What a tokenizer is saved as: one file of JSON that names its format and the version of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from attent.bounded import read_json
from attent.errors import DataError

# Bytes that a tokenizer's file may have: that of a million words of ten Cyrillic letters has half of them.
LARGEST = 2**27


def write(path: Path, form: str, version: int, content: Mapping[str, Any]) -> None:
    """Write a tokenizer's file.

    Args:
        path: the file.
        form: the name of the format, such as "attent word tokenizer".
        version: of the format.
        content: what the tokenizer is made of.
    """
    Path(path).write_text(json.dumps({"format": form, "version": version, **content}) + "\n", encoding="utf-8")


def read(path: Path, form: str, version: int) -> dict[str, Any]:
    """Read what `write` wrote.

    Raises:
        DataError: the file is missing or damaged, of another format, or a newer attent wrote it.
    """
    kind = form.removeprefix("attent ")
    try:
        content = read_json(path, LARGEST)
    except (OSError, DataError) as error:
        raise DataError(f"{path} cannot be read as a {kind}: {error}") from error
    if not isinstance(content, dict) or content.get("format") != form:
        raise DataError(f"{path} is not a {kind} (its format must be {form!r})")
    if content.get("version") != version:
        raise DataError(f"{path} has format version {content.get('version')!r}; this attent reads version {version}")
    return content
