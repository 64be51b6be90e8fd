"""Which of a module's calls belong together: those of one pass through the model, such as the steps of `generate()`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TypeVar

from attent.attention.capture.concatenated_map import ConcatenatedMap
from attent.attention.maps.attention_map import AttentionMap
from attent.errors import ArgumentError

Found = TypeVar("Found")
# How watch() names the second call of a module, and those after it.
AGAIN = re.compile(r"^(.*)#\d+$")


def passes(maps: Mapping[str, Found]) -> dict[str, list[Found | AttentionMap]]:
    """By the path of each module its passes in order, calls that continue one another joined.

    Args:
        maps: by path, further calls as `path#2`, `path#3` and so on.
    """
    calls: dict[str, list[Found]] = {}
    for name, found in maps.items():
        again = AGAIN.match(name)
        path = again.group(1) if again and again.group(1) in maps else name
        calls.setdefault(path, []).append(found)
    return {path: _joined(several) for path, several in calls.items()}


def chosen(each: Mapping[str, Sequence[Found]], number: int) -> dict[str, Found]:
    """One pass of each module.

    Raises:
        ArgumentError: a module has not so many.
    """
    for path, several in each.items():
        if not -len(several) <= number < len(several):
            raise ArgumentError(f"{path} ran {len(several)} times, numbered from 0, got {number}")
    return {path: several[number] for path, several in each.items()}


def _joined(calls: Sequence[Found]) -> list[Found | AttentionMap]:
    runs: list[list[Found]] = []
    for found in calls:
        if runs and isinstance(found, AttentionMap) and isinstance(before := runs[-1][-1], AttentionMap) and _continues(before, found):
            runs[-1].append(found)
        else:
            runs.append([found])
    return [run[0] if len(run) == 1 else ConcatenatedMap([one for one in run if isinstance(one, AttentionMap)]) for run in runs]


def _continues(before: AttentionMap, after: AttentionMap) -> bool:
    """Whether the queries stand behind those of the call before: their keys were added to a cache, or are those of another text."""
    one, other = before.call, after.call
    if (one.batch, one.heads, one.axes) != (other.batch, other.heads, other.axes):
        return False
    return other.keys == one.keys + other.queries or (other.queries == 1 and other.keys == one.keys)
