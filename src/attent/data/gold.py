"""Gold links: which source word is known to be said by which target word."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

Link = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Gold:
    """The links of one pair, each (source, target), from 0.

    Sure ones must be found; possible ones may be. Source: Och and Ney (2003), §5, https://aclanthology.org/J03-1002: what people
    agree on is sure, what can be linked in several ways is possible.

    Args:
        sure: S.
        possible: P, the sure ones among them whether or not they are named here too.
    """

    sure: frozenset[Link]
    possible: frozenset[Link]

    @classmethod
    def of(cls, sure: Collection[Link], possible: Collection[Link] = ()) -> Gold:
        """The gold links that these are, S ⊆ P."""
        return cls(frozenset(sure), frozenset(possible) | frozenset(sure))
