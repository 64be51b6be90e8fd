"""A module with all those below it, read once: whether it is still the same takes a fraction of the time of a walk."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from operator import attrgetter, is_
from typing import Any, TypeVar

from torch import Tensor, nn

T = TypeVar("T")
_versions, _shapes = attrgetter("_version"), attrgetter("shape")


class ModuleTree:
    """The modules below one, and the parameters of all, as they stood when it was read.

    It holds no reference to the root.

    Args:
        root: the module.
    """

    def __init__(self, root: nn.Module) -> None:
        self.modules = [*_descendants(root)]
        nodes = [root, *self.modules]
        self._tables = [table for module in nodes for table in (module._modules, module._parameters)]
        self._entries = [*chain.from_iterable(map(dict.values, self._tables))]
        self._hooks = [hooks for module in nodes for hooks in (module._forward_hooks, module._forward_pre_hooks)]
        self.parameters = [entry for entry in self._entries if isinstance(entry, Tensor)]
        self._derived: dict[Callable[..., Any], Any] = {}

    @property
    def is_current(self) -> bool:
        """True if every module and parameter is still in its place."""
        entries = [*chain.from_iterable(map(dict.values, self._tables))]
        return len(entries) == len(self._entries) and all(map(is_, entries, self._entries))

    @property
    def has_hooks(self) -> bool:
        """True if one of the modules has a hook on its forward."""
        return any(self._hooks)

    def versions(self) -> list[object] | None:
        """Return what changes with the parameters: addresses, version counters and shapes.

        None if one counts no versions.
        """
        try:
            counters = [*map(_versions, self.parameters)]
        except RuntimeError:
            # made in inference mode
            return None
        return [*map(Tensor.data_ptr, self.parameters), *counters, *map(_shapes, self.parameters)]

    def derive(self, find: Callable[..., T], *arguments: Any) -> T:
        """Return what a function finds out about these modules, which is asked once and must not refer to the root."""
        if find not in self._derived:
            self._derived[find] = find(*arguments)
        return self._derived[find]


def _descendants(module: nn.Module) -> Iterator[nn.Module]:
    for child in module._modules.values():
        if child is not None:
            yield child
            yield from _descendants(child)
