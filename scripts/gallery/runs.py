"""The trained runs of the gallery: each is trained once and reused."""

from __future__ import annotations

from pathlib import Path

from story_corpus import StoriesSettings, stories

from attent.runs.config import read_config
from attent.tasks import settings
from attent.tasks.overrides import override, resolve_corpus
from attent.tasks.phrases import phrases, write_phrases
from attent.tasks.recipe import follow, resume

RECIPES = Path(__file__).parents[2] / "configs"
# The recipes' number of updates without a time limit, in float32: every machine computes the same, up to rounding.
SAME = ("training.precision=float32", "training.threads=1")
DATES, DATES_RNN, DIGITS, PHRASES, STORIES = "dates", "dates-rnn", "digits", "phrases", "stories"
# As generated in docs/stories.md.
STORIES_SETTINGS = StoriesSettings.model_validate({"kinds": ("one", "two"), "training_stories": 60_000})


def run(name: str, folder: Path, updates: int | None = None) -> Path:
    """Return a run folder; train the run if it is missing, and resume it if it is unfinished.

    Args:
        name: `dates` (a Transformer), `dates-rnn` (with Bahdanau's attention), `digits` (in patches of 2 x 2 pixels),
            or `phrases` or `stories`, whose corpus is generated beside the run.
        folder: the folder of all runs.
        updates: the number of updates; None for the recipe's.
    """
    path = folder / name
    if path.exists():
        if read_config(path).state != "finished":
            resume(path)
        return path
    recipe = settings.demo() if name == DATES else settings.read(RECIPES / f"{name}.toml")
    changes = [*SAME, *(["images.patch=2"] if name == DIGITS else [])]
    folder.mkdir(parents=True, exist_ok=True)
    if name == STORIES:
        stories(STORIES_SETTINGS).write(folder / "stories-data", with_support=True)
        recipe = resolve_corpus(recipe, folder / "stories-data")
    if name == PHRASES:
        write_phrases(phrases(), folder / "phrases-data")
        recipe = resolve_corpus(recipe, folder / "phrases-data")
    follow(override(recipe, changes, updates=updates or recipe.training.updates), path)
    return path
