from __future__ import annotations

from pathlib import Path

import pytest
from gallery import runs, stories

from attent.tasks.stories import StoriesSettings
from attent.tasks.translation.translator import load


def test_a_run_of_one_update_is_drawn_and_its_supporting_sentences_are_framed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = StoriesSettings(kinds=("one", "two"), training_stories=60, held_out_stories=6)
    monkeypatch.setattr(runs, "STORIES_SETTINGS", settings)
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
