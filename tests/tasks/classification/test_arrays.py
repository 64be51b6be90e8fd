import os
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest

from attent.errors import DataError
from attent.tasks.classification.arrays import VectorSequences, read_npz
from attent.tasks.classification.pictures import Pictures
from attent.text import readers

VECTORS = np.arange(24.0).reshape(2, 4, 3)


def written(path: Path, **named: object) -> Path:
    np.savez(path, **named)
    return path


def test_sequences_of_vectors_are_read(tmp_path: Path) -> None:
    vectors = VECTORS.copy()
    vectors[0, 2:] = np.nan  # behind the end
    examples = read_npz(written(tmp_path / "a.npz", x=vectors, y=["b", "a"], lengths=[2, 4]))
    assert isinstance(examples, VectorSequences)
    assert (examples.labels, examples.classes.tolist(), examples.lengths.tolist()) == (("a", "b"), [1, 0], [2, 4])
    assert examples.vectors.dtype == np.float32
    assert (examples.vectors[0, :2] == VECTORS[0, :2]).all()
    assert not examples.vectors[0, 2:].any()
    # all vectors are real unless said, and labels are asked for where they are needed
    examples = read_npz(written(tmp_path / "a.npz", x=VECTORS, y=[7, 7]))
    assert (examples.lengths.tolist(), examples.labels) == ([4, 4], ("7",))
    file = written(tmp_path / "a.npz", x=VECTORS)
    assert read_npz(file, labelled=False).classes is None
    with pytest.raises(DataError, match=r"a\.npz: the labels are missing: add an array 'y'"):
        read_npz(file)


def test_pictures_are_read(tmp_path: Path) -> None:
    for pixels, shape, dtype in (
        (np.full((2, 4, 5), 255, np.int64), (2, 4, 5, 1), np.uint8),
        (np.full((2, 4, 5, 3), 0.5), (2, 4, 5, 3), np.float32),
    ):
        examples = read_npz(written(tmp_path / "a.npz", images=pixels, y=[1, 10]))
        assert isinstance(examples, Pictures)
        assert (examples.pixels.shape, examples.pixels.dtype, examples.labels) == (shape, dtype, ("1", "10"))


@pytest.mark.parametrize(
    ("named", "message"),
    [
        ({"y": [1, 2]}, "must have pictures called 'images' or sequences of vectors called 'x', got arrays: y"),
        ({"x": VECTORS, "images": VECTORS, "y": [1, 2]}, "got arrays: "),
        ({"x": VECTORS[0], "y": [1, 2]}, r"x must be \(N, T, D\), got \(4, 3\)"),
        ({"x": VECTORS[:, :, :0], "y": [1, 2]}, r"got \(2, 4, 0\)"),
        ({"x": VECTORS[..., None], "y": [1, 2]}, r"x must be numbers \(N, T, D\), got float64 \(2, 4, 3, 1\)"),
        ({"x": VECTORS, "y": [1, 2, 3]}, r"y must be 2 whole numbers or texts, got int64 \(3,\)"),
        ({"x": VECTORS.astype(str), "y": [1, 2]}, r"x must be numbers"),
        ({"x": VECTORS, "y": [0.5, 1.5]}, "y must be 2 whole numbers or texts, got float64"),
        ({"x": VECTORS, "y": [1, 2], "lengths": [0, 4]}, "lengths must be 2 whole numbers from 1 to 4"),
        ({"x": VECTORS, "y": [1, 2], "lengths": [1, 5]}, "lengths must be 2 whole numbers from 1 to 4"),
        ({"x": np.where(VECTORS == 16, np.inf, VECTORS), "y": [1, 2]}, "vector 1 of example 1 has a value that is"),
        ({"images": VECTORS, "y": [1, 2]}, "floats from 0 to 1"),
        ({"images": np.full((2, 4, 3), 256), "y": [1, 2]}, "whole numbers from 0 to 255"),
        ({"images": np.full((2, 4, 3), np.nan), "y": [1, 2]}, "floats from 0 to 1"),
        ({"images": np.zeros((2, 4, 3, 2)), "y": [1, 2]}, "C = 1 or 3"),
        ({"x": np.array([object()] * 2), "y": [1, 2]}, "only numbers and texts are read: pad sequences"),
    ],
)
def test_arrays_that_do_not_go_together_are_refused(tmp_path: Path, named: dict[str, object], message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_npz(written(tmp_path / "a.npz", **named))


def test_files_that_are_no_npz_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "a.npz"
    with pytest.raises(DataError, match=r"a\.npz cannot be read: No such file"):
        read_npz(file)
    content = written(file, x=VECTORS, y=[1, 2]).read_bytes()
    for damaged in (b"text", content[: len(content) // 2]):
        file.write_bytes(damaged)
        with pytest.raises(DataError, match=r"a\.npz is not an \.npz, or is damaged"):
            read_npz(file)
    np.save(tmp_path / "one.npy", VECTORS)
    with pytest.raises(DataError, match=r"one\.npy is a single array"):
        read_npz(tmp_path / "one.npy")
    if hasattr(os, "mkfifo"):  # not waited for
        os.mkfifo(tmp_path / "pipe.npz")
        with pytest.raises(DataError, match=r"pipe\.npz cannot be read: it is not a regular file$"):
            read_npz(tmp_path / "pipe.npz")


def with_header(path: Path, header: bytes) -> Path:
    """An .npz whose x has this header and 16 bytes."""
    written(path, y=[1, 2])
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("x.npy", b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + bytes(16))
    return path


@pytest.mark.parametrize("shape", ["(10000, 1000, 125)", "(375000000000, 1, 1)", f"({10**30}, 1, 1)", "(2, -1, 1)"])
def test_a_header_that_says_more_than_there_is_takes_no_memory(tmp_path: Path, shape: str) -> None:
    file = with_header(tmp_path / "a.npz", f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}}}\n".encode())
    with pytest.raises(DataError, match=r"a\.npz(: x is damaged| is not an \.npz)"):
        read_npz(file)


HEADERS = [b"[" * 5000, b"{" * 200, b"9" * 6000, b"((((", b"\x00\xff", b"{'descr': " + b"(" * 900]


@pytest.mark.parametrize("header", HEADERS)
def test_a_header_that_is_none_is_refused(tmp_path: Path, header: bytes) -> None:
    with pytest.raises(DataError, match=r"a\.npz is not an \.npz, or is damaged"):
        read_npz(with_header(tmp_path / "a.npz", header))


def test_an_array_that_unpacks_to_too_much_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.savez_compressed(tmp_path / "a.npz", x=np.zeros((2, 500, 200)), y=[1, 2])
    assert len(read_npz(tmp_path / "a.npz")) == 2
    monkeypatch.setattr(readers, "MIN_UNPACKED", 60_000)
    with pytest.raises(DataError, match=r"a\.npz: x unpacks to 1,600,128 bytes"):
        read_npz(tmp_path / "a.npz")
    np.savez(tmp_path / "a.npz", x=np.zeros((2, 500, 200)), y=[1, 2])
    assert len(read_npz(tmp_path / "a.npz")) == 2
