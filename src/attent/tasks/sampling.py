"""Random choices that are the same in every version of Python."""

from collections.abc import Callable, Sequence
from typing import TypeVar

Draw = Callable[[], float]
Item = TypeVar("Item")


def choose(draw: Draw, items: Sequence[Item]) -> Item:
    """Choose an item uniformly; uses only random(), which Python guarantees to be the same in every version."""
    return items[int(draw() * len(items))]
