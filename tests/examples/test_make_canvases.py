from itertools import product
from pathlib import Path

import numpy as np
import pytest
from make_canvases import HELD_OUT_PAIRS, NAMES, POSITIONS, Canvas, canvases, main, write_canvases

from attent.errors import ArgumentError
from attent.tasks.caption.task import read_captions

pytest.importorskip("sklearn", reason="the digits come with scikit-learn")


def digits(canvas: Canvas) -> dict[int, tuple[int, np.ndarray]]:
    """The digit and its image at each position that the caption names."""
    pixels, caption = canvas
    named = {}
    for part in caption.split(" , "):
        name, position = part.split(maxsplit=1)
        top, left = 8 * (POSITIONS.index(position) // 2), 8 * (POSITIONS.index(position) % 2)
        named[POSITIONS.index(position)] = NAMES.index(name), pixels[top : top + 8, left : left + 8]
    return named


def images(drawn: list[Canvas]) -> set[bytes]:
    return {image.tobytes() for canvas in drawn for _, image in digits(canvas).values()}


def has_pair(canvas: Canvas) -> bool:
    classes = {digit for digit, _ in digits(canvas).values()}
    return any({*pair} <= classes for pair in HELD_OUT_PAIRS)


def test_digits_and_pairs_are_held_out() -> None:
    parts = canvases(300, 60, seed=1)
    assert {name: len(drawn) for name, drawn in parts.items()} == {
        "train": 300,
        "valid": 60,
        "test": 60,
        "combinations": 60,
    }
    of_parts = {name: images(drawn) for name, drawn in parts.items()}
    for first, second in product(of_parts, repeat=2):
        if first < second and {first, second} != {"combinations", "test"}:
            assert not of_parts[first] & of_parts[second]
    assert all(map(has_pair, parts["combinations"]))
    assert not any(map(has_pair, parts["train"] + parts["valid"] + parts["test"]))
    # every digit and every number of digits occurs
    named = [digits(canvas) for canvas in parts["train"]]
    assert {digit for canvas in named for digit, _ in canvas.values()} == {*range(10)}
    assert {len(canvas) for canvas in named} == {1, 2, 3, 4}


def test_a_caption_names_the_digits_in_reading_order() -> None:
    from attent.tasks.classification.pictures import load_digits

    known = load_digits()
    assert known.classes is not None
    classes = {
        np.rint(image * 255).astype(np.uint8).tobytes(): int(digit)
        for image, digit in zip(known.pixels, known.classes, strict=True)
    }
    for canvas in canvases(50, 1)["train"]:
        named = digits(canvas)
        assert [*named] == sorted(named)
        assert all(classes[image.tobytes()] == digit for digit, image in named.values())
        empty = canvas[0].reshape(2, 8, 2, 8).any((1, 3)).flatten()
        assert np.flatnonzero(empty).tolist() == [*named]


def test_the_seed_decides() -> None:
    first, same, other = (canvases(20, 1, seed)["train"] for seed in (0, 0, 1))
    assert [caption for _, caption in first] == [caption for _, caption in same]
    assert [caption for _, caption in first] != [caption for _, caption in other]


def test_files(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image", reason="Pillow is missing")
    parts = canvases(3, 2)
    write_canvases(tmp_path / "new", parts)
    pairs = read_captions(str(tmp_path / "new"))
    assert {name: len(of_part) for name, of_part in pairs.items()} == {"train": 3, "valid": 2, "test": 2}
    for pair, (pixels, caption) in zip(pairs["train"], parts["train"], strict=True):
        assert pair.target == caption
        assert (np.asarray(image.open(pair.source)) == pixels).all()
    (tmp_path / "file").write_text("")
    with pytest.raises(ArgumentError, match="cannot be written"):
        write_canvases(tmp_path / "file" / "canvases", parts)


def test_the_script_writes_the_parts_and_refuses_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["make_canvases.py"])
    out = tmp_path / "new"
    main(["--out", str(out), "--pictures", "7", "--held-out", "2", "--seed", "3"])
    parts = "7 pictures of train, 2 pictures of valid, 2 pictures of test, 2 pictures of combinations"
    assert capsys.readouterr().out == f"{parts}, in {out}\n"
    name, caption = (out / "combinations.tsv").read_text(encoding="utf-8").splitlines()[1].split("\t")
    assert (out / name).is_file() and " , " in caption
    refused = {"--pictures=0": "argument --pictures: must be at least 1, got 0", "--size=2": "arguments: --size=2"}
    for option, message in refused.items():
        with pytest.raises(SystemExit) as exited:
            main(["--out", str(tmp_path / "none"), option])
        (line,) = capsys.readouterr().err.splitlines()
        assert exited.value.code == 2 and line.startswith("make_canvases.py: ") and line.endswith(message)
    assert not (tmp_path / "none").exists()
