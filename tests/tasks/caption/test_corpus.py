import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from attent.errors import ArgumentError, DataError
from attent.tasks.caption import task as module
from attent.tasks.caption.task import CaptionCorpus, CaptionsSettings, read_captions
from attent.text.readers import MAX_LINE

Light = Callable[[str, int], np.ndarray]
Write = Callable[[Path, dict[str, int]], Path]
image = pytest.importorskip("PIL.Image", reason="Pillow is missing")


def read(source: Path, **settings: object) -> CaptionCorpus:
    return CaptionCorpus(CaptionsSettings.model_validate({"source": str(source), **settings}))


def test_parts_of_files(tmp_path: Path, light: Light, write: Write) -> None:
    data = read(write(tmp_path / "a", {"train": 5, "valid": 3, "test": 2}))
    assert {part: rows.tolist() for part, rows in data.parts.items()} == {
        "train": [0, 1, 2, 3, 4],
        "valid": [5, 6, 7],
        "test": [8, 9],
    }
    assert data.pairs[1].target == "light on the right"
    assert (data.pictures.pixels[6, ..., 0] == light("right", 101)).all()
    # fitted to the pictures to train on
    pixels = data.pictures.pixels[:5] / 255
    assert data.inputs.mean == pytest.approx([pixels.mean()])
    assert (data.inputs.height, data.inputs.width, data.inputs.patch, data.inputs.colours) == (4, 6, 2, "grey")


def test_captions_beside_pictures_are_split(tmp_path: Path, light: Light) -> None:
    for number in range(10):
        (tmp_path / str(number)).mkdir()
        image.fromarray(light("left", number)).save(tmp_path / str(number) / "a.png")
        (tmp_path / str(number) / "a.txt").write_text(f" number {number} \r\n", encoding="utf-8")
    data = read(tmp_path, validation=0.2, test=0.3, seed=3)
    assert {part: len(rows) for part, rows in data.parts.items()} == {"train": 6, "test": 3, "valid": 1}
    assert sorted(np.concatenate([*data.parts.values()]).tolist()) == list(range(10))
    for row, pair in enumerate(data.pairs):
        assert (pair.source, pair.target) == (str(tmp_path / str(row) / "a.png"), f"number {row}")
        assert (data.pictures.pixels[row, ..., 0] == light("left", row)).all()
    other = read(tmp_path, validation=0.2, test=0.3, seed=4)
    assert any(other.parts[part].tolist() != rows.tolist() for part, rows in data.parts.items())


def test_a_list_alone_is_split_too(tmp_path: Path, write: Write) -> None:
    data = read(write(tmp_path, {"train": 10}) / "train.tsv")
    assert {part: len(rows) for part, rows in data.parts.items()} == {"train": 9, "valid": 1, "test": 0}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("train0.png", r"train line 2: must be picture, tab, caption, got 'train0.png'"),
        ("train0.png\t", "must be picture, tab, caption"),
        ("train0.png\t \t", "must be picture, tab, caption"),
        ("a\tb\tc", "must be picture, tab, caption"),
        ("", "must be picture, tab, caption, got ''"),
        ("train0.png\tagain", "must list a picture once, and has .*train0.png twice"),
        ("./train0.png\tagain", "must list a picture once"),
        ("missing.png\ta", "line 2: there is no picture 'missing.png'"),
        (".\ta", "line 2: there is no picture"),
        ("../outside.png\ta", r"line 2: the picture '../outside.png' is outside of"),
        ("link.png\ta", r"line 2: the picture 'link.png' is outside of"),
        ("loop.png\ta", "there is no picture 'loop.png'"),
        ("null\0.png\ta", "there is no picture"),
        (f"{'x' * 5000}.png\ta", "there is no picture"),
        ("pipe.png\ta", "there is no picture 'pipe.png'"),
        ("broken.png\ta", "broken.png cannot be read: not a picture"),
        ("text.png\ta", "text.png cannot be read: not a picture"),
    ],
)
def test_what_a_list_must_not_have(tmp_path: Path, write: Write, line: str, message: str) -> None:
    folder = write(tmp_path / "pictures", {"train": 1})
    content = (folder / "train0.png").read_bytes()
    (tmp_path / "outside.png").write_bytes(content)
    (folder / "link.png").symlink_to(tmp_path / "outside.png")
    (folder / "loop.png").symlink_to(folder / "loop.png")
    (folder / "broken.png").write_bytes(content[:40])
    (folder / "text.png").write_text("no picture")
    os.mkfifo(folder / "pipe.png")
    (folder / "train.tsv").write_text(f"train0.png\tfirst\n{line}\n", encoding="utf-8")
    with pytest.raises(DataError, match=message) as error:
        read(folder, validation=0)
    assert "\n" not in str(error.value)


