"""Plates with their words, the page that they make, and the plates that need no training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from gallery import __main__ as script
from gallery import plates, positions, registrar, salary
from gallery.drawing import sheet
from gallery.plates import Plate, Words, page, words, write

from attent.errors import ArgumentError, UnknownNameError
from attent.views.build_scene import build_scene

WORDS = Words("Title", "what is drawn", "a run", "a sight", "a caution")


def test_a_plate_is_kept_with_its_words_beside_the_others(tmp_path: Path) -> None:
    assert words(tmp_path) == {}
    paths = [write(Plate(name, WORDS._replace(title=name), sheet(1, 1)), tmp_path) for name in ("second", "first")]
    assert [path.read_bytes()[:4] for path in paths] == [b"\x89PNG"] * 2
    assert words(tmp_path) == {name: WORDS._replace(title=name) for name in ("first", "second")}
    once, repeated = (write(Plate("plate", WORDS, sheet(1, 1)), tmp_path).read_bytes() for _ in range(2))
    assert once == repeated


def test_a_picture_too_large_for_the_repository_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plates, "LARGEST", 100)
    with pytest.raises(ArgumentError, match=r"plate\.png has .* bytes, more than 100"):
        write(Plate("plate", WORDS, sheet(1, 1)), tmp_path)
    assert not list(tmp_path.iterdir())


def test_the_page_has_every_plate_in_order_with_its_words(tmp_path: Path) -> None:
    folder = tmp_path / "pictures"
    scene = build_scene({"layer.0": torch.full((2, 3, 3), 1 / 3)}, ["a", "b", "c"])
    write(Plate("b", WORDS._replace(title="B"), sheet(1, 1), scene), folder)
    write(Plate("a", WORDS, sheet(1, 1)), folder)
    text = page(folder, ["a", "never drawn", "b"])
    assert text.index("## Title") < text.index("## B")
    assert "[![what is drawn](pictures/a.png)](pictures/a.png)" in text
    assert "**What was run.** a run\n\n**What the picture shows.** a sight" in text
    assert "a sight\n\n**What not to conclude.** a caution" in text
    assert "never drawn" not in text
    assert "(pictures/b.html)" in text
    assert "(pictures/a.html)" not in text
    assert (folder / "b.html").read_text(encoding="utf-8").startswith("<!DOCTYPE html>")


ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_plates_that_are_named_are_drawn_and_the_others_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UnknownNameError, match="registrar"):
        script.main(["positions", "registar"], tmp_path, tmp_path, tmp_path)
    assert not list(tmp_path.iterdir())
    monkeypatch.setattr(script, "PAGE", tmp_path / "gallery.md")
    monkeypatch.setattr(script, "PICTURES", tmp_path / "gallery")
    for names in (["positions"], ["registrar"]):
        script.main(names, tmp_path, tmp_path, tmp_path / "none.json")
    text = (tmp_path / "gallery.md").read_text(encoding="utf-8")
    assert text.index("A database with exact") < text.index("The sinusoidal position matrix")


def test_the_page_of_the_repository_is_what_the_words_of_its_plates_make() -> None:
    names = [*script.plates(Path(), Path(), Path())]
    stored = words(ROOT / "docs" / "gallery")
    assert sorted(stored) == sorted(names)
    assert (ROOT / "docs" / "gallery.md").read_text(encoding="utf-8") == script.page(
        ROOT / "docs" / "gallery", names
    ), "run make gallery"
    pictures = [*(ROOT / "docs" / "gallery").glob("*.png")]
    assert sorted(picture.stem for picture in pictures) == sorted(names)
    assert sum(file.stat().st_size for file in (ROOT / "docs" / "gallery").iterdir()) < 3 * 2**20


@pytest.mark.slow
@pytest.mark.parametrize("size", [(1280, 800), (390, 844)], ids=["desk", "hand"])
@pytest.mark.parametrize("file", sorted((ROOT / "docs" / "gallery").glob("*.html")), ids=lambda file: file.stem)
def test_every_page_opens_without_error_and_asks_nobody(window: Any, file: Path, size: tuple[int, int]) -> None:
    page = window.open(file, size=size)
    page.wait_for_selector("canvas, svg")
    assert page.evaluate("document.documentElement.scrollWidth") <= size[0]
    window.picture(page, f"{file.stem}-{size[0]}", whole=True)


def test_the_dot_product_of_rows_depends_on_their_offset_alone() -> None:
    plate = positions.plate()
    matrix, _, products = (
        axes
        for axes in plate.drawing.axes
        if axes.get_ylabel() in {"position", "value", "PE(p)·PE(p + offset) / (E/2)"}
    )
    assert matrix.images[0].get_array().shape == (positions.LENGTH, positions.WIDTH)
    peaks = {float(line.get_xdata()[line.get_ydata().argmax()]) for line in products.lines[: len(positions.FROM)]}
    assert peaks == {0.0}
    assert "differs by at most " in plate.words.seen


def test_a_stranger_is_missing_exactly_and_answered_softly() -> None:
    plate = registrar.plate({"Ada Quill": "mathematics", "Ben Okafor": "physics", "Chiara Lund": "physics"})
    exact, inverse, soft = ([label.get_text() for label in axes.get_yticklabels()] for axes in plate.drawing.axes[:3])
    assert exact == ["Chiara Lund → physics 1.00", "Ada Quill → mathematics 1.00", "Zoe Park → missing"]
    assert inverse[0] == "physics → Ben Okafor 0.50"
    assert soft[2].startswith("Zoe Park → physics")
    assert "*chiara lunt* puts 1.000 on Chiara Lund" in plate.words.seen


@pytest.mark.slow
def test_the_plate_is_the_example_s_picture_and_its_numbers() -> None:
    pytest.importorskip("sklearn", reason="scikit-learn is not installed")
    plate = salary.plate()
    assert len(plate.drawing.axes) == 3
    assert "For an average of 3.5, it predicts 37,2" in plate.words.seen
    assert "0.000 on 3.0" in plate.words.seen
