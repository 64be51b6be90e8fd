"""A few translations for a person to look at while a model is trained."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from attent.data.text import Pair

SAMPLES = 3


@dataclass(frozen=True)
class Sample:
    """A source, what the model makes of it, and what it should have made."""

    source: str
    translation: str
    reference: str

    def __str__(self) -> str:
        told = "" if self.translation == self.reference else f"  (right: {self.reference})"
        return f"  {self.source}  →  {self.translation}{told}"


def samples(pairs: Sequence[Pair], translations: Sequence[str], number: int = SAMPLES) -> list[Sample]:
    """Some of the pairs with their translations, evenly spread and the same every time.

    Args:
        pairs: what was translated.
        translations: as many, in the same order.
        number: how many are taken.
    """
    number = min(number, len(pairs))
    places = [(2 * place + 1) * len(pairs) // (2 * number) for place in range(number)]
    return [Sample(pairs[place].source, translations[place], pairs[place].target) for place in places]
