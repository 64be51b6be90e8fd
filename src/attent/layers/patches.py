"""Pictures as sequences: split into patches in reading order, and joined again."""

from torch import Tensor

from attent.errors import ArgumentError, ShapeError, refuse


def patch_grid(height: int, width: int, size: int) -> tuple[int, int]:
    """Return the number of patches of a picture from top to bottom and from left to right.

    Args:
        height: the height of the picture, in pixels.
        width: the width of the picture, in pixels.
        size: P, the side of a patch in pixels, which must divide height and width.

    Raises:
        ArgumentError: the size does not divide height and width.
    """
    if size < 1 or height % size or width % size:
        raise ArgumentError(
            f"the patch size must divide the height and the width of {height} x {width} pixels, got {size}"
        )
    return height // size, width // size


def patches(pictures: Tensor, size: int) -> Tensor:
    """Split pictures into patches, each flattened to a vector: x ∈ R^(H×W×C) becomes x_p ∈ R^(T×(P²·C)), T = HW/P².

    Dosovitskiy et al. (2020), "An Image is Worth 16x16 Words", §3.1 (arXiv:2010.11929).

    Args:
        pictures: (B, H, W, C).
        size: P, see `patch_grid`.

    Returns:
        (B, T, P·P·C): the patches row by row; within a patch the pixels row by row, each with its channels.

    Raises:
        ShapeError: the pictures do not have these axes.
        ArgumentError: the size does not divide height and width.
    """
    refuse((pictures.dim() != 4, f"pictures must be (B, H, W, C), got {tuple(pictures.shape)}"), kind=ShapeError)
    batch, height, width, channels = pictures.shape
    down, across = patch_grid(height, width, size)
    cells = pictures.reshape(batch, down, size, across, size, channels).transpose(2, 3)  # (B, down, across, P, P, C)
    return cells.reshape(batch, down * across, size * size * channels)


def joined(vectors: Tensor, height: int, width: int, size: int) -> Tensor:
    """Join patches into the pictures that they were taken from.

    Args:
        vectors: the patches, (B, T, P·P·C), as `patches` returns them.
        height: the height of the pictures, in pixels.
        width: the width of the pictures, in pixels.
        size: P, see `patch_grid`.

    Returns:
        (B, H, W, C).

    Raises:
        ShapeError: the vectors do not fit pictures of this size.
        ArgumentError: the size does not divide height and width.
    """
    down, across = patch_grid(height, width, size)
    if vectors.dim() != 3 or vectors.shape[1] != down * across or vectors.shape[2] % (size * size):
        expected = f"(B, T, P·P·C) = (B, {down * across}, {size * size}·C)"
        raise ShapeError(f"the patches of {height} x {width} pixels must be {expected}, got {tuple(vectors.shape)}")
    cells = vectors.reshape(len(vectors), down, across, size, size, -1).transpose(2, 3)  # (B, down, P, across, P, C)
    return cells.reshape(len(vectors), height, width, -1)
