"""Labeled pictures: scikit-learn's digits, or a folder with a folder for each class; and their augmentation."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from attent.errors import ArgumentError, DataError, needs

if TYPE_CHECKING:
    from PIL.Image import Image

Colours = Literal["grey", "rgb"]
CHANNELS: dict[Colours, int] = {"grey": 1, "rgb": 3}
# Pillow's modes of pictures without colors.
GREY = ("1", "L", "LA", "I", "I;16", "I;16B", "I;16L")
# The brightest value of a pixel of scikit-learn's digits.
DIGITS_TOP = 16
# The random numbers of each picture: two shifts, a rotation, a scale, a flip.
PARAMETERS = 5
# Separates these random numbers from those that shuffle.
STREAM = 0x7075


@dataclass(frozen=True)
class Pictures:
    """Pictures of one size, and the class of each.

    Args:
        pixels: (N, H, W, C) with C = 1 (grey) or 3 (red, green, blue), bytes from 0 to 255 or float32 from 0 to 1.
        classes: the index of each picture's class, (N,); None if unknown.
        labels: the names of the classes.
        remarks: remarks on skipped files, for the user.
    """

    pixels: np.ndarray
    classes: np.ndarray | None
    labels: tuple[str, ...]
    remarks: tuple[str, ...] = field(default=())

    def __len__(self) -> int:
        return len(self.pixels)

    def select(self, rows: Sequence[int]) -> Pictures:
        """Return some of the pictures, without their classes."""
        return Pictures(self.pixels[rows], None, ())


@dataclass(frozen=True)
class Augmentation:
    """Random shifts, rotations, scales and flips of pictures.

    They depend only on (seed, epoch, row), so that a run can be resumed.

    Args:
        shift: the maximum shift up, down, left and right, in pixels.
        turn: the maximum rotation in either direction, in degrees.
        scale: the maximum share by which a picture grows or shrinks.
        flip: whether pictures are mirrored left to right half of the time.
        seed: the seed of the random numbers.
    """

    shift: float = 0.0
    turn: float = 0.0
    scale: float = 0.0
    flip: bool = False
    seed: int = 0

    @property
    def is_active(self) -> bool:
        """Return whether any transformation is enabled."""
        return bool(self.shift or self.turn or self.scale or self.flip)

    def sample(self, count: int, epoch: int) -> np.ndarray:
        """Draw the random numbers of an epoch for `count` pictures, (N, 5), from -1 to 1."""
        generator = np.random.default_rng((self.seed, epoch, STREAM))
        return generator.uniform(-1, 1, (count, PARAMETERS)).astype(np.float32)

    def __call__(self, pictures: Tensor, parameters: np.ndarray) -> Tensor:
        """Transform float32 pictures (B, H, W, C) by their rows of `sample`.

        Pixels from outside a picture repeat its border.
        """
        height, width = pictures.shape[1:3]
        down, right, rotation, scale, flip = torch.from_numpy(parameters).unbind(1)
        angle, zoom = rotation * math.radians(self.turn), torch.exp(scale * math.log1p(self.scale))
        mirror = torch.where(flip < 0, -1.0, 1.0) if self.flip else torch.ones(())
        # inverse map: coordinates run from -1 to 1 over the height and over the width, which may differ
        cosine, sine = torch.cos(angle) * zoom, torch.sin(angle) * zoom
        x_map = torch.stack((cosine * mirror, -sine * (height / width) * mirror, 2 * self.shift / width * right), 1)
        y_map = torch.stack((sine * (width / height), cosine, 2 * self.shift / height * down), 1)
        planes = pictures.permute(0, 3, 1, 2)
        grid = F.affine_grid(torch.stack((x_map, y_map), 1), list(planes.shape), align_corners=False)
        return F.grid_sample(planes, grid, padding_mode="border", align_corners=False).permute(0, 2, 3, 1)


def to_unit_range(pixels: np.ndarray) -> np.ndarray:
    """Convert pixels to float32 from 0 to 1."""
    return pixels.astype(np.float32) / 255 if pixels.dtype == np.uint8 else pixels


def load_digits() -> Pictures:
    """Load 1,797 handwritten digits of 8 x 8 pixels, which come with scikit-learn.

    Source: Alpaydin and Kaynak (1998), "Optical Recognition of Handwritten Digits", UCI Machine Learning Repository,
    test set.

    Raises:
        AttentError: scikit-learn is not installed.
    """
    with needs("the digits come with scikit-learn", "images"):
        from sklearn import datasets
    content: Any = datasets.load_digits()
    pixels = (content.images / DIGITS_TOP).astype(np.float32)[..., None]
    return Pictures(pixels, content.target.astype(np.int64), tuple(map(str, content.target_names)))


def read_folder(path: Path | str, size: tuple[int, int] | None = None, colours: Colours | None = None) -> Pictures:
    """Read pictures from a folder with a folder for each class, named after its label.

    Files with an extension that Pillow knows are read, in nested folders too; others are skipped with a remark.

    Args:
        path: the folder.
        size: the height and width in pixels to resize to; if not given, all pictures must have the same size.
        colours: grey or rgb; if not given, grey if all pictures are.

    Raises:
        ArgumentError: the pictures differ in size, and no size is given.
        AttentError: Pillow is not installed.
        DataError: there is no such folder, it has fewer than two classes, a class has no picture, or one cannot be
            read.
    """
    path = Path(path)
    if not path.is_dir():
        raise DataError(f"{path} is not a folder of pictures")
    class_files = {
        subfolder.name: _split_files(subfolder)
        for subfolder in sorted(path.iterdir())
        if subfolder.is_dir() and not subfolder.name.startswith(".")
    }
    if len(class_files) < 2:
        raise DataError(
            f"{path} must have a folder of pictures for each of at least two classes, got {len(class_files)}"
        )
    # undecodable bytes of a name are surrogates
    if invalid := [
        name
        for name in class_files
        if not name.isascii() and any("\ud800" <= character <= "\udfff" for character in name)
    ]:
        raise DataError(f"{path}: a folder's name is not UTF-8 and cannot be a label: {invalid[0]!r}")
    if empty := [name for name, (files, _) in class_files.items() if not files]:
        raise DataError(f"{path / empty[0]} has no picture")
    skipped = [
        *(file for _, files in class_files.values() for file in files),
        *(file for file in sorted(path.iterdir()) if _is_visible(file)),
    ]
    pictures = [file for files, _ in class_files.values() for file in files]
    classes = np.repeat(np.arange(len(class_files)), [len(files) for files, _ in class_files.values()])
    remarks = (
        (f"{path}: skipped {len(skipped):,} files that are not pictures ({skipped[0].name}, …)",) if skipped else ()
    )
    return Pictures(read_pixels(pictures, size, colours), classes, tuple(class_files), remarks)


def picture_files(path: Path) -> list[Path]:
    """Return the files of a folder and its nested folders that have picture extensions."""
    return _split_files(path)[0]


def read_pixels(
    files: Sequence[Path], size: tuple[int, int] | None = None, colours: Colours | None = None
) -> np.ndarray:
    """Read picture files as bytes, (N, H, W, C); options and errors are those of `read_folder`."""
    images: list[Image] = []
    for file in files:
        image = open_picture(file)
        if size is None and images and image.size != images[0].size:
            size_text, first_size = (f"{height} x {width}" for width, height in (image.size, images[0].size))
            raise ArgumentError(
                f"pictures differ in height and width, {file} {size_text} and {files[0]} {first_size}: give --size to "
                "resize all of them"
            )
        images.append(resize(image, size))
    colours = colours or ("grey" if all(image.mode == "L" for image in images) else "rgb")
    mode = "L" if colours == "grey" else "RGB"
    return np.stack(
        [np.asarray(image.convert(mode)).reshape(image.size[1], image.size[0], CHANNELS[colours]) for image in images]
    )


def open_picture(file: Path) -> Image:
    """Open a picture in mode L or RGB, rotated according to its EXIF data, with transparent pixels on white.

    Raises:
        AttentError: Pillow is not installed.
        DataError: the picture cannot be read.
    """
    with needs("pictures need Pillow", "images"):
        from PIL import Image, ImageOps
    try:
        with warnings.catch_warnings():
            # refuse decompression bombs like damaged pictures
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(file) as picture:
                return _to_opaque(ImageOps.exif_transpose(picture))
    except (
        OSError,
        ValueError,
        SyntaxError,
        EOFError,
        Image.DecompressionBombError,
        Image.DecompressionBombWarning,
    ) as error:
        reason = (
            error.strerror
            if isinstance(error, OSError) and error.strerror
            else "not a picture that Pillow can read, or damaged"
        )
        raise DataError(f"{file} cannot be read: {reason}") from error


def resize(picture: Image, size: tuple[int, int] | None) -> Image:
    """Resize a picture to a height and width in pixels; None leaves it unchanged."""
    if size is None:
        return picture
    from PIL import Image

    height, width = size
    return picture.resize((width, height), Image.Resampling.BILINEAR)


def _to_opaque(picture: Image) -> Image:
    from PIL import Image

    is_grey = picture.mode in GREY
    if picture.mode.startswith("I"):
        # 16 bits per pixel
        return Image.fromarray(
            (np.asarray(picture).astype(np.float64) / 257).clip(0, 255).round().astype(np.uint8), "L"
        )
    if picture.has_transparency_data:
        picture = Image.alpha_composite(Image.new("RGBA", picture.size, "white"), picture.convert("RGBA"))
    return picture.convert("L" if is_grey else "RGB")


def _split_files(path: Path) -> tuple[list[Path], list[Path]]:
    """Return the files of a folder that have picture extensions, and the others."""
    with needs("pictures need Pillow", "images"):
        from PIL import Image

    endings = Image.registered_extensions()
    files = sorted(file for file in path.rglob("*") if _is_visible(file))
    return [file for file in files if file.suffix.lower() in endings], [
        file for file in files if file.suffix.lower() not in endings
    ]


def _is_visible(file: Path) -> bool:
    return file.is_file() and not file.name.startswith(".")
