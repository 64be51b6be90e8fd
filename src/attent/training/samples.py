"""Sample translations that are shown during training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from attent.data.text import Pair

SAMPLES = 3


@dataclass(frozen=True)
class Sample:
    """A source sentence, the model's translation and the reference."""

    source: str
    translation: str
    reference: str

    def __str__(self) -> str:
        correction = "" if self.translation == self.reference else f"  (right: {self.reference})"
        return f"  {self.source}  →  {self.translation}{correction}"


def samples(pairs: Sequence[Pair], translations: Sequence[str], number: int = SAMPLES) -> list[Sample]:
    """Return evenly spaced pairs with their translations, the same ones on every call.

    Args:
        pairs: the pairs.
        translations: one a pair, in the same order.
        number: how many samples to return.
    """
    number = min(number, len(pairs))
    indices = [(2 * position + 1) * len(pairs) // (2 * number) for position in range(number)]
    return [Sample(pairs[index].source, translations[index], pairs[index].target) for index in indices]
