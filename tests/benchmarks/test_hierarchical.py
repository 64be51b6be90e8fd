"""The encoders of words and of sentences that are compared have equally many parameters, and the stories are fixed."""

from pathlib import Path

import hierarchical
import pytest

from attent.models.build import build
from attent.models.model import Model


def count_of(model: Model) -> int:
    """Return the number of parameters."""
    return sum(each.numel() for each in model.parameters())


def test_encoders_of_words_and_of_sentences_have_the_same_parameters(tmp_path: Path) -> None:
    (tmp_path / "train.tsv").write_text("Anna went to the hall. Where is Anna?\thall\n" * 2)
    files = {part: str(tmp_path / "train.tsv") for part in ("train", "valid")}
    plans = {name: hierarchical.plan(name, 1, files, 5).settings.model for name in hierarchical.MODELS}
    counts = {name: count_of(build(settings, 46, 12)) for name, settings in plans.items()}
    for count in counts.values():
        assert count / counts["words, attention"] == pytest.approx(1, abs=0.1)
    # with the same layers, exactly
    assert counts["words, fixed vector"] == counts["sentences, fixed vector"]
    assert counts["words, attention"] == counts["sentences, attention"]
    assert len({plan.name for plan in (hierarchical.plan(name, 1, files, 5) for name in plans)}) == 5


def test_the_stories_of_a_length_are_the_same_in_every_call() -> None:
    drawn = hierarchical.draw_stories("test", 5, 8, 8)
    assert drawn == hierarchical.draw_stories("test", 5, 8, 8) != hierarchical.draw_stories("train", 5, 8, 8)
    for story in drawn:
        assert len(story.sentences) == 8 and story.answer in story.sentences[story.support[0]]
