"""Arrays in an .npz: pictures, or sequences of vectors, with a label each."""

from __future__ import annotations

import math
import os
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from tokenize import TokenError

import numpy as np
from numpy.lib.format import MAGIC_PREFIX, read_array, read_array_header_1_0, read_array_header_2_0, read_magic

from attent.bounded import open_regular
from attent.data.labelled.pictures import Pictures
from attent.data.unpacking import largest
from attent.errors import DataError

ENDING = ".npy"
# What the arrays of a file are called.
IMAGES, VECTORS, LABELS, LENGTHS = "images", "x", "y", "lengths"


@dataclass(frozen=True)
class VectorSequences:
    """Sequences of vectors, and the class of each.

    Args:
        vectors: (N, T, D) float32.
        lengths: how many vectors of each are real, (N,); what stands behind them is not looked at.
        classes: the number of each one's class, (N,); None where nobody has said it.
        labels: the classes' names.
    """

    vectors: np.ndarray
    lengths: np.ndarray
    classes: np.ndarray | None
    labels: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.vectors)


def arrays(path: Path | str, *, labelled: bool = True) -> Pictures | VectorSequences:
    """What an .npz holds: `images`, pictures (N, H, W) or (N, H, W, C), or `x`, sequences of vectors (N, T, D).

    Their labels are `y`, N whole numbers or texts; `lengths` says how many of the T vectors of each are real, all unless given.
    Nothing is ever unpickled.

    Args:
        path: the file.
        labelled: whether there must be labels.

    Raises:
        DataError: the file cannot be read, or its arrays do not go together.
    """
    found, names = _read(path)
    if (IMAGES in found) == (VECTORS in found):
        there = ", ".join(names) or "none"
        raise DataError(f"{path} must have pictures called {IMAGES!r} or sequences of vectors called {VECTORS!r}, got arrays: {there}")
    if labelled and LABELS not in found:
        raise DataError(f"{path}: the labels are missing, an array {LABELS!r} with one for each example")
    name = IMAGES if IMAGES in found else VECTORS
    data = found[name]
    if data.ndim < 3 or 0 in data.shape:
        axes = "(N, H, W) or (N, H, W, C)" if name == IMAGES else "(N, T, D)"
        raise DataError(f"{path}: {name} must be {axes}, got {data.shape}")
    classes, labels = _classes(path, found[LABELS], len(data)) if LABELS in found else (None, ())
    if name == IMAGES:
        return Pictures(pixels(data, f"{path}: {IMAGES}"), classes, labels)
    vectors, lengths = _sequences(path, data, found.get(LENGTHS))
    return VectorSequences(vectors, lengths, classes, labels)


def pixels(found: np.ndarray, name: str) -> np.ndarray:
    """Pictures (N, H, W) or (N, H, W, C) as bytes from 0 to 255 or as float32 from 0 to 1, (N, H, W, C).

    Args:
        found: whole numbers from 0 to 255, or floats from 0 to 1.
        name: what an error calls them.

    Raises:
        DataError: they are neither, or of other axes.
    """
    found = found[..., None] if found.ndim == 3 else found
    if found.ndim != 4 or found.shape[-1] not in (1, 3):
        raise DataError(f"{name} must be (N, H, W) or (N, H, W, C) with C = 1 or 3, got {found.shape}")
    whole = found.dtype.kind in "iub"
    top = 255 if whole else 1
    if not (whole or found.dtype.kind == "f") or (found.size and not (found.min() >= 0 and found.max() <= top)):
        raise DataError(f"{name} must be whole numbers from 0 to 255 or floats from 0 to 1")
    return found.astype(np.uint8 if whole else np.float32)


def finite(vectors: np.ndarray, name: str) -> np.ndarray:
    """The same vectors (N, T, D).

    Args:
        vectors: floats.
        name: what an error calls them, with what has to follow.

    Raises:
        DataError: a value is not finite.
    """
    if not np.isfinite(vectors).all():
        example, place = np.argwhere(~np.isfinite(vectors))[0][:2]
        raise DataError(f"{name}vector {place} of example {example} has a value that is not finite")
    return vectors


