"""The doors that attention goes through in PyTorch, with an ear at each while somebody watches.

A stand-in calls PyTorch's own function, unchanged, and tells what it was called with. A mode of PyTorch's would hear the same
calls, but a mode for functions keeps `nn.TransformerEncoderLayer` from its fused path, which changes results and speed, and a
mode for operators passes every operator of the model through Python.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable
from types import FrameType
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn import functional as F

from attent.attention.capture import fused_calls, torch_calls
from attent.attention.capture.torch_calls import Heard

Tell = Callable[[Heard], None]
# asked at every call, in the middle of a model, where each name that must be looked up first is dear
is_compiling, _getframe = torch.compiler.is_compiling, sys._getframe


class Door(NamedTuple):
    """A function of PyTorch's: where it is found, and what is made of a call."""

    home: object
    name: str
    hear: Callable[[FrameType, tuple[Any, ...], dict[str, Any]], Heard | None]


DOORS = (
    Door(F, "scaled_dot_product_attention", torch_calls.scaled_dot_product_attention),
    # what nn.MultiheadAttention does when it is asked for its weights
    Door(torch, "bmm", torch_calls.product),
    Door(torch, "baddbmm", torch_calls.added_product),
    Door(torch, "_transformer_encoder_layer_fwd", fused_calls.encoder_layer),
    Door(torch, "_native_multi_head_attention", fused_calls.multi_head),
)


class Ears:
    """Those who listen at the doors: placed for the first watcher, taken away after the last.

    Args:
        tell: gets every call that is heard.
    """

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self._stand_ins: dict[str, tuple[Any, Any]] = {}  # by the door's name PyTorch's function, and the one that stands in for it
        self._listening: dict[int, tuple[Any, Any]] = {}  # the same by the function's id, while somebody listens
        self._placed: list[tuple[dict[str, Any], str, Any, Any]] = []

    def place(self, modules: Iterable[nn.Module]) -> None:
        """Listen at every door, and wherever one of the modules, or the file that defines it, holds one by a name of its own."""
        if not self._listening:
            for door in DOORS:
                original = getattr(door.home, door.name)
                if self._stand_ins.get(door.name, (None,))[0] is not original:
                    self._stand_ins[door.name] = (original, _listening(original, door, self._tell))
                self._listening[id(original)] = self._stand_ins[door.name]
            for door in DOORS:
                self._put(vars(door.home), [door.name])
        # PyTorch's own modules take its functions from where they are found
        others = [module for module in modules if not type(module).__module__.startswith("torch.")]
        for file in {type(module).__module__ for module in others} & sys.modules.keys():
            self._put_all(vars(sys.modules[file]))
        for module in others:
            self._put_all(vars(module))

    def _put_all(self, names: dict[str, Any]) -> None:
        # most hold none, which is to be known in little time
        if not self._listening.keys().isdisjoint(map(id, names.values())):
            self._put(names, [name for name, value in names.items() if id(value) in self._listening])

    def _put(self, names: dict[str, Any], which: Iterable[str]) -> None:
        for name in which:
            original, listening = self._listening[id(names[name])]
            names[name] = listening
            self._placed.append((names, name, original, listening))

    def remove(self) -> None:
        """Leave everything as it was, but for what somebody else has put there since."""
        for names, name, original, listening in self._placed:
            if names.get(name) is listening:
                names[name] = original
        self._placed.clear()
        self._listening.clear()


def _listening(original: Callable[..., Any], door: Door, tell: Tell) -> Callable[..., Any]:
    hear = door.hear

    @functools.wraps(original)
    def listening(*args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        if not is_compiling():
            heard = hear(_getframe(1), args, kwargs)
            if heard is not None:
                tell(heard)
        return result

    return listening
