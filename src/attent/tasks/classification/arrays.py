"""Reader of .npz files with labeled pictures or sequences of vectors."""

from __future__ import annotations

import math
import os
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tokenize import TokenError

import numpy as np
from numpy.lib.format import MAGIC_PREFIX, read_array, read_array_header_1_0, read_array_header_2_0, read_magic

from attent.bounded import open_regular
from attent.errors import DataError, reraise
from attent.tasks.classification.pictures import Pictures
from attent.text.readers import max_unpacked

ENDING = ".npy"
# Names of arrays in a file.
IMAGES, VECTORS, LABELS, LENGTHS = "images", "x", "y", "lengths"


@dataclass(frozen=True)
class VectorSequences:
    """Sequences of vectors, and the class of each.

    Args:
        vectors: (N, T, D) float32.
        lengths: the length of each sequence, (N,); vectors beyond it are ignored.
        classes: the index of each sequence's class, (N,); None if unknown.
        labels: the names of the classes.
    """

    vectors: np.ndarray
    lengths: np.ndarray
    classes: np.ndarray | None
    labels: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.vectors)

    def select(self, rows: Sequence[int]) -> VectorSequences:
        """Return some of the sequences, without their classes."""
        return VectorSequences(self.vectors[rows], self.lengths[rows], None, ())


def read_npz(path: Path | str, *, labelled: bool = True) -> Pictures | VectorSequences:
    """Read an .npz with `images`, pictures (N, H, W) or (N, H, W, C), or `x`, sequences of vectors (N, T, D).

    The array `y` has the labels, N whole numbers or texts; `lengths` has the lengths of the sequences, by default T.
    Nothing is ever unpickled.

    Args:
        path: the file.
        labelled: whether the file must have labels.

    Raises:
        DataError: the file cannot be read, or its arrays do not match.
    """
    content, names = _read(path)
    if (IMAGES in content) == (VECTORS in content):
        listed = ", ".join(names) or "none"
        raise DataError(
            f"{path} must have pictures called {IMAGES!r} or sequences of vectors called {VECTORS!r}, got arrays: "
            f"{listed}"
        )
    if labelled and LABELS not in content:
        raise DataError(f"{path}: the labels are missing: add an array {LABELS!r} with one label per example")
    name = IMAGES if IMAGES in content else VECTORS
    data = content[name]
    if data.ndim < 3 or 0 in data.shape:
        axes = "(N, H, W) or (N, H, W, C)" if name == IMAGES else "(N, T, D)"
        raise DataError(f"{path}: {name} must be {axes}, got {data.shape}")
    classes, labels = _classes(path, content[LABELS], len(data)) if LABELS in content else (None, ())
    if name == IMAGES:
        return Pictures(check_pixels(data, f"{path}: {IMAGES}"), classes, labels)
    vectors, lengths = _checked_sequences(path, data, content.get(LENGTHS))
    return VectorSequences(vectors, lengths, classes, labels)


def check_pixels(pixels: np.ndarray, name: str) -> np.ndarray:
    """Convert pictures (N, H, W) or (N, H, W, C) to bytes from 0 to 255 or float32 from 0 to 1, (N, H, W, C).

    Args:
        pixels: whole numbers from 0 to 255, or floats from 0 to 1.
        name: the name of the pictures in error messages.

    Raises:
        DataError: the values are neither, or the axes are wrong.
    """
    pixels = pixels[..., None] if pixels.ndim == 3 else pixels
    if pixels.ndim != 4 or pixels.shape[-1] not in (1, 3):
        raise DataError(f"{name} must be (N, H, W) or (N, H, W, C) with C = 1 or 3, got {pixels.shape}")
    is_integer = pixels.dtype.kind in "iub"
    maximum = 255 if is_integer else 1
    if not (is_integer or pixels.dtype.kind == "f") or (
        pixels.size and not (pixels.min() >= 0 and pixels.max() <= maximum)
    ):
        raise DataError(f"{name} must be whole numbers from 0 to 255 or floats from 0 to 1")
    return pixels.astype(np.uint8 if is_integer else np.float32)


