"""PyTorch's attention functions, patched while anybody watches.

A patch calls PyTorch's own function unchanged and reports its arguments. PyTorch's modes would see the same calls, but a
`TorchFunctionMode` turns off the fused path of `nn.TransformerEncoderLayer`, which changes results and speed, and a
`TorchDispatchMode` passes every operator of the model through Python.
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

from attent.attention.capture import torch_calls
from attent.attention.capture.torch_calls import CapturedCall

Receiver = Callable[[CapturedCall], None]
# read at every call in the middle of a model, where each attribute look-up costs
is_compiling, _getframe = torch.compiler.is_compiling, sys._getframe


class Target(NamedTuple):
    """A function of PyTorch's: the module that owns it, its name, and the function that captures a call of it."""

    owner: object
    name: str
    capture: Callable[[FrameType, tuple[Any, ...], dict[str, Any]], CapturedCall | None]


TARGETS = (
    Target(F, "scaled_dot_product_attention", torch_calls.scaled_dot_product_attention),
    # nn.MultiheadAttention calls these two when it returns its weights
    Target(torch, "bmm", torch_calls.bmm),
    Target(torch, "baddbmm", torch_calls.baddbmm),
    Target(torch, "_transformer_encoder_layer_fwd", torch_calls.encoder_layer),
    Target(torch, "_native_multi_head_attention", torch_calls.multi_head),
)


class Patcher:
    """Patches for all target functions: set for the first watcher, removed after the last.

    Args:
        receive: gets every captured call.
    """

    def __init__(self, receive: Receiver) -> None:
        self._receive = receive
        self._patches: dict[str, tuple[Any, Any]] = {}  # the original function and its patch, by the target's name
        self._active: dict[int, tuple[Any, Any]] = {}  # the same by the original's id, while anybody watches
        self._replaced: list[tuple[dict[str, Any], str, Any, Any]] = []

    def patch(self, modules: Iterable[nn.Module]) -> None:
        """Patch every target, also where one of the modules, or the file that defines it, holds it under a name of its own."""
        if not self._active:
            for target in TARGETS:
                original = getattr(target.owner, target.name)
                if self._patches.get(target.name, (None,))[0] is not original:
                    self._patches[target.name] = (original, _patched(original, target, self._receive))
                self._active[id(original)] = self._patches[target.name]
            for target in TARGETS:
                self._replace(vars(target.owner), [target.name])
        # PyTorch's own modules call the owners' functions
        foreign = [module for module in modules if not type(module).__module__.startswith("torch.")]
        files = {type(module).__module__ for module in foreign} & sys.modules.keys()
        for namespace in (*(vars(sys.modules[file]) for file in files), *map(vars, foreign)):
            # a quick test first, as most namespaces hold no target
            if not self._active.keys().isdisjoint(map(id, namespace.values())):
                self._replace(namespace, [name for name, value in namespace.items() if id(value) in self._active])

    def _replace(self, namespace: dict[str, Any], names: Iterable[str]) -> None:
        for name in names:
            original, patch = self._active[id(namespace[name])]
            namespace[name] = patch
            self._replaced.append((namespace, name, original, patch))

    def restore(self) -> None:
        """Restore the originals, except where other code has replaced a patch since."""
        for namespace, name, original, patch in self._replaced:
            if namespace.get(name) is patch:
                namespace[name] = original
        self._replaced.clear()
        self._active.clear()


def _patched(original: Callable[..., Any], target: Target, receive: Receiver) -> Callable[..., Any]:
    capture = target.capture

    @functools.wraps(original)
    def patch(*args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        if not is_compiling():
            call = capture(_getframe(1), args, kwargs)
            if call is not None:
                receive(call)
        return result

    return patch
