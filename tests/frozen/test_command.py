"""The command as its users see it: every option and argument with its default, and every help text, in a file each.

These two files show a reviewer what a change does to the command. Unlike other frozen values they are written anew,
with ATTENT_FREEZE=1, where an option or its help is meant to change.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import pytest

# Help is laid out, and types are described, by typer.
TYPER = f"typer {version('typer')}"


def shown(annotation: Any) -> str:
    """A type with its arguments; Python 3.13 keeps its paths in another module."""
    return str(annotation).replace("pathlib._local.", "pathlib.")


def commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    yield path, command
    for name in getattr(command, "commands", {}):
        yield from commands(command.commands[name], (*path, name))


def described(parameter: Any) -> dict[str, Any]:
    """What a caller has to know of an option or argument."""
    annotation = parameter.type_descriptor.annotation
    choices = get_args(annotation) if get_origin(annotation) is Literal else ()
    values = {
        "other names": [*parameter.opts[1:], *parameter.secondary_opts],
        "kind": parameter.param_type_name,
        "type": [*choices] or (annotation.__name__ if get_origin(annotation) is None else shown(annotation)),
        "range": [parameter.min, parameter.max],
        "default": parameter.default,
        "metavar": parameter.metavar,
        "required": parameter.required,
        "flag": bool(getattr(parameter, "is_flag", False)),
        "multiple": parameter.multiple,
        "values": None if parameter.nargs == 1 else parameter.nargs,
        "variable": parameter.envvar,
        "hidden": parameter.hidden,
    }
    plain = {name: str(value) if isinstance(value, Path) else value for name, value in values.items()}
    # most parameters have none of these
    return {
        name: value
        for name, value in plain.items()
        if value not in (None, False, [], [None, None]) or name == "default"
    }


def check(golden: Any, actual: dict[str, Any]) -> None:
    """Compare, where this version of typer was frozen."""
    if not golden.writing and TYPER not in golden.values:
        pytest.skip(f"nothing is frozen of {TYPER}, which may describe commands otherwise")
    golden.check(TYPER, actual)


def test_options(internals, own_golden) -> None:
    values = {
        " ".join(("attent", *path)): {parameter.opts[0]: described(parameter) for parameter in command.params}
        for path, command in commands(internals.click_command())
    }
    check(own_golden, values)


def test_help(attent, internals, monkeypatch, own_golden) -> None:
    for name in [name for name in os.environ if name.startswith(("LT_", "ATTENT_")) and name != "ATTENT_FREEZE"]:
        monkeypatch.delenv(name)
    for name, value in {"COLUMNS": "120", "NO_COLOR": "1", "TERM": "dumb"}.items():
        monkeypatch.setenv(name, value)
    values = {
        " ".join(("attent", *path)): attent(*path, "--help").out for path, _ in commands(internals.click_command())
    }
    check(own_golden, values)