def check_finite(vectors: np.ndarray, name: str) -> np.ndarray:
    """Return the vectors (N, T, D) if all values are finite.

    Args:
        vectors: floats.
        name: the beginning of the error message, with punctuation.

    Raises:
        DataError: a value is not finite.
    """
    if not np.isfinite(vectors).all():
        example, index = np.argwhere(~np.isfinite(vectors))[0][:2]
        raise DataError(f"{name}vector {index} of example {example} has a value that is not finite")
    return vectors


def _read(path: Path | str) -> tuple[dict[str, np.ndarray], list[str]]:
    """Return the arrays that `read_npz` uses, by name, and the names of all arrays."""
    with reraise(DataError, f"{path} cannot be read", OSError, DataError):
        file = open_regular(path)
    try:
        with file as stream:
            if stream.read(len(MAGIC_PREFIX)) == MAGIC_PREFIX:
                raise DataError(f"{path} is a single array, not an .npz: save named arrays with numpy.savez")
            with zipfile.ZipFile(stream) as archive:
                names = [name.removesuffix(ENDING) for name in archive.namelist()]
                size = os.fstat(stream.fileno()).st_size
                used = [name for name in (IMAGES, VECTORS, LABELS, LENGTHS) if name + ENDING in archive.namelist()]
                return {name: _array(archive, name, f"{path}: {name}", size) for name in used}, names
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}") from error
    except DataError:
        raise
    except (ValueError, EOFError, KeyError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
        if "allow_pickle" in str(error) and "Object arrays" in str(error):
            remedy = f"pad sequences of different lengths, and give {LENGTHS}"
            raise DataError(f"{path} holds Python objects, but only numbers and texts are read: {remedy}") from error
        raise DataError(f"{path} is not an .npz, or is damaged") from error


def _array(archive: zipfile.ZipFile, name: str, display_name: str, size: int) -> np.ndarray:
    """Read an array from an archive of `size` bytes, after checking its size."""
    info = archive.getinfo(name + ENDING)
    if info.file_size > max_unpacked(min(info.compress_size, size)):
        raise DataError(f"{display_name} unpacks to {info.file_size:,} bytes, more than an array of its size can")
    with archive.open(info) as member:
        version = read_magic(member)
        try:
            shape, _, dtype = (read_array_header_1_0 if version == (1, 0) else read_array_header_2_0)(member)
        # a header is parsed like Python code, which can fail in many ways
        except (SyntaxError, TokenError, RecursionError, MemoryError) as error:
            raise ValueError("the header is invalid") from error
        data_size = info.file_size - member.tell()
    # arrays of objects are pickled
    if not dtype.hasobject and math.prod(shape) * dtype.itemsize != data_size:
        raise DataError(
            f"{display_name} is damaged: its header says {math.prod(shape) * dtype.itemsize:,} bytes, and it holds "
            f"{data_size:,}"
        )
    with archive.open(info) as member:
        return read_array(member, allow_pickle=False)


def _classes(path: Path | str, labels: np.ndarray, count: int) -> tuple[np.ndarray, tuple[str, ...]]:
    if labels.shape != (count,) or labels.dtype.kind not in "iubU":
        raise DataError(f"{path}: {LABELS} must be {count:,} whole numbers or texts, got {labels.dtype} {labels.shape}")
    names, classes = np.unique(labels, return_inverse=True)
    return classes.astype(np.int64), tuple(map(str, names))


def _checked_sequences(
    path: Path | str, vectors: np.ndarray, lengths: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
    if vectors.ndim != 3 or vectors.dtype.kind not in "iubf":
        raise DataError(f"{path}: {VECTORS} must be numbers (N, T, D), got {vectors.dtype} {vectors.shape}")
    count, longest = vectors.shape[:2]
    lengths = np.full(count, longest, np.int64) if lengths is None else lengths
    if lengths.shape != (count,) or lengths.dtype.kind not in "iu" or lengths.min() < 1 or lengths.max() > longest:
        raise DataError(
            f"{path}: {LENGTHS} must be {count:,} whole numbers from 1 to {longest}, got {lengths.dtype} "
            f"{lengths.shape}"
        )
    is_vector = np.arange(longest) < lengths[:, None]
    # padding can be anything, even NaN
    vectors = np.where(is_vector[..., None], vectors, 0).astype(np.float32)
    return check_finite(vectors, f"{path}: "), lengths.astype(np.int64)
