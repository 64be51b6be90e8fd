"""Check the arguments of `attend` once and convert them to a `Call` and tensors with four axes."""

import operator
from collections.abc import Callable
from copy import copy
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor, nn

from attent.attention import choices
from attent.attention.base import LoweredSide, Mask, Normalizer, Position, Score, Weighting
from attent.attention.call import Call, Prepared
from attent.attention.mask_info import visible_keys_of
from attent.attention.masks.padding import Padding
from attent.attention.masks.table import Table
from attent.attention.normalizers.softmax import Softmax
from attent.errors import ArgumentError, DeviceError, DTypeError, ShapeError, brief
from attent.ops.eligibility import is_autocast, is_known_true, is_readable


def prepare(
    query: Tensor,
    key: Tensor | LoweredSide,
    value: Tensor,
    *,
    score: str | Score | nn.Module | Callable[[Tensor, Tensor], Tensor] = "scaled_dot",
    normalizer: str | Normalizer = "softmax",
    mask: str | Mask | Tensor | None = None,
    bias: Tensor | None = None,
    sink: Tensor | None = None,
    soft_cap: float | None = None,
    position: str | Position | None = None,
    query_start: int | Tensor | None = None,
    lengths: Tensor | None = None,
    weighting: Weighting | None = None,
    dropout: float = 0.0,
    seed: int | Tensor | None = None,
) -> Prepared:
    """Check the arguments of `attend` (see there) and give every tensor four axes.

    A key given as a LoweredSide has already been lowered and rotated, and has four axes.
    """
    features = key.features if isinstance(key, LoweredSide) else key
    lowered = isinstance(key, LoweredSide)
    query, features, value = _with_one_dtype(query, features, value, lowered=lowered)
    axes = query.dim()
    if axes != 4 or features.dim() != 4 or value.dim() != 4:
        with_four_axes = [as_four_axes(tensor) for tensor in (query, features, value)]
        _check_axes(query, value if lowered else features, value)
        query, features, value = with_four_axes
    inputs = _Inputs(query.shape, features.shape, value.shape, query.dtype, query.device, axes, lowered)
    has_options = lowered or not (
        bias is sink is soft_cap is position is query_start is lengths is weighting is seed is None and dropout == 0.0
    )
    # torch.compile does not trace through an lru_cache
    if not has_options and _are_names(score, normalizer, mask) and not torch.compiler.is_compiling():
        call = _cached_call(inputs, score, normalizer, mask)
        # a cached call would carry its key range over to the next call, where it may be an inference or fake tensor
        call = call if call.mask is None else copy(call)
        return Prepared(_with_score_for_inputs(call, query, features), query, LoweredSide(features), value)
    position = choices.position(position)
    call = _build_call(
        inputs, score, normalizer, mask, bias=bias, sink=sink, soft_cap=soft_cap, position=position,
        query_start=query_start, lengths=lengths, weighting=weighting, dropout=dropout, seed=seed,
    )  # fmt: skip
    if position is not None and position.rotates:
        pairs = call.pairs()
        query = position.rotate(query, pairs.query_position)
        features = features if lowered else position.rotate(features, pairs.key_index[None])
    if isinstance(key, LoweredSide):
        return Prepared(call, query, key._replace(features=features), value)
    return Prepared(_with_score_for_inputs(call, query, features), query, LoweredSide(features), value)


def _are_names(score: object, normalizer: object, mask: object) -> bool:
    """Return whether all parts are given by names of the package's own parts."""
    return all(isinstance(part, str) and ":" not in part for part in (score, normalizer, "" if mask is None else mask))


