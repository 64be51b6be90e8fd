"""watch(): the maps of a model's attention, the model unchanged.

Our attention modules report to it, and so do PyTorch's functions while somebody watches. A map leaves a model by no other door.
"""

from __future__ import annotations

import difflib
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from types import TracebackType
from typing import Self

import torch
from torch import nn
from torch.fx import GraphModule

from attent.attention.capture.concatenated_map import Joined
from attent.attention.capture.coverage import unseen
from attent.attention.capture.patching import Ears
from attent.attention.capture.torch_calls import Heard, running
from attent.attention.maps.attention_map import AttentionMap
from attent.errors import UnseenError

_watching: list[watch] = []


class watch(Mapping[str, AttentionMap]):  # noqa: N801 - used like a function: with attent.watch(model) as seen
    """An ordered mapping from a module's path in the model to its map, filled while the model runs.

    It sees our own modules, and in any PyTorch model what goes through `F.scaled_dot_product_attention`,
    `nn.MultiheadAttention` or `nn.Transformer`, which most of Hugging Face's models do by default, those that `generate` too. Printed, it
    also lists modules that look like attention and could not be seen, with what to do. Results stay as they were, bit for bit.

    A call is put down to the innermost module that was running. A module that is called again is entered as `name#2`, `name#3`
    and so on. Maps are detached, and show what the call saw: the model's masks, biases and scale, before dropout; a query that
    may see nothing looks as PyTorch has it look. They keep queries and keys, copied only where the model may write over them.

    A model under `torch.compile` runs as ever, unseen, though it may be compiled once more; within
    `torch.compiler.set_stance("force_eager")` it is seen.

    Example:
        >>> with attent.watch(model) as seen:
        ...     model(inputs)
        >>> seen["decoder.layers.3.cross_attention"].dense()

    Args:
        model: the model, or any part of it.
    """

    def __init__(self, model: nn.Module) -> None:
        self._name = type(model).__name__
        self._paths = _paths(model)
        self._told: list[tuple[str, AttentionMap]] = []  # what was heard and not looked at yet
        self._entered: dict[str, AttentionMap] = {}
        self._calls: Counter[str] = Counter()

    def __enter__(self) -> Self:
        _watching.append(self)
        _ears.place(self._paths)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        _watching.remove(self)
        if not _watching:
            _ears.remove()

    def __getitem__(self, path: str) -> AttentionMap:
        if path not in self._maps:
            nearest = difflib.get_close_matches(path, self._maps, n=1, cutoff=0.5)
            hint = f"did you mean {nearest[0]!r}?" if nearest else "print(seen) lists what was seen, and what was not"
            raise UnseenError(f"no map of {path!r} among the {len(self)} of {self._name}; {hint}")
        return self._maps[path]

    def __iter__(self) -> Iterator[str]:
        return iter(self._maps)

    def __len__(self) -> int:
        return len(self._maps)

    @property
    def _maps(self) -> dict[str, AttentionMap]:
        """The maps by their names, which those that were told since have not yet."""
        for path, weights in self._told:
            self._calls[path] += 1
            self._entered[_named(path, self._calls[path])] = weights
        self._told.clear()
        return self._entered

    def __hash__(self) -> int:
        return id(self)

    def __eq__(self, other: object) -> bool:
        return self is other

    def __repr__(self) -> str:
        return f"watch({', '.join(f'{path}: {weights.shape}' for path, weights in self._maps.items())})"

    def __str__(self) -> str:
        """A line for each module: its maps' shapes, or why it has none."""
        missing: dict[tuple[str, str], list[str]] = {}
        kinds = {path: type(module).__name__ for module, path in self._paths.items()}
        lines = [f"{self._name}: {len(self)} {'map' if len(self) == 1 else 'maps'}" if self else f"{self._name}: nothing was seen"]
        for path, advice in unseen(self._paths, self._calls.keys()).items():
            missing.setdefault((kinds[path], advice), []).append(path)
        lines += [f"  {path or '(the model itself)'}  {self._shapes(path)}" for path in self._calls]
        for (kind, advice), paths in missing.items():
            more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
            lines.append(f"  not seen: {paths[0] or '(the model itself)'}{more} ({kind}): {advice}")
        return "\n".join(lines)

    def joined(self, path: str) -> AttentionMap:
        """All calls of one module as one map, their queries below one another: the steps of `generate()`, say.

        A step's row shows nothing on keys that came later. Where a search reorders its beams, a row is that of the hypothesis
        which stood there when it was computed.

        Raises:
            UnseenError: there is no map of this path.
            ShapeError: the calls are of different batches or heads.
        """
        maps = [self[path]] + [self._maps[_named(path, call)] for call in range(2, self._calls[path] + 1)]
        return maps[0] if len(maps) == 1 else Joined(maps)

    def _shapes(self, path: str) -> str:
        calls = self._calls[path]
        first = str(self._maps[path].shape)
        return first if calls == 1 else f"{first} … {self._maps[_named(path, calls)].shape}, {calls} calls"

    def _path(self, modules: Iterable[nn.Module]) -> str | None:
        """Of the modules that are running, the innermost that belongs to this model; none within what was compiled."""
        for module in modules:
            if module in self._paths:
                return self._paths[module]
            if isinstance(module, GraphModule):
                return None
        return None

    def _tell(self, path: str, weights: AttentionMap) -> None:
        # while the model runs nothing is done that can be done when somebody looks
        self._told.append((path, weights))


def _paths(model: nn.Module) -> dict[nn.Module, str]:
    """Each module's path in the model, in the order of `named_modules`, in a fifth of its time."""
    found: dict[nn.Module, str] = {}
    waiting = [(model, "")]
    while waiting:
        module, path = waiting.pop()
        if module not in found:
            found[module] = path
            before = f"{path}." if path else ""
            waiting += [(child, before + name) for name, child in reversed(module._modules.items()) if child is not None]
    return found


def _named(path: str, call: int) -> str:
    return path if call == 1 else f"{path}#{call}"


def watched() -> bool:
    """Whether anybody watches; an attention module asks before it makes a map. What is being compiled goes unseen."""
    return not torch.compiler.is_compiling() and bool(_watching)


def report(module: nn.Module | None, weights: AttentionMap) -> None:
    """Hand a map to all who watch a model that the module is part of; without one, the innermost that is running."""
    for watcher in _watching:
        path = watcher._path(running(sys._getframe(1)) if module is None else (module,))  # pyright: ignore[reportPrivateUsage]
        if path is not None:
            watcher._tell(path, weights.detach())  # pyright: ignore[reportPrivateUsage]


def _hear(heard: Heard) -> None:
    """Enter a call of PyTorch's; its map is made only if somebody watches the model that it belongs to."""
    modules = list(heard.modules) if len(_watching) > 1 else heard.modules
    weights = None
    for watcher in _watching:
        path = watcher._path(modules)  # pyright: ignore[reportPrivateUsage]
        if path is not None:
            weights = heard.map() if weights is None else weights
            watcher._tell(path, weights)  # pyright: ignore[reportPrivateUsage]


_ears = Ears(_hear)
