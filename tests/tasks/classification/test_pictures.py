from pathlib import Path

import numpy as np
import pytest
import torch

from attent.errors import ArgumentError, DataError
from attent.tasks.classification.pictures import (
    Augmentation,
    open_picture,
    read_folder,
    read_pixels,
    to_unit_range,
)

Image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")


def drawn(path: Path, pixels: np.ndarray) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)
    return path


def grey(value: int, height: int = 4, width: int = 6) -> np.ndarray:
    return np.full((height, width), value, np.uint8)


def test_a_folder_of_class_folders_is_read(tmp_path: Path) -> None:
    drawn(tmp_path / "cat" / "b.png", grey(7))
    drawn(tmp_path / "cat" / "a.png", grey(5))
    drawn(tmp_path / "ape" / "deep" / "c.bmp", grey(9))
    (tmp_path / "cat" / ".DS_Store").write_text("x")
    result = read_folder(tmp_path)
    assert result.labels == ("ape", "cat")
    assert result.classes.tolist() == [0, 1, 1]
    assert (result.pixels.shape, result.pixels.dtype) == ((3, 4, 6, 1), np.uint8)
    assert result.pixels[:, 0, 0, 0].tolist() == [9, 5, 7]
    assert result.remarks == ()
    assert to_unit_range(result.pixels)[0, 0, 0, 0] == pytest.approx(9 / 255)
    (tmp_path / "cat" / "notes.txt").write_text("x")
    (tmp_path / "README").write_text("x")
    assert read_folder(tmp_path).remarks == (f"{tmp_path}: skipped 2 files that are not pictures (notes.txt, …)",)


def test_transparency_deep_pixels_and_a_turned_camera(tmp_path: Path) -> None:
    pixels = np.zeros((4, 6, 4), np.uint8)
    pixels[0, 0, 3] = 255
    # what can be seen through lies on white
    picture = np.asarray(open_picture(drawn(tmp_path / "a.png", pixels)))
    assert picture[0, :2].tolist() == [[0, 0, 0], [255, 255, 255]]
    # sixteen bits become eight
    file = drawn(tmp_path / "b.png", np.full((4, 6), 128 * 257, np.uint16))
    assert np.unique(read_pixels([file])).tolist() == [128]
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned by a right angle
    Image.fromarray(grey(7)).save(tmp_path / "c.png", exif=exif)
    assert open_picture(tmp_path / "c.png").size == (4, 6)


def test_one_picture_with_colours_makes_all_rgb(tmp_path: Path) -> None:
    files = [drawn(tmp_path / "a.png", grey(7)), drawn(tmp_path / "b.png", np.full((4, 6, 3), (1, 2, 3), np.uint8))]
    assert read_pixels(files)[:, 0, 0].tolist() == [[7, 7, 7], [1, 2, 3]]
    assert read_pixels(files, colours="grey").shape == (2, 4, 6, 1)
    assert read_pixels(files[:1], colours="rgb").shape == (1, 4, 6, 3)


def test_sizes_that_differ_need_one(tmp_path: Path) -> None:
    files = [drawn(tmp_path / "a.png", grey(7)), drawn(tmp_path / "b.png", grey(9, 8, 8))]
    with pytest.raises(ArgumentError, match=r"b\.png 8 x 8 and .*a\.png 4 x 6: give --size"):
        read_pixels(files)
    assert read_pixels(files, (5, 3)).shape == (2, 5, 3, 1)


def test_a_picture_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    for name in ("cat", "dog"):
        drawn(tmp_path / name / "a.png", grey(5))
    whole = (tmp_path / "cat" / "a.png").read_bytes()
    for content in (b"no picture", whole[:40], whole[: len(whole) // 2]):
        (tmp_path / "dog" / "b.png").write_bytes(content)
        with pytest.raises(DataError, match=r"b\.png cannot be read: not a picture that Pillow can read, or damaged$"):
            read_folder(tmp_path)
    with pytest.raises(DataError, match=r"c\.png cannot be read: No such file"):
        read_pixels([tmp_path / "c.png"])


def test_folders_without_classes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="is not a folder of pictures"):
        read_folder(tmp_path / "nowhere")
    drawn(tmp_path / "cat" / "a.png", grey(5))
    with pytest.raises(DataError, match="each of at least two classes, got 1"):
        read_folder(tmp_path)
    (tmp_path / "dog").mkdir()
    with pytest.raises(DataError, match="dog has no picture"):
        read_folder(tmp_path)
    try:
        (tmp_path / "caf\udce9").mkdir()
    except OSError:
        pytest.skip("this file system takes names of UTF-8 alone")
    with pytest.raises(DataError, match=r"a folder's name is not UTF-8 and cannot be a label: 'caf\\udce9'"):
        read_folder(tmp_path)


def varied(augmentation: Augmentation, tensor: torch.Tensor, **values: float) -> torch.Tensor:
    """One picture changed by these numbers, the others being zero."""
    numbers = [[values.get(name, 0.0) for name in ("down", "right", "turn", "scale", "flip")]]
    return augmentation(tensor, np.array(numbers, np.float32))


def test_shifts_turns_and_flips_by_hand() -> None:
    tensor = torch.rand(1, 5, 7, 2)
    torch.testing.assert_close(varied(Augmentation(shift=2, turn=30, scale=0.3), tensor), tensor)
    assert not Augmentation().is_active
    shifted = varied(Augmentation(shift=2), tensor, down=1.0, right=0.5)
    torch.testing.assert_close(shifted[0, :3, :6], tensor[0, 2:, 1:])
    torch.testing.assert_close(shifted[0, 3:, :6], tensor[0, 4:, 1:].expand(2, 6, 2))  # the border, repeated
    flipped = Augmentation(flip=True)
    assert flipped.is_active
    torch.testing.assert_close(varied(flipped, tensor, flip=-1.0), tensor.flip(2))
    torch.testing.assert_close(varied(flipped, tensor, flip=1.0), tensor)
    square = tensor[:, :, :5]
    rotated = varied(Augmentation(turn=90), square, turn=1.0)[0]
    torch.testing.assert_close(rotated, torch.rot90(square[0], -1 if rotated[0, 0].allclose(square[0, 4, 0]) else 1))


def test_distances_are_kept_by_a_turn_and_scaled_by_at_most_the_share() -> None:
    # a dot four pixels right of the middle goes four pixels up or down, also where pictures are not square
    tensor = torch.zeros(1, 9, 21, 1)
    tensor[0, 4, 14] = 1
    row, column = divmod(int(varied(Augmentation(turn=90), tensor, turn=1.0).argmax()), 21)
    assert (abs(row - 4), column) == (4, 10)
    tensor = torch.zeros(1, 11, 11, 1)
    tensor[0, 5, 9] = 1
    # four pixels from the middle become two
    assert divmod(int(varied(Augmentation(scale=1.0), tensor, scale=1.0).argmax()), 11) == (5, 7)


def test_what_is_drawn_is_a_function_of_seed_epoch_and_row() -> None:
    augmentation = Augmentation(shift=1, seed=3)
    assert np.array_equal(augmentation.sample(7, 2), augmentation.sample(7, 2))
    # more tensor leave the numbers of the first as they are
    assert np.array_equal(augmentation.sample(9, 2)[:7], augmentation.sample(7, 2))
    assert not np.array_equal(augmentation.sample(7, 3), augmentation.sample(7, 2))
    assert not np.array_equal(Augmentation(shift=1, seed=4).sample(7, 2), augmentation.sample(7, 2))
    assert augmentation.sample(1000, 0).min() == pytest.approx(-1, abs=0.01)
