"""The weights of a map as a PyTorch tensor that is computed when its numbers are read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import EllipsisType
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils._pytree import tree_map_only

from attent.attention.maps.attention_map import AttentionMap

# attributes of a tensor that do not need its numbers
_METHODS = (
    "size",
    "dim",
    "ndimension",
    "numel",
    "nelement",
    "element_size",
    "__len__",
    "get_device",
    "is_floating_point",
    "is_complex",
)
_PROPERTIES = "shape", "ndim", "dtype", "device", "layout", "is_cuda", "is_sparse", "is_nested", "requires_grad"
_METADATA = {
    torch.numel,
    torch.is_floating_point,
    torch.is_complex,
    *(getattr(Tensor, name) for name in _METHODS),
    *(getattr(Tensor, name).__get__ for name in _PROPERTIES),
}


class LazyTensor(Tensor):
    """The weights of a map as a tensor (B, H, Tq, Tk).

    Nothing of size Tq · Tk is computed until an operation needs the numbers. Shape, dtype and device cost nothing. An
    index that selects some of the queries computes their rows; reading more rows than there are queries, or any other
    operation, computes the whole tensor, once. Operations return plain tensors; gradients reach the queries and keys.

    `map` is the map: its statistics, such as `map.entropy()`, take memory linear in the sequence.

    Args:
        weights: the map, of four axes.
        dtype: the dtype of the tensor.
        keys: the number of keys, if there are more than the map has; the weights of the others are 0.
        is_averaged: whether the tensor is the mean over the heads, (B, Tq, Tk).
        is_batched: whether the tensor has a batch axis; without it, B is 1.
    """

    map: AttentionMap

    @staticmethod
    def __new__(
        cls: type[LazyTensor],
        weights: AttentionMap,
        dtype: torch.dtype,
        keys: int | None = None,
        *,
        is_averaged: bool = False,
        is_batched: bool = True,
    ) -> LazyTensor:
        """Make the tensor without its numbers."""
        tensors = weights.query, *weights.key, weights.call.bias
        has_graph = torch.is_grad_enabled() and any(tensor is not None and tensor.requires_grad for tensor in tensors)
        batch, heads, queries, _ = weights.shape
        leading = [*([batch] if is_batched else []), *([] if is_averaged else [heads])]
        shape = (*leading, queries, weights.call.keys if keys is None else keys)
        return Tensor._make_wrapper_subclass(
            cls, shape, dtype=dtype, device=weights.call.device, requires_grad=has_graph
        )

    def __init__(
        self,
        weights: AttentionMap,
        dtype: torch.dtype,
        keys: int | None = None,
        *,
        is_averaged: bool = False,
        is_batched: bool = True,
    ) -> None:
        self._is_averaged, self._is_batched = is_averaged, is_batched
        self._has_graph = self.requires_grad
        self._dense: Tensor | None = None
        self._rows_read = 0
        self.map = weights

    def dense(self) -> Tensor:
        """Return the weights as a plain tensor, the same one each time.

        Raises:
            StaleMapError: a tensor of the call has since been changed in place.
        """
        if self._dense is None or (self._carries_graph() and not self._dense.requires_grad):
            self._dense = self._read(self.map.dense)
        return self._dense

    def detach(self) -> Tensor:
        """Return the weights without their graph, still not computed; this tensor itself if there is no graph."""
        if not self._has_graph:
            return self
        if self._dense is not None:
            return self._dense.detach()
        return LazyTensor(
            self.map.detach(), self.dtype, self.shape[-1], is_averaged=self._is_averaged, is_batched=self._is_batched
        )

    def cpu(self, *args: Any, **options: Any) -> Tensor:
        """Return the weights in CPU memory; this tensor itself, still not computed, if it is already there."""
        return self if self.device.type == "cpu" else self.dense().cpu(*args, **options)

    def __getitem__(self, index: Any) -> Tensor:
        """Return the numbers at an index, computing only the rows that it selects."""
        part = self._part(index) if self._dense is None else None
        return self.dense()[index] if part is None else part

    def __hash__(self) -> int:
        return id(self)

    @classmethod
    def __torch_function__(
        cls,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Compute the tensors that an operation reads, and run it on plain ones."""
        if func in _METADATA:
            with torch._C.DisableTorchFunctionSubclass():
                return func(*args, **(kwargs or {}))
        return func(*tree_map_only(LazyTensor, _plain, args), **tree_map_only(LazyTensor, _plain, kwargs or {}))

    __torch_dispatch__ = __torch_function__

    def _carries_graph(self) -> bool:
        return torch.is_grad_enabled() and self._has_graph

    def _read(self, read: Callable[[], Tensor]) -> Tensor:
        """Return rows of the map in the dtype and with the keys of this tensor."""
        has_graph = self._carries_graph()
        # what is read in inference mode may be used outside it
        with torch.inference_mode(mode=False), torch.set_grad_enabled(has_graph):
            rows = read().to(self.dtype)
            rows = rows.mean(1) if self._is_averaged else rows
            rows = rows if self._is_batched else rows[0]
            return F.pad(rows, (0, self.shape[-1] - rows.shape[-1]))

    def _part(self, index: Any) -> Tensor | None:
        """Return the numbers at an index of numbers and slices that selects some of the queries.

        None for any other index.
        """
        items: tuple[Any, ...] = index if isinstance(index, tuple) else (index,)
        if any(isinstance(item, bool) or not isinstance(item, int | slice | EllipsisType) for item in items):
            return None
        if Ellipsis in items:
            dots = items.index(Ellipsis)
            items = (*items[:dots], *[slice(None)] * (self.ndim + 1 - len(items)), *items[dots + 1 :])
        axis = self.ndim - 2  # of the queries
        if not axis < len(items) <= self.ndim or Ellipsis in items:
            return None
        rows = range(self.shape[axis])[items[axis]]
        row_index = [rows] if isinstance(rows, int) else list(rows)
        self._rows_read += len(row_index)
        if len(row_index) == self.shape[axis] or self._rows_read > self.shape[axis]:
            return None
        weights = self._read(lambda: self.map.rows(torch.tensor(row_index, dtype=torch.int64, device=self.device)))
        return weights[(*items[:axis], 0 if isinstance(rows, int) else slice(None), *items[axis + 1 :])]


@torch.compiler.disable
def _plain(weights: LazyTensor) -> Tensor:
    """Return the plain tensor, outside the graph that is being compiled."""
    return weights.dense()
