from __future__ import annotations

import base64
import zlib

import numpy as np

from attent.views.pages.binary_encoding import halves, packed, placed, shaded


def unpacked(text: str) -> bytes:
    return zlib.decompress(base64.b64decode(text))


def test_what_is_packed_is_there_again() -> None:
    one, other = np.arange(5, dtype=np.float32), np.arange(3, dtype=np.uint8)
    assert unpacked(packed(one, other)) == one.tobytes() + other.tobytes()


def test_a_byte_is_a_share_of_a_maps_largest() -> None:
    codes, tops, signed = shaded(np.array([[[0.0, 0.5]], [[0.02, 0.01]], [[0.0, 0.0]]]))
    assert codes.tolist() == [[[0, 255]], [[255, 128]], [[0, 0]]]
    assert tops == [0.5, 0.02, 0.0]
    assert not signed


def test_a_byte_has_a_sign_where_weights_have() -> None:
    codes, tops, signed = shaded(np.array([[[-2.0, 0.0, 1.0]]]))
    assert (codes.tolist(), tops, signed) == ([[[1, 128, 192]]], [2.0], True)


def test_places_are_as_narrow_as_the_length_allows() -> None:
    places, weights = np.array([[[3, 1]]]), np.array([[[0.5, 0.25]]])
    assert unpacked(placed(places, weights, 4)) == np.array([3, 1], np.uint16).tobytes() + np.array([0.5, 0.25], np.float16).tobytes()
    assert len(unpacked(placed(places, weights, 2**16 + 1))) == 12


def test_what_is_too_large_for_16_bits_is_the_largest() -> None:
    assert halves(np.array([1e9, -1e9])).tolist() == [65504.0, -65504.0]
