from __future__ import annotations

from pathlib import Path

import pytest
import torch
from gallery import plates
from gallery.drawing import sheet
from gallery.plates import Plate, Words, page, words, write

from attent.errors import ArgumentError
from attent.views.build_scene import build_scene

WORDS = Words("Title", "what is drawn", "a run", "a sight", "a caution")


def test_a_plate_is_kept_with_its_words_beside_the_others(tmp_path: Path) -> None:
    assert words(tmp_path) == {}
    paths = [write(Plate(name, WORDS._replace(title=name), sheet(1, 1)), tmp_path) for name in ("second", "first")]
    assert [path.read_bytes()[:4] for path in paths] == [b"\x89PNG"] * 2
    assert words(tmp_path) == {name: WORDS._replace(title=name) for name in ("first", "second")}


def test_the_same_plate_is_written_to_the_same_bytes(tmp_path: Path) -> None:
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
