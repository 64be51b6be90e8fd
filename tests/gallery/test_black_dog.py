"""The picture of the sentence of the course: its weights, its links, and where it is drawn from."""

from __future__ import annotations

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from gallery import black_dog, runs
from gallery.black_dog import Readings, draw, links

from attent.views.palette import palette

READINGS = Readings(**json.loads(black_dog.READINGS.read_text(encoding="utf-8")))


def test_a_row_has_at_most_three_links_above_one_and_a_half_times_uniform() -> None:
    assert links([0.3, 0.45, 0.05, 0.2]) == {1: 0.45}
    assert links([0.25] * 4) == {}
    assert [*links([0.19, 0.0, 0.24, 0.2, 0.22, *[0.015] * 10])] == [2, 4, 3]


def test_the_recorded_picture_is_that_of_the_recorded_weights() -> None:
    assert all(sum(row) == pytest.approx(1, abs=1e-3) for row in READINGS.weights)
    for path, dark in ((black_dog.PICTURE, None), (black_dog.DARK_PICTURE, True)):
        assert path.read_text(encoding="utf-8") == draw(READINGS, dark=dark)


def test_text_stays_text_and_thickness_is_the_weight() -> None:
    picture = ElementTree.fromstring(draw(READINGS))
    texts = [part.text for part in picture.findall(".//{*}text")]
    assert {*READINGS.source, *READINGS.target, "query", "key", "weight"} <= set(texts)
    chosen = READINGS.weights[READINGS.target.index("noir")]
    assert f"{max(chosen):.2f}" in texts and READINGS.source[chosen.index(max(chosen))] == "black"
    widths = sorted(float(part.get("stroke-width", "")) for part in picture.findall(".//{*}path"))
    assert widths == pytest.approx(sorted(15 * max(row) for row in READINGS.weights), abs=0.05)


def test_its_colors_are_the_palette_s() -> None:
    known = {value for dark in (False, True) for values in palette(dark=dark).values() for value in values}
    assert set(re.findall(r"#[0-9A-Fa-f]{6}", draw(READINGS))) <= known
    assert "prefers-color-scheme" not in draw(READINGS, dark=True)


@pytest.mark.slow
def test_the_weights_are_those_of_a_run(tmp_path: Path) -> None:
    readings = black_dog.read(runs.run(runs.PHRASES, tmp_path, updates=900))
    assert (readings.source, readings.target) == (READINGS.source, READINGS.target)
    for row, recorded in zip(readings.weights, READINGS.weights, strict=True):
        assert row.index(max(row)) == recorded.index(max(recorded))