def _with_score_for_inputs(call: Call, query: Tensor, key: Tensor) -> Call:
    """Apply `Score.for_inputs` to the call if the values of queries and keys can be read beforehand."""
    if (
        type(call.score).for_inputs is Score.for_inputs
        or call.is_empty
        or call.device.type != "cpu"
        or not is_readable(query)
    ):
        return call
    score = call.score.for_inputs(query, key)
    if score is not call.score and (visible_keys := visible_keys_of(call)) is not None:
        # ask again without the keys that no query sees
        if visible_keys.shape[1] not in (1, key.shape[1]):
            visible_keys = visible_keys.unflatten(1, (key.shape[1], -1)).any(2)
        score = call.score.for_inputs(query, key, visible_keys)
    return call if score is call.score else replace(call, score=score)


class _Inputs(NamedTuple):
    """The properties of tensors that a call depends on: shapes with four axes, and the original number of axes."""

    query: torch.Size
    key: torch.Size
    value: torch.Size
    dtype: torch.dtype
    device: torch.device
    axes: int
    lowered: bool


def _build_call(
    inputs: _Inputs,
    score: str | Score | nn.Module | Callable[[Tensor, Tensor], Tensor],
    normalizer: str | Normalizer,
    mask: str | Mask | Tensor | None,
    *,
    bias: Tensor | None = None,
    sink: Tensor | None = None,
    soft_cap: float | None = None,
    position: Position | None = None,
    query_start: int | Tensor | None = None,
    lengths: Tensor | None = None,
    weighting: Weighting | None = None,
    dropout: float = 0.0,
    seed: int | Tensor | None = None,
) -> Call:
    """Check the arguments for tensors of these shapes and build the call."""
    query, key, value, dtype, device, axes, lowered = inputs
    _check_shapes(query, key, value)
    _check_numbers(dropout, seed, soft_cap)
    score = choices.score(score)
    (batch, heads, queries, query_width), (_, key_heads, keys, key_width) = query, key
    # a lowered key may differ in width from the score's keys
    score.check(query_width, score.widths[1] if lowered and score.widths is not None else key_width, heads)
    if position is not None:
        position.check(heads, query_width)
    lengths = None if lengths is None else lengths_within(lengths, keys)
    full, normalizer = (batch, heads, queries, keys), choices.normalizer(normalizer)
    call = Call(
        score=score,
        normalizer=normalizer,
        mask=_build_mask(mask, lengths, axes, full),
        bias=None if bias is None else _bias_with_four_axes(bias, axes, full),
        soft_cap=soft_cap,
        position=position.with_heads(heads) if position is not None and position.biases else None,
        start=first_query_position(query_start, lengths, batch, queries, keys),
        dropout=dropout,
        seed=seed,
        batch=batch,
        heads=heads,
        key_heads=key_heads,
        queries=queries,
        keys=keys,
        query_width=query_width,
        value_width=value[-1],
        dtype=dtype,
        device=device,
        lowered=lowered,
        axes=axes,
        weighting=_checked_weighting(weighting, full),
        sink=None if sink is None else _checked_sink(sink, normalizer, dtype, heads),
    )
    _check_device(device, bias=call.bias, sink=sink, query_start=call.start, lengths=lengths)
    return call


# A call depends only on names and shapes.
_cached_call = lru_cache(maxsize=256)(_build_call)


def _build_mask(
    mask: str | Mask | Tensor | None, lengths: Tensor | None, axes: int, shape: tuple[int, int, int, int]
) -> Mask | None:
    if isinstance(mask, Tensor):
        table = mask[:, None] if mask.dim() == 3 and axes == 3 else mask
        if table.dim() not in (2, 4):
            raise ShapeError(f"mask must be (B|1, H|1, Tq, Tk) = {shape}, got {tuple(mask.shape)}")
        mask = Table(table)
    mask = choices.mask(mask)
    if lengths is not None:
        padding = Padding(lengths)
        mask = padding if mask is None else mask & padding
    if mask is not None:
        mask.check(*shape)
    return mask


def _checked_weighting(weighting: Weighting | None, shape: tuple[int, int, int, int]) -> Weighting | None:
    if weighting is None:
        return None
    if not isinstance(weighting, Weighting):
        raise ArgumentError(f"weighting must be a Weighting, got {brief(weighting)}")
    weighting.check(*shape)
    return weighting


