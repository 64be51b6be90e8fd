"""How well links agree with gold links: alignment error rate, precision and recall."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from attent.data.gold import Gold, Link
from attent.errors import ArgumentError


@dataclass(frozen=True)
class Agreement:
    """Links A beside gold links S and P, of one pair or, added up, of a whole set.

        AER = 1 − (|A ∩ S| + |A ∩ P|) / (|A| + |S|),  precision = |A ∩ P| / |A|,  recall = |A ∩ S| / |S|

    Source: Och and Ney (2003), §5, https://aclanthology.org/J03-1002.

    Args:
        found: |A|.
        sure: |S|.
        found_sure: |A ∩ S|.
        found_possible: |A ∩ P|.
    """

    predicted: int = 0
    sure: int = 0
    predicted_sure: int = 0
    predicted_possible: int = 0

    def __add__(self, other: Agreement) -> Agreement:
        return Agreement(
            self.predicted + other.predicted,
            self.sure + other.sure,
            self.predicted_sure + other.predicted_sure,
            self.predicted_possible + other.predicted_possible,
        )

    @property
    def error_rate(self) -> float:
        """AER, 0 to 1.

        Raises:
            ArgumentError: there is neither a link nor a sure one to be found.
        """
        if not self.predicted + self.sure:
            raise ArgumentError("there is nothing to judge: no link was found, and none is sure")
        return 1 - (self.predicted_sure + self.predicted_possible) / (self.predicted + self.sure)

    @property
    def precision(self) -> float:
        """The share of links that are possible, 0 to 1; 1 where there is no link."""
        return self.predicted_possible / self.predicted if self.predicted else 1.0

    @property
    def recall(self) -> float:
        """The share of sure links that were found, 0 to 1; 1 where none is sure."""
        return self.predicted_sure / self.sure if self.sure else 1.0


def agreement(found: Collection[Link], gold: Gold) -> Agreement:
    """Links of one pair beside its gold links."""
    links = frozenset(found)
    return Agreement(len(links), len(gold.sure), len(links & gold.sure), len(links & gold.possible))
