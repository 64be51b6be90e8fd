"""Keys and values that grow by concatenation: the maps of a decoder's steps share the newest tensor, in linear memory.

A cache concatenates the keys of earlier tokens with those of new ones, and each step attends to a new, longer tensor.
The map of a step would keep it. While a model is watched, `torch.cat` tells which tensor is the beginning of another:
the map of an earlier step then reads the beginning of the newest tensor, which holds the same numbers.
"""

from __future__ import annotations

from types import FrameType
from typing import Any
from weakref import WeakValueDictionary

import torch
from torch import Tensor

from attent.attention.base import LoweredSide
from attent.attention.call import Prepared
from attent.attention.capture.captured_maps import DeferredMap, Snapshot, may_be_overwritten
from attent.attention.maps.attention_map import AttentionMap
from attent.attention.maps.lazy_matrix import Versions

# Storage, offset, shape, strides and dtype of a tensor: while it exists, no tensor with other numbers has the same.
Identity = tuple[int, int | torch.SymInt, torch.Size, tuple[int, ...], torch.dtype]


class _Growing:
    """The newest tensor of a cache, without its graph."""

    def __init__(self, tensor: Tensor) -> None:
        self.newest = Snapshot.of(tensor)


class Beginning:
    """The first rows of a growing tensor.

    Args:
        tensor: (…, T, D), which the model does not write to; it may be concatenated with further rows.
    """

    def __init__(self, tensor: Tensor) -> None:
        growing = _GROWING.get(_identity(tensor))
        if growing is None or growing.newest.version != tensor._version:
            growing = _GROWING[_identity(tensor)] = _Growing(tensor)
        self._growing, self._length = growing, tensor.shape[-2]

    def get(self) -> Tensor:
        """Return the tensor.

        Raises:
            StaleMapError: the newest tensor was changed in place.
        """
        return self._growing.newest.get()[..., : self._length, :]


def growing_snapshot(tensor: Tensor) -> Snapshot | Beginning:
    """Return the snapshot of keys or values: a copy if the model may overwrite them."""
    if tensor.is_nested or tensor.dim() < 3 or may_be_overwritten(tensor):
        return Snapshot.of(tensor)
    return Beginning(tensor)


def share_keys(weights: AttentionMap) -> AttentionMap:
    """Return a map without its graph that keeps the beginning of the newest keys instead of its own keys."""
    call, query, key = weights.call, weights.query, weights.key
    if key.bias is not None or key.center is not None or may_be_overwritten(key.features):
        return weights.detach()
    versions = Versions(call, query, LoweredSide(query))

    def prepare(query: Tensor, key: Beginning) -> Prepared:
        versions.check()
        return Prepared(call, query, LoweredSide(key.get()), query)

    return DeferredMap(prepare, query.detach(), Beginning(key.features))


_GROWING: WeakValueDictionary[Identity, _Growing] = WeakValueDictionary()


def _identity(tensor: Tensor) -> Identity:
    storage = tensor.untyped_storage()._cdata
    return storage, tensor.storage_offset(), tensor.shape, tensor.stride(), tensor.dtype


def note_concatenation(frame: FrameType, args: tuple[Any, ...], keywords: dict[str, Any], result: Tensor) -> None:
    """Record that the result of `torch.cat` of two tensors along the rows begins with the first of them."""
    if not _GROWING:
        return
    tensors, axis = (*args, *keywords.values())[0], (*args, keywords.get("dim", 0))[1]
    if len(tensors) != 2 or result.dim() < 3 or axis not in (-2, result.dim() - 2):
        return
    growing = _GROWING.pop(_identity(tensors[0]), None)
    if growing is not None and growing.newest.version == tensors[0]._version:
        growing.newest = Snapshot.of(result)
        _GROWING[_identity(result)] = growing
