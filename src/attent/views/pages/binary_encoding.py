"""Numbers as text that a page unpacks: deflated, then in base64."""

from __future__ import annotations

import base64
import zlib

import numpy as np

LARGEST_HALF = 65504.0


def packed(*arrays: np.ndarray) -> str:
    """Arrays one behind the other, least byte first."""
    raw = b"".join(np.ascontiguousarray(array, array.dtype.newbyteorder("<")).tobytes() for array in arrays)
    return base64.b64encode(zlib.compress(raw)).decode("ascii")


def shaded(maps: np.ndarray) -> tuple[np.ndarray, list[float], bool]:
    """Maps (H, h, w) in a byte each: the shares of the largest in size of each map, and that.

    Returns:
        The bytes, 255 at the largest, or with a sign 128 at 0 and 1 and 255 at the largest; the largest of each map; whether
        there is a sign.
    """
    top = np.abs(maps).max((1, 2), initial=0.0)
    shares = maps / np.where(top > 0, top, 1.0)[:, None, None]
    signed = bool((maps < 0).any())
    codes = np.rint(shares * 127) + 128 if signed else np.rint(shares * 255)
    return codes.astype(np.uint8), [rounded(value) for value in top], signed


def rounded(value: float) -> float:
    """A number with the digits that 32 bits have."""
    return float(f"{value:.7g}")


def placed(places: np.ndarray, weights: np.ndarray, length: int) -> str:
    """The largest weights of each row: all their places, as few bytes as the length takes, then all weights as 16-bit numbers."""
    kind = np.uint16 if length <= 2**16 else np.uint32
    return packed(places.astype(kind), halves(weights))


def halves(weights: np.ndarray) -> np.ndarray:
    """Weights as 16-bit floats; the largest there is stands for those beyond."""
    return np.clip(weights, -LARGEST_HALF, LARGEST_HALF).astype(np.float16)