def _read(path: Path | str) -> tuple[dict[str, np.ndarray], list[str]]:
    """The arrays that are looked at, by name, and the names of all."""
    try:
        file = open_regular(path)
    except (OSError, DataError) as error:
        raise DataError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from error
    try:
        with file as stream:
            if stream.read(len(MAGIC_PREFIX)) == MAGIC_PREFIX:
                raise DataError(f"{path} is one array, no .npz: numpy.savez writes several by name")
            with zipfile.ZipFile(stream) as archive:
                names = [name.removesuffix(ENDING) for name in archive.namelist()]
                known = [name for name in (IMAGES, VECTORS, LABELS, LENGTHS) if name + ENDING in archive.namelist()]
                return {name: _array(archive, name, f"{path}: {name}", os.fstat(stream.fileno()).st_size) for name in known}, names
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}") from error
    except DataError:
        raise
    except (ValueError, EOFError, KeyError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
        if "allow_pickle" in str(error) and "Object arrays" in str(error):
            raise DataError(f"{path} holds Python objects, which are not read: numbers and texts alone are") from error
        raise DataError(f"{path} is no .npz, or a damaged one") from error


def _array(archive: zipfile.ZipFile, name: str, called: str, size: int) -> np.ndarray:
    """An array of an archive of so many bytes, whose sizes are compared before memory is taken."""
    info = archive.getinfo(name + ENDING)
    if info.file_size > largest(min(info.compress_size, size)):
        raise DataError(f"{called} unpacks to {info.file_size:,} bytes, which numbers of its size never do")
    with archive.open(info) as member:
        version = read_magic(member)
        try:
            shape, _, dtype = (read_array_header_1_0 if version == (1, 0) else read_array_header_2_0)(member)
        # a header is parsed as Python is, which fails in many ways
        except (SyntaxError, TokenError, RecursionError, MemoryError) as error:
            raise ValueError("the header is none") from error
        held = info.file_size - member.tell()
    # of objects there are pickles
    if not dtype.hasobject and math.prod(shape) * dtype.itemsize != held:
        raise DataError(f"{called} is damaged: its header says {math.prod(shape) * dtype.itemsize:,} bytes, and it holds {held:,}")
    with archive.open(info) as member:
        return read_array(member, allow_pickle=False)


def _classes(path: Path | str, labels: np.ndarray, count: int) -> tuple[np.ndarray, tuple[str, ...]]:
    if labels.shape != (count,) or labels.dtype.kind not in "iubU":
        raise DataError(f"{path}: {LABELS} must be {count:,} whole numbers or texts, got {labels.dtype} {labels.shape}")
    names, classes = np.unique(labels, return_inverse=True)
    return classes.astype(np.int64), tuple(map(str, names))


def _sequences(path: Path | str, vectors: np.ndarray, lengths: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    if vectors.ndim != 3 or vectors.dtype.kind not in "iubf":
        raise DataError(f"{path}: {VECTORS} must be numbers (N, T, D), got {vectors.dtype} {vectors.shape}")
    count, most = vectors.shape[:2]
    lengths = np.full(count, most, np.int64) if lengths is None else lengths
    if lengths.shape != (count,) or lengths.dtype.kind not in "iu" or lengths.min() < 1 or lengths.max() > most:
        raise DataError(f"{path}: {LENGTHS} must be {count:,} whole numbers from 1 to {most}, got {lengths.dtype} {lengths.shape}")
    real = np.arange(most) < lengths[:, None]
    # what is behind the end may be anything, and counts for nothing
    vectors = np.where(real[..., None], vectors, 0).astype(np.float32)
    return finite(vectors, f"{path}: "), lengths.astype(np.int64)
