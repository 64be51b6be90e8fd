import pytest
import torch

from attent.errors import ArgumentError, ShapeError
from attent.layers.patches import joined, patch_grid, patches


@pytest.mark.parametrize(
    ("height", "width", "channels", "size"), [(6, 4, 3, 2), (8, 8, 1, 2), (3, 5, 2, 1), (7, 7, 1, 7)]
)
def test_patches_are_joined_to_the_same_pictures(height: int, width: int, channels: int, size: int) -> None:
    pictures = torch.randn(2, height, width, channels)
    cut = patches(pictures, size)
    assert cut.shape == (2, height * width // size**2, size * size * channels)
    assert joined(cut, height, width, size).equal(pictures)


def test_patches_are_in_reading_order() -> None:
    pixels = torch.arange(24.0).reshape(1, 4, 6, 1)
    assert patches(pixels, 2)[0, :4].tolist() == [[0, 1, 6, 7], [2, 3, 8, 9], [4, 5, 10, 11], [12, 13, 18, 19]]


def test_channels_of_a_pixel_stand_together() -> None:
    pixels = torch.arange(8.0).reshape(1, 2, 2, 2)
    assert patches(pixels, 2)[0, 0].tolist() == [*range(8)]


def test_a_patch_must_divide_the_picture() -> None:
    assert patch_grid(6, 4, 2) == (3, 2)
    with pytest.raises(ArgumentError, match=r"must divide the height and the width of 6 x 4 pixels, got 3"):
        patches(torch.zeros(1, 6, 4, 1), 3)
    with pytest.raises(ArgumentError, match="got 0"):
        patch_grid(6, 4, 0)


def test_shapes_are_checked() -> None:
    with pytest.raises(ShapeError, match=r"\(B, H, W, C\), got \(6, 4\)"):
        patches(torch.zeros(6, 4), 2)
    with pytest.raises(ShapeError, match=r"\(B, 6, 4·C\), got \(1, 5, 4\)"):
        joined(torch.zeros(1, 5, 4), 6, 4, 2)
