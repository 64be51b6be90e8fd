from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from gallery import length

from attent.errors import DataError


@pytest.fixture
def values() -> dict[str, Any]:
    """Two models on dates, as `attent compare length` writes them."""
    lines = {"RNN, fixed vector": (90.0, 20.0), "Transformer": (95.0, 96.0)}
    series = [
        {
            "name": name,
            "points": [
                {"x": x, "y": y, "low": y - 2, "high": y + 2, "by_seed": [y]}
                for x, y in zip((10, 30), line, strict=True)
            ],
        }
        for name, line in lines.items()
    ]
    figure = {
        "title": "Dates: one seed",
        "x": "source length, characters",
        "y": "exact match, 0 to 100",
        "series": series,
    }
    tables = [{"rows": [{"updates": 300.0}, {"updates": 250.0}]}, {"rows": []}]
    return {"name": "length", "figures": [figure], "tables": tables}


def test_the_plate_says_what_the_comparison_found(values: dict[str, Any]) -> None:
    plate = length.plate(values)
    assert (
        plate.words.seen
        == "Dates, exact match at the worst, the best and the greatest length (30 characters): RNN, fixed vector "
        "20, 90 and 20; Transformer 95, 96 and 96."
    )
    assert "Dates, 250 to 300 updates per model, 1 seed" in plate.words.ran
    assert [[*line.get_ydata()] for line in plate.drawing.axes[0].lines] == [[90.0, 20.0], [95.0, 96.0]]


def test_a_comparison_s_file_is_taken_as_it_is(values: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "length.json"
    file.write_text(json.dumps(values), encoding="utf-8")
    assert length.load(file, tmp_path / "runs") == values
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("text", ["{", "[]", '{"name": "scores", "figures": []}'])
def test_a_file_of_something_else_is_refused(text: str, tmp_path: Path) -> None:
    file = tmp_path / "length.json"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match="is not a comparison of lengths"):
        length.load(file, tmp_path)
