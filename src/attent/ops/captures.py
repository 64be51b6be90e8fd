"""Tensors that a function uses without taking them as arguments: found while it runs, and replaced."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map

# A node of autograd's graph and the number of its output.
Edge = tuple[Any, int]


class Captures(TorchFunctionMode):
    """Record the tensors computed of leaves that PyTorch's functions meet, by their place in autograd's graph."""

    def __init__(self) -> None:
        super().__init__()
        self.by_edge: dict[Edge, Tensor] = {}

    def __torch_function__(self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Record the arguments of a function, and call it."""
        for tensor in tree_leaves((args, kwargs)):
            if isinstance(tensor, Tensor) and tensor.grad_fn is not None:
                self.by_edge.setdefault((tensor.grad_fn, tensor.output_nr), tensor)
        return func(*args, **(kwargs or {}))


class Replacement(TorchFunctionMode):
    """Have PyTorch's functions take other tensors in the place of some.

    Args:
        stand_ins: by the identity of the tensor to replace.
    """

    def __init__(self, stand_ins: Mapping[int, Tensor]) -> None:
        super().__init__()
        self.stand_ins = stand_ins

    def __torch_function__(self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Replace the arguments of a function, and call it."""
        if self.stand_ins:
            args, kwargs = tree_map(lambda value: self.stand_ins.get(id(value), value), (args, kwargs))
        return func(*args, **(kwargs or {}))
