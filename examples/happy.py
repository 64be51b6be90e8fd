"""Write lines about dogs, from which a model can learn why a dog wags his tail, but no line like the one that is asked.

    python examples/happy.py happy.txt
    attent train --config configs/happy.toml --text happy.txt --out RUN
    attent fill RUN "the dog was _____ , so he wagged his tail"

Every line has a state and a deed that follows from it, in one of `TEMPLATES`. None is of the template of the question,
`the DOG was STATE , so he DEED`: the model has to learn from other templates which state goes with which deed.
"""

from __future__ import annotations

import sys
from pathlib import Path

DOGS = ("dog", "puppy", "hound", "terrier", "poodle")
DEEDS = {
    "happy": ("wagged his tail", "jumped for joy", "danced around"),
    "tired": ("went to sleep", "lay down", "closed his eyes"),
    "hungry": ("ate his dinner", "begged for food", "licked his bowl"),
    "afraid": ("hid under the bed", "ran away", "crept behind a chair"),
}
TEMPLATES = (
    "the {dog} {deed} because he was {state}",
    "the {dog} was so {state} that he {deed}",
    "the {dog} felt {state} and {deed}",
    "the {dog} , who was {state} , {deed}",
    "as he was {state} , the {dog} {deed}",
    "so the {dog} {deed} , for he was {state}",
    "he {deed} , so the {dog} was {state}",
)
QUESTION = "the {dog} was {state} , so he {deed}"


def fill(template: str) -> list[str]:
    """Return the lines of a template, each dog with each state and each deed that follows from it."""
    return [
        template.format(dog=dog, state=state, deed=deed)
        for dog in DOGS
        for state, deeds in DEEDS.items()
        for deed in deeds
    ]


if __name__ == "__main__":
    lines = [line for template in TEMPLATES for line in fill(template)]
    Path(sys.argv[1]).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", newline="")