def test_what_a_folder_must_not_have(tmp_path: Path, light: Light, monkeypatch: pytest.MonkeyPatch) -> None:
    needed = r"must be a \.tsv or a folder with pictures and captions, and has none"
    for source in (tmp_path / "missing", tmp_path):
        with pytest.raises(DataError, match=needed):
            read_captions(str(source))
    image.fromarray(light("left", 0)).save(tmp_path / "a.png")
    with pytest.raises(DataError, match=r"a\.txt cannot be read"):
        read_captions(str(tmp_path))
    for content in ("", " \n", "a\tb"):
        (tmp_path / "a.txt").write_text(content)
        with pytest.raises(DataError, match=r"train line 1: must be picture, tab, caption, got 'a\.png\\t"):
            read_captions(str(tmp_path))
    (tmp_path / "a.txt").write_text("one\ntwo\n")
    with pytest.raises(DataError, match=r"must list a picture once, and has .*a\.png twice"):
        read(tmp_path)
    (tmp_path / "a.txt").write_bytes(b"x" * (MAX_LINE + 1))
    with pytest.raises(DataError, match=r"longer than|too long|bytes"):
        read_captions(str(tmp_path))
    (tmp_path / "train.tsv").write_text("")
    with pytest.raises(DataError, match=needed):
        read_captions(str(tmp_path))
    (tmp_path / "train.tsv").write_text("a.png\ta\n")
    (tmp_path / "valid.tsv").write_text("a.png\tb\n")
    with pytest.raises(DataError, match="must list a picture once"):
        read(tmp_path)
    (tmp_path / "valid.tsv").unlink()
    monkeypatch.setattr(module, "MAX_PIXELS", 4 * 6 - 1)
    with pytest.raises(DataError, match="1 pictures of 4 x 6 pixels are too large: give --size"):
        read(tmp_path, validation=0)
    monkeypatch.undo()
    image.fromarray(light("left", 0)[:3]).save(tmp_path / "b.png")
    (tmp_path / "train.tsv").write_text("a.png\ta\nb.png\tb\n")
    with pytest.raises(ArgumentError, match="differ in height and width"):
        read(tmp_path, validation=0)
    assert read(tmp_path, validation=0, size=4).pictures.pixels.shape == (2, 4, 4, 1)
    with pytest.raises(DataError, match="2 pictures of 16385 x 16385 pixels are too large"):
        read(tmp_path, validation=0, size=2**14 + 1)


@pytest.mark.parametrize(("size", "patch"), [((16, 16), 4), ((32, 32), 8), ((24, 32), 8), ((8, 8), 2)])
def test_a_picture_has_up_to_sixteen_regions(tmp_path: Path, size: tuple[int, int], patch: int) -> None:
    image.fromarray(np.zeros(size, np.uint8)).save(tmp_path / "a.png")
    (tmp_path / "a.txt").write_text("a")
    assert read(tmp_path, validation=0).inputs.patch == patch
    assert read(tmp_path, validation=0, patch=2).inputs.patch == 2
    with pytest.raises(ArgumentError, match="must divide"):
        read(tmp_path, validation=0, patch=3)
