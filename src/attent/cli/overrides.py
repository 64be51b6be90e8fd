"""Settings with some of them changed on the command line."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from attent.errors import ArgumentError

if TYPE_CHECKING:
    from attent.tasks.settings import RunSettings


def changed(
    settings: RunSettings,
    changes: Sequence[str] = (),
    *,
    minutes: float | None = None,
    updates: int | None = None,
    seed: int | None = None,
    threads: int | None = None,
    patience: int | None = None,
    save_every: int | None = None,
    device: str | None = None,
    sharded: bool | None = None,
    tensorboard: bool | None = None,
) -> RunSettings:
    """Settings with some values replaced, checked as those of a file are.

    Args:
        settings: what to start from.
        changes: each as `table.key=value`, the value as TOML writes it; one that is no TOML is taken as text.
        minutes: when training ends. This and `updates` take the place of both limits that the settings have.
        updates: when training ends.
        seed: of the weights and of the order of the pairs.
        threads: how many of the processor's cores take part.
        patience: how many validations may find nothing better before training ends.
        save_every: updates between checkpoints.
        device: where to train, by name.
        sharded: whether several processes divide weights and moments among them.
        tensorboard: whether TensorBoard is written for.

    Raises:
        ArgumentError: a change is not of this form, or a value cannot be used.
        UnknownNameError: a key is unknown.
    """
    from attent.tasks.settings import parse

    tables = settings.model_dump(mode="json", exclude_unset=True, exclude_none=True)
    training = tables.setdefault("training", {})
    if minutes is not None or updates is not None:
        training.pop("minutes", None)
        training.pop("updates", None)
    limits = {"minutes": minutes, "updates": updates, "patience": patience}
    others = {"seed": seed, "threads": threads, "save_every": save_every, "device": device, "sharded": sharded, "tensorboard": tensorboard}
    training |= {name: value for name, value in (limits | others).items() if value is not None}
    for change in changes:
        _set(tables, change)
    return parse(toml(tables), "the command line")


def toml(tables: Mapping[str, Any], name: str = "") -> str:
    """Nested tables of plain values as TOML, in which numbers, strings and lists are written as JSON writes them."""
    values = [f"{key} = {_plain(key, value)}" for key, value in tables.items() if not isinstance(value, Mapping)]
    head = [f"[{name}]"] if name else []
    inner = [toml(value, f"{name}.{key}" if name else key) for key, value in tables.items() if isinstance(value, Mapping)]
    return "\n".join([*head, *values, *inner])


def _plain(key: str, value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError):
        raise ArgumentError(f"{key} must be text, a finite number, true or false, or a list of these, got {value}") from None


def _set(tables: dict[str, Any], change: str) -> None:
    path, equals, text = change.partition("=")
    *names, key = path.strip().split(".")
    if not equals or not names or not all((*names, key)):
        raise ArgumentError(f"--set takes table.key=value, such as training.learning_rate=1e-3, got {change!r}")
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text.strip()
    except (ValueError, RecursionError):
        raise ArgumentError(f"--set {path}: the value is nested too deep, or a number with too many digits") from None
    table = tables
    for name in names:
        table = table.setdefault(name, {})
        if not isinstance(table, dict):
            raise ArgumentError(f"--set {change}: {name} is no table")
    table[key] = value
