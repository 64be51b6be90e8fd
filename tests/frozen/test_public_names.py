"""Every name that documentation, examples and recipes use is accepted; public_names.json lists them."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import pytest
import torch

import attent

NAMES: dict[str, Any] = json.loads((Path(__file__).parent / "public_names.json").read_text(encoding="utf-8"))


def reached(path: str) -> object:
    """What a dotted path names: a module, or attributes of one."""
    parts = path.split(".")
    for end in range(len(parts), 0, -1):
        try:
            target: object = importlib.import_module(".".join(parts[:end]))
        except ModuleNotFoundError as error:
            # what is missing is a package of somebody else's, or the last part is an attribute
            if not str(error.name).startswith("attent."):
                pytest.skip(f"{error.name} is not installed")
            continue
        for part in parts[end:]:
            target = getattr(target, part)
        return target
    raise AssertionError(path)


@pytest.mark.parametrize("path", NAMES["paths"])
def test_each_path_is_imported(path: str) -> None:
    reached(path)


def test_each_top_level_name_is_there() -> None:
    assert set(NAMES["top level"]) <= set(attent.__all__)


@pytest.mark.parametrize("command", NAMES["commands"])
def test_each_option_is_accepted(internals, command: str) -> None:
    result = internals.click_command()
    for word in command.split():
        result = result.commands[word]
    vocabulary = {option for parameter in result.params for option in (*parameter.opts, *parameter.secondary_opts)}
    assert set(NAMES["commands"][command]) <= vocabulary


@pytest.mark.parametrize("kind", NAMES["parts"])
def test_each_part_is_found(kind: str) -> None:
    module = importlib.import_module(f"attent.attention.{kind}s")
    parts = [getattr(module, name) for name in dir(module)]
    values = {name: part.__name__ for part in parts if isinstance(part, type) for name in getattr(part, "aliases", ())}
    for alias, part in NAMES["parts"][kind].items():
        assert hasattr(module, part)
        assert alias not in values or values[alias] == part


def test_each_implementation_is_known() -> None:
    inputs = [torch.zeros(1, 1, 2, 4) for _ in range(3)]
    for implementation in NAMES["implementations"]:
        try:
            attent.explain(*inputs, implementation=implementation)
        except attent.errors.ImplementationError as error:
            # known, and cannot serve this call
            assert implementation in str(error)


@pytest.mark.parametrize("table", NAMES["config"])
def test_each_key_of_the_settings_is_accepted(internals, table: str) -> None:
    """As far as the keys go: a value that is wrong is another error than a key that is unknown."""
    for kind, keys in NAMES["config"][table].items():
        for key in keys:
            head = {"fill-mask": 'task = "fill-mask"\n', "classify": 'task = "classify"\n'}.get(kind, "")
            text = f"{head}[{table}]\n{key} = []\n" + (
                f'kind = "{kind}"\n' if table == "model" and key != "kind" else ""
            )
            with pytest.raises(attent.errors.AttentError) as error:
                internals.settings(text)
            assert f"'{key}'" not in str(error.value).split("(known")[0] or "unknown" not in str(error.value), key
