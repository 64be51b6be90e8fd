"""Exercises as data: a file each in exercises/, whose name is the number and short name of the exercise.

    title       the subject
    page        the page of the course that comes before it, from 1
    function    the name of the function to write
    returns     the names of its results
    template    the file to fill in; its docstring is the task
    hints       from a question to nearly the code
    solution    a correct function
    reference   code that defines the correct results, `reference`, by attent's parts, formula and search; for a part of
                attention, also `part`, which makes it of the function; and names for the code of cases and picture
    cases       the inputs of the function by the name of the case, as code; readable ones first
    picture     what a correct function draws: its title, and as code inputs, weights, rows and columns
    mistakes    usual mistakes: `new` in the place of `old` in the solution, and a sentence, `why`

Code is Python, and comes with the package.
"""

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from attent.errors import refuse


@cache
def exercises() -> tuple[Mapping[str, Any], ...]:
    """Return all exercises in order, each with the name of its `file` in a folder, and its `task`."""
    folder = files("attent.learning").joinpath("exercises").iterdir()
    texts = {file.name.replace(".toml", ".py"): tomllib.loads(file.read_text("utf-8")) for file in folder}
    return tuple(
        texts[file] | {"file": file, "task": texts[file]["template"].split('"""')[1]} for file in sorted(texts)
    )


def exercise(number: int) -> Mapping[str, Any]:
    """Return the exercise with a number, from 1; raise `ArgumentError` if there is none."""
    refuse((not 1 <= number <= len(exercises()), f"exercises are numbered from 1 to {len(exercises())}, got {number}"))
    return exercises()[number - 1]
