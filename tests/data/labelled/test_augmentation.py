import numpy as np
import pytest
import torch

from attent.data.labelled.augmentation import Augmentation


def drawn(**values: float) -> np.ndarray:
    """One picture's numbers, zero but for those named."""
    names = ("down", "right", "turn", "scale", "flip")
    return np.array([[values.get(name, 0.0) for name in names]], np.float32)


def test_nothing_drawn_leaves_pictures_as_they_are() -> None:
    pictures = torch.rand(1, 5, 7, 3)
    varied = Augmentation(shift=2, turn=30, scale=0.3)(pictures, drawn())
    torch.testing.assert_close(varied, pictures)
    assert not Augmentation().changes
    assert Augmentation(flip=True).changes


def test_a_whole_shift_moves_pixels() -> None:
    pictures = torch.rand(1, 5, 7, 2)
    varied = Augmentation(shift=2)(pictures, drawn(down=1.0, right=0.5))
    torch.testing.assert_close(varied[0, :3, :6], pictures[0, 2:, 1:])
    torch.testing.assert_close(varied[0, 3:, :6], pictures[0, 4:, 1:].expand(2, 6, 2))  # the border, repeated


def test_a_right_angle_turns() -> None:
    pictures = torch.rand(1, 5, 5, 1)
    turned = Augmentation(turn=90)(pictures, drawn(turn=1.0))
    torch.testing.assert_close(turned[0], torch.rot90(pictures[0], -1 if turned[0, 0, 0].isclose(pictures[0, 4, 0]) else 1))


def test_a_turn_keeps_distances_in_pictures_that_are_not_square() -> None:
    # a dot four pixels right of the middle goes four pixels up or down
    pictures = torch.zeros(1, 9, 21, 1)
    pictures[0, 4, 14] = 1
    turned = Augmentation(turn=90)(pictures, drawn(turn=1.0))[0, :, :, 0]
    row, column = divmod(int(turned.argmax()), 21)
    assert column == 10
    assert abs(row - 4) == 4


def test_a_flip_mirrors() -> None:
    pictures = torch.rand(1, 3, 5, 1)
    augmentation = Augmentation(flip=True)
    torch.testing.assert_close(augmentation(pictures, drawn(flip=-1.0)), pictures.flip(2))
    torch.testing.assert_close(augmentation(pictures, drawn(flip=1.0)), pictures)


def test_scale_is_at_most_the_share() -> None:
    pictures = torch.zeros(1, 11, 11, 1)
    pictures[0, 5, 9] = 1
    smaller = Augmentation(scale=1.0)(pictures, drawn(scale=1.0))[0, :, :, 0]
    assert divmod(int(smaller.argmax()), 11) == (5, 7)  # four pixels from the middle become two


def test_what_is_drawn_is_a_function_of_seed_epoch_and_row() -> None:
    augmentation = Augmentation(shift=1, seed=3)
    assert np.array_equal(augmentation.drawn(7, 2), augmentation.drawn(7, 2))
    # more pictures leave the numbers of the first as they are
    assert np.array_equal(augmentation.drawn(9, 2)[:7], augmentation.drawn(7, 2))
    assert not np.array_equal(augmentation.drawn(7, 3), augmentation.drawn(7, 2))
    assert not np.array_equal(Augmentation(shift=1, seed=4).drawn(7, 2), augmentation.drawn(7, 2))
    assert augmentation.drawn(1000, 0).min() == pytest.approx(-1, abs=0.01)


def test_a_picture_does_not_depend_on_its_neighbours() -> None:
    pictures, augmentation = torch.rand(6, 5, 5, 1), Augmentation(shift=1, turn=10, scale=0.1)
    numbers = augmentation.drawn(6, 0)
    torch.testing.assert_close(augmentation(pictures[2:3], numbers[2:3]), augmentation(pictures, numbers)[2:3], rtol=0, atol=1e-6)
