"""Pictures with a label each: scikit-learn's digits, or a folder of class folders."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from attent.errors import ArgumentError, AttentError, DataError

if TYPE_CHECKING:
    from PIL.Image import Image

Colours = Literal["grey", "rgb"]
CHANNELS: dict[Colours, int] = {"grey": 1, "rgb": 3}
# What a picture of each of Pillow's modes is read as, unless somebody says otherwise; the others have colours.
GREY = ("1", "L", "LA", "I", "I;16", "I;16B", "I;16L")
# The brightest value of a pixel of scikit-learn's digits.
DIGITS_TOP = 16


@dataclass(frozen=True)
class Pictures:
    """Pictures of one size, and the class of each.

    Args:
        pixels: (N, H, W, C) with C = 1 (grey) or 3 (red, green, blue), bytes from 0 to 255 or float32 from 0 to 1.
        classes: the number of each one's class, (N,); None where nobody has said it.
        labels: the classes' names.
        remarks: what was passed over, for a person.
    """

    pixels: np.ndarray
    classes: np.ndarray | None
    labels: tuple[str, ...]
    remarks: tuple[str, ...] = field(default=())

    def __len__(self) -> int:
        return len(self.pixels)


def shares(pixels: np.ndarray) -> np.ndarray:
    """Pixels as float32 from 0 to 1."""
    return pixels.astype(np.float32) / 255 if pixels.dtype == np.uint8 else pixels


def digits() -> Pictures:
    """1,797 written digits of 8 x 8 pixels, which come with scikit-learn.

    Alpaydin and Kaynak (1998), "Optical Recognition of Handwritten Digits", UCI Machine Learning Repository, its test part.

    Raises:
        AttentError: scikit-learn is not installed.
    """
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise AttentError("the digits come with scikit-learn: pip install 'attent[images]'") from error
    found: Any = load_digits()
    pixels = (found.images / DIGITS_TOP).astype(np.float32)[..., None]
    return Pictures(pixels, found.target.astype(np.int64), tuple(map(str, found.target_names)))


def folder(path: Path | str, size: tuple[int, int] | None = None, colours: Colours | None = None) -> Pictures:
    """The pictures of a folder that has a folder for each class, whose name is the label.

    Files that Pillow knows by their names' endings are read, in sub-folders too; what else lies there is passed over and said.

    Args:
        path: the folder.
        size: height and width in pixels that all are brought to; unless given, all must have one size.
        colours: grey or rgb; unless given, grey where all of them are.

    Raises:
        ArgumentError: the pictures differ in size, and no size is given.
        AttentError: Pillow is not installed.
        DataError: there is no such folder, it has fewer than two classes, a class has no picture, or one cannot be read.
    """
    path = Path(path)
    if not path.is_dir():
        raise DataError(f"{path} is no folder of pictures")
    of_class = {place.name: _divided(place) for place in sorted(path.iterdir()) if place.is_dir() and not place.name.startswith(".")}
    if len(of_class) < 2:
        raise DataError(f"{path} must have a folder of pictures for each of two classes or more, got {len(of_class)}")
    # undecodable bytes of a name are surrogates
    if wrong := [name for name in of_class if not name.isascii() and any("\ud800" <= character <= "\udfff" for character in name)]:
        raise DataError(f"{path}: a folder's name is not UTF-8, and no label: {wrong[0]!r}")
    if empty := [name for name, (files, _) in of_class.items() if not files]:
        raise DataError(f"{path / empty[0]} has no picture")
    passed = [*(place for _, others in of_class.values() for place in others), *(p for p in sorted(path.iterdir()) if _counts(p))]
    files = [file for found, _ in of_class.values() for file in found]
    classes = np.repeat(np.arange(len(of_class)), [len(found) for found, _ in of_class.values()])
    said = (f"{path}: {len(passed):,} files that are no pictures passed over ({passed[0].name}, …)",) if passed else ()
    return Pictures(read(files, size, colours), classes, tuple(of_class), said)


def pictures_in(place: Path) -> list[Path]:
    """The files of a folder, and of those in it, that are called as pictures are."""
    return _divided(place)[0]


def read(files: Sequence[Path], size: tuple[int, int] | None = None, colours: Colours | None = None) -> np.ndarray:
    """Some pictures as bytes, (N, H, W, C); arguments and errors as for `folder`."""
    found: list[Image] = []
    for file in files:
        picture = opened(file)
        if size is None and found and picture.size != found[0].size:
            here, there = (f"{one.size[1]} x {one.size[0]}" for one in (picture, found[0]))
            raise ArgumentError(
                f"pictures differ in height and width, {file} {here} and {files[0]} {there}: --size says what all are brought to"
            )
        found.append(resized(picture, size))
    colours = colours or ("grey" if all(picture.mode == "L" for picture in found) else "rgb")
    mode = "L" if colours == "grey" else "RGB"
    return np.stack([np.asarray(picture.convert(mode)).reshape(picture.size[1], picture.size[0], CHANNELS[colours]) for picture in found])


def opened(file: Path) -> Image:
    """One picture, turned as its camera says, of mode L or RGB; what can be seen through lies on white.

    Raises:
        AttentError: Pillow is not installed.
        DataError: it cannot be read.
    """
    try:
        from PIL import Image, ImageOps
    except ImportError as error:
        raise AttentError("pictures need Pillow: pip install 'attent[images]'") from error
    try:
        with warnings.catch_warnings():
            # a picture of a size that only a bomb has is refused like any that cannot be read
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(file) as picture:
                return _plain(ImageOps.exif_transpose(picture))
    except (OSError, ValueError, SyntaxError, EOFError, Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else "no picture that Pillow knows, or a damaged one"
        raise DataError(f"{file} cannot be read: {reason}") from error


def resized(picture: Image, size: tuple[int, int] | None) -> Image:
    """A picture of this height and width, in pixels; as it is where no size is given."""
    if size is None:
        return picture
    from PIL import Image

    height, width = size
    return picture.resize((width, height), Image.Resampling.BILINEAR)


def _plain(picture: Image) -> Image:
    from PIL import Image

    grey = picture.mode in GREY
    if picture.mode.startswith("I"):
        # 16 bits a pixel
        return Image.fromarray((np.asarray(picture).astype(np.float64) / 257).clip(0, 255).round().astype(np.uint8), "L")
    if picture.has_transparency_data:
        paper = Image.new("RGBA", picture.size, "white")
        picture = Image.alpha_composite(paper, picture.convert("RGBA"))
    return picture.convert("L" if grey else "RGB")


def _divided(place: Path) -> tuple[list[Path], list[Path]]:
    """The files of a folder that are called as pictures are, and the others."""
    endings = _endings()
    files = sorted(file for file in place.rglob("*") if _counts(file))
    return [file for file in files if file.suffix.lower() in endings], [file for file in files if file.suffix.lower() not in endings]


def _counts(file: Path) -> bool:
    return file.is_file() and not file.name.startswith(".")


def _endings() -> frozenset[str]:
    try:
        from PIL import Image
    except ImportError as error:
        raise AttentError("pictures need Pillow: pip install 'attent[images]'") from error
    return frozenset(Image.registered_extensions())
