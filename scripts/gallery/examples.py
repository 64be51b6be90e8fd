"""Running the repository's examples as scripts to get their variables."""

from __future__ import annotations

import contextlib
import io
import runpy
import sys
from pathlib import Path
from typing import Any
from unittest import mock

FOLDER = Path(__file__).parents[2] / "examples"


def example(name: str, *arguments: str) -> dict[str, Any]:
    """Run an example without printing its output, and return its variables.

    Args:
        name: the file name without extension.
        arguments: the command-line arguments.
    """
    with mock.patch.object(sys, "argv", [f"{name}.py", *arguments]), contextlib.redirect_stdout(io.StringIO()):
        return runpy.run_path(str(FOLDER / f"{name}.py"))