def _checked_sink(sink: object, normalizer: Normalizer, dtype: torch.dtype, heads: int) -> Tensor:
    """Return sinks (H,) as (1, H, 1, 1), in the type in which scores are summed."""
    if not isinstance(sink, Tensor) or not sink.is_floating_point() or tuple(sink.shape) != (heads,):
        actual = f"{sink.dtype} {tuple(sink.shape)}" if isinstance(sink, Tensor) else brief(sink)
        raise ShapeError(f"sink must be floating point, one logit for each head, (H,) = ({heads},), got {actual}")
    if not isinstance(normalizer, Softmax):
        raise ArgumentError(f"a sink is a term of the softmax, which {type(normalizer).__name__} does not have")
    return sink.to(torch.promote_types(dtype, torch.float32))[None, :, None, None]


def _with_one_dtype(query: Tensor, key: Tensor, value: Tensor, *, lowered: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Return the three tensors, which must share a dtype and a device; under autocast, convert them to its dtype.

    A lowered key side may be float32 when queries and values have 16 bits.
    """
    if not (isinstance(query, Tensor) and isinstance(key, Tensor) and isinstance(value, Tensor)):
        raise ArgumentError(
            f"query, key and value must be tensors, got {', '.join(type(t).__name__ for t in (query, key, value))}"
        )
    dtypes, devices = (query.dtype, key.dtype, value.dtype), (query.device, key.device, value.device)
    if not (dtypes[0].is_floating_point and dtypes[1].is_floating_point and dtypes[2].is_floating_point):
        raise DTypeError(f"query, key and value must be floating point, got {', '.join(map(str, dtypes))}")
    if not devices[0] == devices[1] == devices[2]:
        raise DeviceError(f"query, key and value must be on the same device, got {', '.join(map(str, devices))}")
    if dtypes[0] == dtypes[1] == dtypes[2]:
        return query, key, value
    if (
        lowered
        and dtypes[1] == torch.float32
        and dtypes[0] == dtypes[2]
        and dtypes[0] in (torch.bfloat16, torch.float16)
    ):
        # a cache keeps lowered keys in float32 where lowering would have rounded them
        return query, key, value
    if is_autocast(query.device):
        common = torch.get_autocast_dtype(query.device.type)
        return query.to(common), key.to(common), value.to(common)
    raise DTypeError(f"query, key and value must have the same dtype, got {', '.join(map(str, dtypes))}")


def _check_axes(query: Tensor, key: Tensor, value: Tensor) -> None:
    """Raise if the tensors differ in their number of axes: leading axes are not broadcast."""
    if not query.dim() == key.dim() == value.dim():
        shapes = ", ".join(str(tuple(tensor.shape)) for tensor in (query, key, value))
        raise ShapeError(
            f"query, key and value must have the same number of axes (leading axes are not broadcast), got {shapes}"
        )


def as_four_axes(tensor: Tensor) -> Tensor:
    """Return a tensor with four, three or two axes as (B, H, T, D)."""
    if tensor.dim() == 4:
        return tensor
    if tensor.dim() == 3:
        return tensor[:, None]
    if tensor.dim() == 2:
        return tensor[None, None]
    raise ShapeError(f"query, key and value must be (B, H, T, D), (B, T, D) or (T, D), got {tuple(tensor.shape)}")


def _check_shapes(query: torch.Size, key: torch.Size, value: torch.Size) -> None:
    """Raise if (B, H, Tq, Dq), (B, G, Tk, Dk) and (B, G, Tk, Dv) do not fit together."""
    (batch, heads, _, _), (batch_of_key, key_heads, keys, _) = query, key
    if batch_of_key != batch:
        raise ShapeError(f"key must be (B, …) with B = {batch} as in query, got {tuple(key)}")
    if tuple(value[:3]) != (batch, key_heads, keys):
        raise ShapeError(
            f"value must be (B, H, Tk, Dv) = ({batch}, {key_heads}, {keys}, Dv) as key, got {tuple(value)}"
        )
    if heads % key_heads if key_heads else heads:
        raise ShapeError(f"query heads must be a multiple of key heads, got {heads} and {key_heads}")


def _check_numbers(dropout: object, seed: object, soft_cap: object) -> None:
    """Raise if one of these is not a number or is out of range."""
    if not isinstance(dropout, int | float) or not 0.0 <= dropout < 1.0:
        raise ArgumentError(f"dropout must be in [0, 1), got {brief(dropout)}")
    if dropout and seed is None:
        raise ArgumentError("dropout needs a seed: its mask is a function of (seed, b, h, i, j)")
    is_whole = (
        seed.numel() == 1 and not seed.is_floating_point() if isinstance(seed, Tensor) else isinstance(seed, int | None)
    )
    if not is_whole:
        raise ArgumentError(f"seed must be a whole number, or a tensor that holds one, got {brief(seed)}")
    if soft_cap is not None and (not isinstance(soft_cap, int | float) or not soft_cap > 0):
        raise ArgumentError(f"soft_cap must be > 0, got {brief(soft_cap)}")


def _check_device(device: torch.device, **tensors: object) -> None:
    """Raise if one of the tensors is on another device."""
    for name, tensor in tensors.items():
        if isinstance(tensor, Tensor) and tensor.device != device:
            raise DeviceError(f"{name} must be on {device} like query, got {tensor.device}")


def lengths_within(lengths: object, keys: int) -> Tensor:
    """Return lengths (B,), a tensor or a list, which must be whole numbers from 0 to Tk."""
    try:
        lengths = torch.as_tensor(lengths)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ArgumentError(f"lengths must be (B,) whole numbers, got {brief(lengths)}") from error
    if lengths.numel() and is_known_true(lambda: (lengths.min() < 0) | (lengths.max() > keys), lengths.device):
        raise ShapeError(f"lengths must be from 0 to Tk = {keys}, got {int(lengths.min())} to {int(lengths.max())}")
    return lengths


def _bias_with_four_axes(bias: object, axes: int, scores_shape: tuple[int, int, int, int]) -> Tensor:
    """Return a bias as (B|1, H|1, Tq|1, Tk|1) for scores (B, H, Tq, Tk) of the full shape."""
    if not isinstance(bias, Tensor):
        raise ArgumentError(f"bias must be a tensor, got {brief(bias)}")
    if not bias.is_floating_point():
        raise DTypeError(f"bias must be floating point, got {bias.dtype}; a boolean belongs to mask")
    result = bias[:, None] if bias.dim() == 3 and axes == 3 else bias[None, None] if bias.dim() == 2 else bias
    if result.dim() != 4 or any(
        size != 1 and size != expected for size, expected in zip(result.shape, scores_shape, strict=True)
    ):
        raise ShapeError(f"bias must be (B|1, H|1, Tq|1, Tk|1) = {scores_shape}, got {tuple(bias.shape)}")
    return result


def first_query_position(start: object, lengths: Tensor | None, batch: int, queries: int, keys: int) -> int | Tensor:
    """Return the first query's position: as given, or such that the last query is at the last key's position."""
    if start is None:
        return keys - queries if lengths is None else lengths - queries
    if isinstance(start, Tensor):
        if start.is_floating_point() or tuple(start.shape) not in ((1,), (batch,)):
            raise ShapeError(
                f"query_start must be a whole number or (B,) = ({batch},) of them, got {start.dtype} "
                f"{tuple(start.shape)}"
            )
        return start
    if isinstance(start, int) and not isinstance(start, bool):
        return start
    try:
        # whole numbers of other types, such as NumPy's
        return operator.index(None if isinstance(start, bool) else start)  # pyright: ignore[reportArgumentType]
    except TypeError:
        raise ArgumentError(f"query_start must be a whole number or (B,) of them, got {type(start).__name__}") from None
