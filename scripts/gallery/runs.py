"""The trained runs that figures look into: each is trained once, and found again the next time."""

from __future__ import annotations

from pathlib import Path

from attent.cli.settings import override
from attent.runs.config import read_config
from attent.tasks import settings
from attent.tasks.recipe import follow, resume

RECIPES = Path(__file__).parents[2] / "configs"
# The recipes' own number of updates, whatever time they take, in float32: another machine comes to the same but for rounding.
SAME = ("training.precision=float32", "training.threads=1")
DATES, DATES_RNN, DIGITS = "dates", "dates-rnn", "digits"


def run(name: str, folder: Path, updates: int | None = None) -> Path:
    """A run folder, trained if it is not there yet, gone on with if it is unfinished.

    Args:
        name: `dates` (a Transformer), `dates-rnn` (with Bahdanau's attention) or `digits` (in patches of 2 x 2 pixels).
        folder: of all runs.
        updates: how many there shall be; the recipe's unless given.
    """
    path = folder / name
    if path.exists():
        if read_config(path).state != "finished":
            resume(path)
        return path
    recipe = settings.demo() if name == DATES else settings.read(RECIPES / f"{name}.toml")
    changes = [*SAME, *(["images.patch=2"] if name == DIGITS else [])]
    folder.mkdir(parents=True, exist_ok=True)
    follow(override(recipe, changes, updates=updates or recipe.training.updates), path)
    return path
