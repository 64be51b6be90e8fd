"""watch(): capture the attention maps of a model without changing the model.

Our attention modules report their maps here; PyTorch's functions are patched while anybody watches.
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

from attent.attention.capture.captured_maps import ConcatenatedMap
from attent.attention.capture.coverage import advice_for_uncaptured
from attent.attention.capture.patching import CapturedCall, Patcher, running_modules
from attent.attention.maps.attention_map import AttentionMap
from attent.errors import ArgumentError, UnseenError

WATCHERS: list[watch] = []


class watch(Mapping[str, AttentionMap]):  # noqa: N801 - used like a function: with attent.watch(model) as maps
    """An ordered mapping from a module's path in the model to its map, filled while the model runs.

    It captures our own modules, and in any PyTorch model the calls of `F.scaled_dot_product_attention`, `nn.MultiheadAttention` and
    `nn.Transformer`, which most of Hugging Face's models use by default, also under `generate`. Printed, it lists the modules that
    look like attention and were not captured too, with advice. Results stay the same, bit for bit.

    A call belongs to the innermost module that is running. The further calls of a module are `name#2`, `name#3` and so on. Maps are
    detached and show the call as the model made it: its masks, biases and scale, before dropout; the row of a query that may see
    nothing is as in PyTorch. Maps hold queries and keys, copied only where the model may overwrite them.

    A model under `torch.compile` runs as before, uncaptured, though PyTorch may compile it once more; within
    `torch.compiler.set_stance("force_eager")` its maps are captured.

    Example:
        >>> with attent.watch(model) as maps:
        ...     model(inputs)
        >>> maps["decoder.layers.3.cross_attention"].dense()

    Args:
        model: the model, or any part of it.

    Raises:
        ArgumentError: it is no module of PyTorch.
    """

    def __init__(self, model: nn.Module) -> None:
        if not isinstance(model, nn.Module):
            raise ArgumentError(f"watch takes a model, a torch.nn.Module, got {type(model).__name__}")
        self._name = type(model).__name__
        self._paths = _module_paths(model)
        self._pending: list[tuple[str, AttentionMap]] = []  # reported, but not named yet
        self._named: dict[str, AttentionMap] = {}
        self._calls: Counter[str] = Counter()

    def __enter__(self) -> Self:
        WATCHERS.append(self)
        _patcher.patch(self._paths)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        WATCHERS.remove(self)
        if not WATCHERS:
            _patcher.restore()

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
        """All maps by name; names the maps reported since the last access."""
        for path, weights in self._pending:
            self._calls[path] += 1
            self._named[_call_name(path, self._calls[path])] = weights
        self._pending.clear()
        return self._named

    def __hash__(self) -> int:
        return id(self)

    def __eq__(self, value: object) -> bool:
        return self is value

    def __repr__(self) -> str:
        return f"watch({', '.join(f'{path}: {weights.shape}' for path, weights in self._maps.items())})"

    def __str__(self) -> str:
        """Return a line for each module: the shapes of its maps, or the reason why it has none."""
        lines = [f"{self._name}: {len(self)} {'map' if len(self) == 1 else 'maps'}" if self else f"{self._name}: nothing was seen"]
        lines += [f"  {path or '(the model itself)'}  {self._shapes(path)}" for path in self._calls]
        kinds = {path: type(module).__name__ for module, path in self._paths.items()}
        missing: dict[tuple[str, str], list[str]] = {}
        for path, advice in advice_for_uncaptured(self._paths, self._calls.keys()).items():
            missing.setdefault((kinds[path], advice), []).append(path)
        for (kind, advice), paths in missing.items():
            more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
            lines.append(f"  not seen: {paths[0] or '(the model itself)'}{more} ({kind}): {advice}")
        return "\n".join(lines)

    def concatenated(self, path: str) -> AttentionMap:
        """Return all calls of one module as one map, their queries one after the other: the steps of `generate()`, say.

        The row of a step is zero at keys that came later. Where a search reorders its beams, a row belongs to the hypothesis that
        stood there when the step was computed.

        Raises:
            UnseenError: there is no map of this path.
            ShapeError: the calls differ in batch or heads.
        """
        maps = [self[path]] + [self._maps[_call_name(path, call)] for call in range(2, self._calls[path] + 1)]
        return maps[0] if len(maps) == 1 else ConcatenatedMap(maps)

    joined = concatenated  # the former name

    def _shapes(self, path: str) -> str:
        calls = self._calls[path]
        first = str(self._maps[path].shape)
        return first if calls == 1 else f"{first} … {self._maps[_call_name(path, calls)].shape}, {calls} calls"

    def _innermost_path(self, modules: Iterable[nn.Module]) -> str | None:
        """Return the path of the innermost running module that belongs to this model; None within a compiled graph."""
        for module in modules:
            if module in self._paths:
                return self._paths[module]
            if isinstance(module, GraphModule):
                return None
        return None


def _module_paths(model: nn.Module) -> dict[nn.Module, str]:
    """Return each module's path, in the order of `named_modules` but in a fifth of its time."""
    paths: dict[nn.Module, str] = {}
    stack = [(model, "")]
    while stack:
        module, path = stack.pop()
        if module not in paths:
            paths[module] = path
            prefix = f"{path}." if path else ""
            stack += [(child, prefix + name) for name, child in reversed(module._modules.items()) if child is not None]
    return paths


def _call_name(path: str, call: int) -> str:
    return path if call == 1 else f"{path}#{call}"


def is_watched() -> bool:
    """Return whether anybody watches; attention modules ask before they make a map. False while a model is being compiled."""
    return not torch.compiler.is_compiling() and bool(WATCHERS)


def report(module: nn.Module | None, weights: AttentionMap) -> None:
    """Hand a map to all watchers of the module, or, without one, of the innermost module that is running."""
    _add_map_to_watchers(CapturedCall(running_modules(sys._getframe(1)) if module is None else iter((module,)), weights.detach))


def _add_map_to_watchers(call: CapturedCall) -> None:
    """Add the map of a call; it is made only if anybody watches the module that called."""
    modules = list(call.modules) if len(WATCHERS) > 1 else call.modules
    weights = None
    for watcher in WATCHERS:
        path = watcher._innermost_path(modules)  # pyright: ignore[reportPrivateUsage]
        if path is not None:
            weights = call.make_map() if weights is None else weights
            # naming the map can wait until it is read: the model is running
            watcher._pending.append((path, weights))  # pyright: ignore[reportPrivateUsage]


_patcher = Patcher(_add_map_to_watchers)
