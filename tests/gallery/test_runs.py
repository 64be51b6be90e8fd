from __future__ import annotations

from pathlib import Path

import pytest
from gallery import runs

from attent.tasks.stories import StoriesSettings

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
