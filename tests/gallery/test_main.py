from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from gallery import __main__ as script
from gallery.plates import words

from attent.errors import UnknownNameError

ROOT = Path(__file__).parents[2]


def test_plates_that_are_named_are_drawn_and_the_others_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(script, "PAGE", tmp_path / "gallery.md")
    monkeypatch.setattr(script, "PICTURES", tmp_path / "gallery")
    for names in (["positions"], ["registrar"]):
        script.main(names, tmp_path, tmp_path, tmp_path / "none.json")
    text = (tmp_path / "gallery.md").read_text(encoding="utf-8")
    assert text.index("A database with exact") < text.index("The sinusoidal position matrix")


def test_an_unknown_plate_is_refused_before_any_is_drawn(tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match="registrar"):
        script.main(["positions", "registar"], tmp_path, tmp_path, tmp_path)
    assert not list(tmp_path.iterdir())


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
