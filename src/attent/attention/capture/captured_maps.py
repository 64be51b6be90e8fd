"""Maps of captured calls: of one call, and of several calls as one map.

The map of one call is prepared from snapshots of its tensors when it is first read.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor
from torch.nn import functional as F

from attent.attention.arguments import prepare
from attent.attention.base import Mask, Normalizer
from attent.attention.call import Prepared
from attent.attention.maps import tiles as tile_stream
from attent.attention.maps.attention_map import AttentionMap, ScoreMap, Stage
from attent.attention.maps.lazy_matrix import Versions
from attent.attention.masks.causal import Causal
from attent.attention.masks.padding import Padding
from attent.attention.masks.table import Table
from attent.attention.normalizers.softmax import Softmax
from attent.attention.scores.scaled_dot import ScaledDot
from attent.errors import ArgumentError, ShapeError, StaleMapError
from attent.types import Lengths

# Tensors of one size that may share a storage: queries, keys and values come from one product.
MAX_SHARING = 3


class Snapshot(NamedTuple):
    """A tensor of a call, without its graph, and its version at the time of the call; no version if it is a copy."""

    tensor: Tensor
    version: int | None = None

    @classmethod
    def of(cls, tensor: Tensor) -> Self:
        """Return the snapshot of queries, keys or a mask: a copy if the model may overwrite them, as in a cache."""
        if tensor.is_nested:
            return cls(tensor.detach())
        if may_be_overwritten(tensor):
            return cls(tensor.detach().clone())
        # a tensor without a graph needs no detached view
        return cls(tensor.detach() if tensor.requires_grad else tensor, tensor._version)

    @classmethod
    def of_parameter(cls, tensor: Tensor) -> Self:
        """Return the snapshot of a parameter: no copy, but `get` notices a change."""
        return cls(tensor.detach(), None if tensor.is_inference() else tensor._version)

    def get(self) -> Tensor:
        """Return the tensor.

        Raises:
            StaleMapError: the tensor was changed in place after the call.
        """
        if self.version is not None and self.tensor._version != self.version:
            raise StaleMapError(
                "a tensor of this map was changed in place after the call; read the map before the change"
            )
        return self.tensor


def may_be_overwritten(tensor: Tensor) -> bool:
    """Return whether the model may write to a tensor.

    It may if it has done so before, or if the tensor is a parameter or part of a larger buffer.
    """
    if tensor.is_inference() or tensor._version:
        # inference mode does not count writes
        return True
    owner = tensor if tensor._base is None else tensor._base
    is_parameter = owner.requires_grad and owner.is_leaf
    return is_parameter or tensor.untyped_storage().nbytes() > MAX_SHARING * tensor.nbytes


class DeferredMap(AttentionMap):
    """A map that costs nothing until it is read.

    Args:
        prepare: a function that builds the call and its tensors from the arguments.
        arguments: the snapshots and settings of the call.
    """

    # the fields of LazyMatrix that do not depend on the call
    _is_detached, _lowered = True, None

    def __init__(self, prepare: Callable[..., Prepared], *arguments: object) -> None:
        self._deferred = prepare, arguments

    def __getattr__(self, name: str) -> Any:
        """Prepare the call, its queries and its keys at the first access to one of them."""
        if name not in ("call", "query", "key", "_versions"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        prepare, arguments = self._deferred
        self.call, self.query, self.key, _ = prepare(*arguments)
        self._versions = Versions(self.call, self.query, self.key)
        del self._deferred
        return getattr(self, name)


class ConcatenatedMap(AttentionMap):
    """The rows of several maps, one map after another; keys that a call did not have yet get weight zero in its rows.

    Args:
        maps: the maps, in the order of their calls.

    Raises:
        ShapeError: the maps differ in batch or heads.
    """

    def __init__(self, maps: Sequence[AttentionMap]) -> None:
        if len({(part.call.batch, part.call.heads, part.call.axes) for part in maps}) > 1:
            shapes = ", ".join(str(part.shape) for part in maps)
            raise ShapeError(f"maps can be concatenated only if they have the same batch and heads, got {shapes}")
        longest = max(maps, key=lambda part: part.call.keys)
        call = replace(longest.call, queries=sum(part.call.queries for part in maps), mask=None, bias=None, start=0)
        super().__init__(call, torch.cat([part.query for part in maps], 2), longest.key, is_detached=True)
        self._maps = tuple(maps)

    def detach(self) -> AttentionMap:
        return self

    def keep(self) -> AttentionMap:
        return ConcatenatedMap([part.keep() for part in self._maps])

    def norms(self) -> AttentionMap:
        return ConcatenatedMap([part.norms() for part in self._maps])

    def scores(self, stage: Stage = "raw") -> ScoreMap:
        raise ArgumentError("concatenated maps have no scores; use the map of one call")

    @contextmanager
    def tiles(
        self, rows: range | None = None, heads: range | None = None, sequences: range | None = None
    ) -> Iterator[Iterator[tile_stream.Tile]]:
        with torch.no_grad(), torch.autocast(self.call.device.type, enabled=False):
            yield self._tiles(range(self.call.queries) if rows is None else rows, heads, sequences)

    def _tiles(self, rows: range, heads: range | None, sequences: range | None) -> Iterator[tile_stream.Tile]:
        begin = 0
        for part in self._maps:
            end = begin + part.call.queries
            own = rows[bisect_left(rows, begin) : bisect_left(rows, end)]
            for tile in tile_stream.tiles(part, range(own.start - begin, own.stop - begin, own.step), heads, sequences):
                yield replace(tile, rows=slice(tile.rows.start + begin, tile.rows.stop + begin, tile.rows.step))
            begin = end

    def _compute_rows(self, rows: Tensor) -> Tensor:
        call, begin = self.call, 0
        weights = torch.zeros(
            call.batch, call.heads, len(rows), call.keys, dtype=call.accumulation_dtype, device=call.device
        )
        for part in self._maps:
            is_own = (rows >= begin) & (rows < begin + part.call.queries)
            if is_own.any():
                weights[:, :, is_own, : part.call.keys] = part.rows(rows[is_own] - begin)
            begin += part.call.queries
        return weights


@dataclass(frozen=True)
class BareSoftmax(Normalizer):
    """The softmax as in PyTorch: the row of a query that may see no key is 0/0, which is NaN."""

    def normalize(self, scores: Tensor) -> Tensor:
        """Return the softmax of each row of scores (…, Tk)."""
        return scores.softmax(-1)

    def __call__(self, scores: Tensor, allowed: Tensor | None = None) -> Tensor:
        weights = super().__call__(scores, allowed)
        return weights if allowed is None else weights.masked_fill(~allowed.any(-1, keepdim=True), torch.nan)


def prepare_scaled_dot_product(
    query: Tensor,
    key: Tensor,
    mask: Tensor | Mask | None = None,
    *,
    is_causal: bool = False,
    scale: float | None = None,
    is_grouped: bool = False,
    has_nan_rows: bool = False,
    value: Tensor | None = None,
    dropout: float = 0.0,
) -> Prepared:
    """Convert a call of PyTorch's attention to one of ours.

    Args:
        query: (…, H, Tq, D); several leading axes are flattened into one batch axis.
        key: (…, G, Tk, D).
        mask: one of our masks, or a tensor that broadcasts to (…, H, Tq, Tk): boolean, True where a query may attend,
            or a float term.
        is_causal: query i sees the keys up to i, counted from the first key.
        scale: the factor on qᵀk; 1/√D if not given.
        is_grouped: query heads share key heads.
        has_nan_rows: the weights of a query that may see no key are NaN, not zero.
        value: (…, G, Tk, Dv); not needed for a map.
        dropout: the share of weights to drop, with a seed from PyTorch's generator.
    """
    own_axes = 3 if is_grouped else 2
    leading = torch.broadcast_shapes(query.shape[:-own_axes], key.shape[:-own_axes])
    value = key[..., :0] if value is None else value
    query, key, value = (side.expand(*leading, *side.shape[-own_axes:]) for side in (query, key, value))
    if isinstance(mask, Tensor):
        mask = _mask_for_queries(mask, query)
    if len(leading) + own_axes > 4:
        query, key, value = (side.flatten(0, -4) for side in (query, key, value))
    bias = mask if isinstance(mask, Tensor) and mask.dtype != torch.bool else None
    if isinstance(mask, Tensor):
        mask = Table(mask) if bias is None else None
    return prepare(
        query,
        key,
        value,
        score=ScaledDot(scale),
        normalizer=BareSoftmax() if has_nan_rows else Softmax(),
        mask=mask if not is_causal else Causal() if mask is None else mask & Causal(),
        bias=bias,
        # PyTorch's causal mask counts from the first key; ours aligns the last query with the last key, as a cache
        # needs
        query_start=0 if is_causal else None,
        dropout=dropout,
        seed=torch.randint(2**31 - 1, ()) if dropout else None,
    )


def _mask_for_queries(mask: Tensor, query: Tensor) -> Tensor:
    """Return a mask that broadcasts to these queries' (…, Tq, Tk), with the two or four axes that our masks have."""
    if query.dim() > 4:
        return mask.expand(*query.shape[:-2], *mask.shape[-2:]).flatten(0, -4)
    if query.dim() == 3 and mask.dim() == 3:
        return mask[:, None]
    return mask if mask.dim() == 2 else mask[(None,) * (4 - mask.dim())]


def pad_nested(features: Tensor, length: int | None = None) -> tuple[Tensor, Lengths]:
    """Pad nested sequences (…, T_b, D) with zeros to (B, …, length, D); return them with their lengths (B,).

    Args:
        features: a nested tensor.
        length: the length to pad to; that of the longest sequence if not given.
    """
    sequences = features.unbind()
    lengths = torch.tensor([sequence.shape[-2] for sequence in sequences], device=features.device)
    padded = length or int(lengths.max())
    return torch.stack([F.pad(sequence, (0, 0, 0, padded - sequence.shape[-2])) for sequence in sequences]), lengths


def padding_mask(query_lengths: Tensor, queries: int, key_lengths: Tensor) -> Mask:
    """Return the mask that hides padding, as query and as key, of sequences with these lengths (B,)."""
    is_query = torch.arange(queries, device=query_lengths.device) < query_lengths[:, None]  # (B, Tq)
    return Table(is_query[:, None, :, None]) & Padding(key_lengths)
