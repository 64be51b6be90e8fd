"""Checks of attention's arguments; each raises one of the package's errors."""

from __future__ import annotations

import operator
from weakref import WeakSet

import torch
from torch import Tensor

from attent.attention.base import Normalizer
from attent.attention.normalizers import NORMALIZERS
from attent.errors import ArgumentError, DeviceError, DTypeError, ShapeError
from attent.ops.autograd import is_autocast
from attent.ops.eligibility import is_known_true, is_readable

# the classes of normalizers whose rows were checked to be distributions
_DISTRIBUTIONS: WeakSet[type[Normalizer]] = WeakSet(NORMALIZERS.values())


def agreeing(query: Tensor, key: Tensor, value: Tensor, *, lowered: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Return the three tensors, which must be of one dtype and device; under autocast convert them to its dtype.

    A lowered key side may be float32 when queries and values have 16 bits.
    """
    if not (isinstance(query, Tensor) and isinstance(key, Tensor) and isinstance(value, Tensor)):
        raise ArgumentError(f"query, key and value must be tensors, got {', '.join(type(t).__name__ for t in (query, key, value))}")
    dtypes, devices = (query.dtype, key.dtype, value.dtype), (query.device, key.device, value.device)
    if not (dtypes[0].is_floating_point and dtypes[1].is_floating_point and dtypes[2].is_floating_point):
        raise DTypeError(f"query, key and value must be floating point, got {', '.join(map(str, dtypes))}")
    if not devices[0] == devices[1] == devices[2]:
        raise DeviceError(f"query, key and value must lie on one device, got {', '.join(map(str, devices))}")
    if dtypes[0] == dtypes[1] == dtypes[2]:
        return query, key, value
    if lowered and dtypes[1] == torch.float32 and dtypes[0] == dtypes[2] and dtypes[0] in (torch.bfloat16, torch.float16):
        # a cache keeps lowered keys in float32 where lowering would have rounded them
        return query, key, value
    if is_autocast(query.device):
        common = torch.get_autocast_dtype(query.device.type)
        return query.to(common), key.to(common), value.to(common)
    raise DTypeError(f"query, key and value must have one dtype, got {', '.join(map(str, dtypes))}")


def alike(query: Tensor, key: Tensor, value: Tensor) -> None:
    """Raise if the tensors differ in their number of axes: leading axes are not broadcast."""
    if not query.dim() == key.dim() == value.dim():
        shapes = ", ".join(str(tuple(tensor.shape)) for tensor in (query, key, value))
        raise ShapeError(f"query, key and value must have the same number of axes, for leading axes are not broadcast, got {shapes}")


def four_axes(tensor: Tensor) -> Tensor:
    """Return a tensor with four, three or two axes as (B, H, T, D)."""
    if tensor.dim() == 4:
        return tensor
    if tensor.dim() == 3:
        return tensor[:, None]
    if tensor.dim() == 2:
        return tensor[None, None]
    raise ShapeError(f"query, key and value must be (B, H, T, D), (B, T, D) or (T, D), got {tuple(tensor.shape)}")


def shapes(query: torch.Size, key: torch.Size, value: torch.Size) -> None:
    """Raise if (B, H, Tq, Dq), (B, G, Tk, Dk) and (B, G, Tk, Dv) do not fit together."""
    (batch, heads, _, _), (batch_of_key, key_heads, keys, _) = query, key
    if batch_of_key != batch:
        raise ShapeError(f"key must be (B, …) with B = {batch} as in query, got {tuple(key)}")
    if tuple(value[:3]) != (batch, key_heads, keys):
        raise ShapeError(f"value must be (B, H, Tk, Dv) = ({batch}, {key_heads}, {keys}, Dv) as key, got {tuple(value)}")
    if heads % key_heads if key_heads else heads:
        raise ShapeError(f"query heads must be a multiple of key heads, got {heads} and {key_heads}")


def numbers(dropout: object, seed: object, soft_cap: object) -> None:
    """Raise if one of these is no number, or out of range."""
    if not isinstance(dropout, int | float) or not 0.0 <= dropout < 1.0:
        raise ArgumentError(f"dropout must be in [0, 1), got {dropout!r}")
    if dropout and seed is None:
        raise ArgumentError("dropout needs a seed: its mask is a function of (seed, b, h, i, j)")
    is_whole = seed.numel() == 1 and not seed.is_floating_point() if isinstance(seed, Tensor) else isinstance(seed, int | None)
    if not is_whole:
        raise ArgumentError(f"seed must be a whole number, or a tensor that holds one, got {seed!r}")
    if soft_cap is not None and (not isinstance(soft_cap, int | float) or not soft_cap > 0):
        raise ArgumentError(f"soft_cap must be > 0, got {soft_cap!r}")


def on_device(device: torch.device, **tensors: object) -> None:
    """Raise if one of the tensors is on another device."""
    for name, tensor in tensors.items():
        if isinstance(tensor, Tensor) and tensor.device != device:
            raise DeviceError(f"{name} must lie on {device} as query, got {tensor.device}")


def lengths_within(lengths: object, keys: int) -> Tensor:
    """Return lengths (B,), a tensor or a list, which must be whole numbers from 0 to Tk."""
    try:
        lengths = torch.as_tensor(lengths)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ArgumentError(f"lengths must be (B,) whole numbers, got {lengths!r}") from error
    if lengths.numel() and is_known_true(lambda: (lengths.min() < 0) | (lengths.max() > keys), lengths.device):
        raise ShapeError(f"lengths must be from 0 to Tk = {keys}, got {int(lengths.min())} to {int(lengths.max())}")
    return lengths


def four_axes_of_bias(bias: object, axes: int, full: tuple[int, int, int, int]) -> Tensor:
    """Return a bias as (B|1, H|1, Tq|1, Tk|1) for scores (B, H, Tq, Tk) of the full shape."""
    if not isinstance(bias, Tensor):
        raise ArgumentError(f"bias must be a tensor, got {bias!r}")
    if not bias.is_floating_point():
        raise DTypeError(f"bias must be floating point, got {bias.dtype}; a boolean belongs to mask")
    result = bias[:, None] if bias.dim() == 3 and axes == 3 else bias[None, None] if bias.dim() == 2 else bias
    if result.dim() != 4 or any(size not in (1, expected) for size, expected in zip(result.shape, full, strict=True)):
        raise ShapeError(f"bias must be (B|1, H|1, Tq|1, Tk|1) = {full}, got {tuple(bias.shape)}")
    return result


def distribution(normalizer: Normalizer, heads: int, keys: int, device: torch.device, dtype: torch.dtype) -> None:
    """Raise if a caller's own normalizer claims that its rows are distributions, and they are not.

    Check one row of each head, once for each class; the package's own normalizers are checked by its tests instead.
    """
    kind = type(normalizer)
    if kind in _DISTRIBUTIONS or not normalizer.is_distribution or not (heads and keys):
        return
    scores = torch.linspace(-1.0, 2.0, keys, device=device, dtype=dtype).expand(1, heads, 1, keys)
    if not is_readable(scores):
        return
    with torch.no_grad(), torch.random.fork_rng([device] if device.type == "cuda" else []):
        low, high, minimum = row_sums(normalizer(scores))
    if max(1.0 - low, high - 1.0, -minimum) > 1e-3:
        raise ArgumentError(
            f"normalizer {kind.__name__} says that each row's weights are nonnegative and sum to one, but they sum to {low:.4g} to "
            f"{high:.4g} and the least is {minimum:.4g}; set is_distribution = False in the class, or normalize"
        )
    _DISTRIBUTIONS.add(kind)


def row_sums(weights: Tensor) -> tuple[float, float, float]:
    """Return the least and the largest sum of a row, and the least weight."""
    sums = weights.detach().sum(-1)
    return float(sums.min()), float(sums.max()), float(weights.detach().min())


def first_position(start: object, lengths: Tensor | None, batch: int, queries: int, keys: int) -> int | Tensor:
    """Return the first query's position: as given, or such that the last query is at the last key's."""
    if start is None:
        return keys - queries if lengths is None else lengths - queries
    if isinstance(start, Tensor):
        if start.is_floating_point() or tuple(start.shape) not in ((1,), (batch,)):
            raise ShapeError(f"query_start must be a whole number or (B,) = ({batch},) of them, got {start.dtype} {tuple(start.shape)}")
        return start
    if isinstance(start, int) and not isinstance(start, bool):
        return start
    try:
        # whole numbers of other types, such as NumPy's
        return operator.index(None if isinstance(start, bool) else start)  # pyright: ignore[reportArgumentType]
    except TypeError:
        raise ArgumentError(f"query_start must be a whole number or (B,) of them, got {type(start).__name__}") from None
