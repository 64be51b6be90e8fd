"""Agreement of links with gold links: alignment error rate, precision and recall."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import astuple, dataclass

from attent.errors import ArgumentError
from attent.text.text import Gold, Link


@dataclass(frozen=True)
class Agreement:
    """Counts of predicted links A, sure gold links S and possible ones P, of one pair or summed over pairs.

        AER = 1 − (|A ∩ S| + |A ∩ P|) / (|A| + |S|),  precision = |A ∩ P| / |A|,  recall = |A ∩ S| / |S|

    Source: Och and Ney (2003), §5, https://aclanthology.org/J03-1002.

    Args:
        predicted: |A|.
        sure: |S|.
        predicted_sure: |A ∩ S|.
        predicted_possible: |A ∩ P|.
    """

    predicted: int = 0
    sure: int = 0
    predicted_sure: int = 0
    predicted_possible: int = 0

    def __add__(self, term: Agreement) -> Agreement:
        return Agreement(*map(int.__add__, astuple(self), astuple(term)))

    @property
    def error_rate(self) -> float:
        """Return AER, 0 to 1.

        Raises:
            ArgumentError: there is neither a predicted nor a sure link.
        """
        if not self.predicted + self.sure:
            raise ArgumentError("there is nothing to evaluate: no link was predicted, and none is sure")
        return 1 - (self.predicted_sure + self.predicted_possible) / (self.predicted + self.sure)

    @property
    def precision(self) -> float:
        """Return the share of predicted links that are possible, 0 to 1; 1 without links."""
        return self.predicted_possible / self.predicted if self.predicted else 1.0

    @property
    def recall(self) -> float:
        """Return the share of sure links that were predicted, 0 to 1; 1 if no link is sure."""
        return self.predicted_sure / self.sure if self.sure else 1.0


def agreement(predicted: Collection[Link], gold: Gold) -> Agreement:
    """Compare the links of one pair with its gold links."""
    links = frozenset(predicted)
    return Agreement(len(links), len(gold.sure), len(links & gold.sure), len(links & gold.possible))
