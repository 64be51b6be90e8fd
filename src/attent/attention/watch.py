"""watch(): the maps of a model's attention, the model unchanged.

Our attention modules report to it. A map leaves a model by no other door.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Self

from torch import nn

from attent.attention.map import AttentionMap

_watching: list[watch] = []


class watch(Mapping[str, AttentionMap]):  # noqa: N801 - used like a function: with attent.watch(model) as seen
    """An ordered mapping from a module's path in the model to its map, filled while the model runs.

    A module that is called again is entered as `name#2`, `name#3` and so on. Maps are detached.

    Example:
        >>> with attent.watch(model) as seen:
        ...     model(inputs)
        >>> seen["decoder.layers.3.cross_attention"].dense()

    Args:
        model: the model, or any part of it.
    """

    def __init__(self, model: nn.Module) -> None:
        self._paths = {module: path for path, module in model.named_modules()}
        self._maps: dict[str, AttentionMap] = {}

    def __enter__(self) -> Self:
        _watching.append(self)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        _watching.remove(self)

    def __getitem__(self, path: str) -> AttentionMap:
        return self._maps[path]

    def __iter__(self) -> Iterator[str]:
        return iter(self._maps)

    def __len__(self) -> int:
        return len(self._maps)

    def __hash__(self) -> int:
        return id(self)

    def __eq__(self, other: object) -> bool:
        return self is other

    def __repr__(self) -> str:
        return f"watch({', '.join(f'{path}: {weights.shape}' for path, weights in self._maps.items())})"

    def _enter(self, module: nn.Module, weights: AttentionMap) -> None:
        path = self._paths.get(module)
        if path is not None:
            calls = 2
            name = path
            while name in self._maps:
                name, calls = f"{path}#{calls}", calls + 1
            self._maps[name] = weights


def watched() -> bool:
    """Whether anybody watches; an attention module asks before it makes a map."""
    return bool(_watching)


def report(module: nn.Module, weights: AttentionMap) -> None:
    """Hand a module's map to all who watch a model that the module is part of."""
    for watcher in _watching:
        watcher._enter(module, weights.detach())  # pyright: ignore[reportPrivateUsage]
