"""What the gallery says of trainings of its own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gallery import alignment, digits, length, runs, stories
from story_corpus import StoriesSettings

from attent.errors import DataError
from attent.tasks.translation.translator import load
from attent.text.text import Pair

FEW = StoriesSettings(kinds=("one", "two"), training_stories=60, held_out_stories=6)


@pytest.fixture
def followed(monkeypatch: pytest.MonkeyPatch) -> list[tuple[object, Path]]:
    """What would be trained, and where."""
    records: list[tuple[object, Path]] = []
    monkeypatch.setattr(runs, "follow", lambda settings, path: records.append((settings, path)))
    return records


@pytest.mark.parametrize("name", [runs.DATES, runs.DATES_RNN, runs.DIGITS, runs.STORIES])
def test_a_run_is_the_recipe_s_by_its_updates_alone(
    name: str, followed: list, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "STORIES_SETTINGS", FEW)
    assert runs.run(name, tmp_path) == tmp_path / name
    ((settings, path),) = followed
    assert path == tmp_path / name
    assert (settings.training.minutes, settings.training.precision, settings.training.threads) == (None, "float32", 1)
    assert settings.training.updates in {1500, 2300, 2700}
    assert settings.images is None or settings.images.patch == 2


def test_the_first_pair_of_a_locale_that_is_neither_short_nor_long() -> None:
    texts = ["de | 3.3.26", "fr | mardi 3 mars 2026", "de | Dienstag, 3. März 2026", "de | " + "x" * 40]
    pairs = [Pair(text, "") for text in texts]
    assert alignment.first(pairs, "de") is pairs[2]
    assert alignment.first(pairs, "el") is None


@pytest.mark.slow
def test_a_run_of_a_few_updates_is_drawn_and_found_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alignment, "JUDGED", 20)
    run = runs.run(runs.DATES_RNN, tmp_path, updates=2)
    assert runs.run(runs.DATES_RNN, tmp_path) == run
    plate = alignment.plate(run)
    assert len(plate.drawing.axes) == len(alignment.SHOWN) + 1
    assert "`de | " in plate.words.seen
    assert all(axes.patches for axes in plate.drawing.axes[: len(alignment.SHOWN)])


def test_the_same_map_has_all_of_its_weight_in_common() -> None:
    first, second = torch.tensor([0.5, 0.5, 0.0]), torch.tensor([0.0, 0.1, 0.1])
    same = dict.fromkeys(digits.KINDS, first)
    assert digits._common([same, same]) == [1.0, 1.0]
    assert digits._common([same, {"mean": second, "rolled out": first}]) == pytest.approx([0.5, 1.0])
    picture = np.zeros((4, 4, 1), np.uint8)
    picture[:2, :2] = 200
    assert digits._dark(picture, torch.tensor([0.2, 0.1, 0.1, 0.0]), (2, 2)) == pytest.approx(0.5)


@pytest.mark.slow
def test_a_run_of_a_few_updates_is_drawn(tmp_path: Path) -> None:
    pytest.importorskip("sklearn", reason="scikit-learn is not installed")
    plate = digits.plate(runs.run(runs.DIGITS, tmp_path, updates=2))
    assert len([axes for axes in plate.drawing.axes if axes.images]) >= 3 * 11
    assert "on the 359 test images" in plate.words.ran


@pytest.fixture
def values() -> dict[str, Any]:
    """Two models on dates, as `scripts/bench compare length` writes them."""
    lines = {"RNN, fixed vector": (90.0, 20.0), "Transformer": (95.0, 96.0)}
    series = [
        {"name": name, "points": [{"x": x, "y": y, "low": y - 2, "high": y + 2, "by_seed": [y]} for x, y in points]}
        for name, points in ((name, zip((10, 30), line, strict=True)) for name, line in lines.items())
    ]
    axes = {"x": "source length, characters", "y": "exact match, 0 to 100"}
    tables = [{"rows": [{"updates": 300.0}, {"updates": 250.0}]}, {"rows": []}]
    return {"name": "length", "figures": [{"title": "Dates: one seed", "series": series} | axes], "tables": tables}


def test_a_comparison_s_file_is_taken_as_it_is_and_nothing_else(values: dict[str, Any], tmp_path: Path) -> None:
    plate = length.plate(values)
    scores = "RNN, fixed vector 20, 90 and 20; Transformer 95, 96 and 96."
    lengths = "at the worst, the best and the greatest length (30 characters)"
    assert plate.words.seen == f"Dates, exact match {lengths}: {scores}"
    assert "Dates, 250 to 300 updates per model, 1 seed" in plate.words.ran
    assert [[*line.get_ydata()] for line in plate.drawing.axes[0].lines] == [[90.0, 20.0], [95.0, 96.0]]
    file = tmp_path / "length.json"
    file.write_text(json.dumps(values), encoding="utf-8")
    assert length.load(file, tmp_path / "runs") == values
    assert not (tmp_path / "runs").exists()
    for text in ("{", "[]", '{"name": "scores", "figures": []}'):
        file.write_text(text, encoding="utf-8")
        with pytest.raises(DataError, match="is not a comparison of lengths"):
            length.load(file, tmp_path)


def test_a_run_of_one_update_is_drawn_and_its_supporting_sentences_are_framed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "STORIES_SETTINGS", FEW)
    run = runs.run(runs.STORIES, tmp_path, updates=1)
    plate = stories.plate(run)
    assert [len(axes.patches) for axes in plate.drawing.axes[:2]] == [1, 2]
    corpus, translator = stories.example("stories")["read"](tmp_path / "stories-data", "test"), load(run)
    story = stories.first(corpus, "one", translator)
    labels = [label.get_text() for label in plate.drawing.axes[0].get_xticklabels()]
    assert "".join(labels).replace("␣", " ").strip().startswith(story.sentences[0])
    (frame,) = plate.drawing.axes[0].patches
    begin = round(frame.get_x() + 0.5)
    assert "".join(labels[begin : begin + round(frame.get_width())]).strip() == story.sentences[story.support[0]]
    assert "% of the test stories are answered correctly" in plate.words.seen
