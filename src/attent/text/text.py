"""Pairs of source and target text, their corpora and their gold alignments."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

Link = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Pair:
    """A source text and the target text that it translates to.

    Args:
        source: the text to translate.
        target: its translation.
        links: the gold alignment if there is one, as (source character, target character) positions, both counted in
            code points from 0.
    """

    source: str
    target: str
    links: tuple[Link, ...] = ()


@dataclass(frozen=True, slots=True)
class TranslationCorpus:
    """Pairs for training, validation and tests.

    Args:
        train: the pairs to train on.
        validation: the pairs by which training selects among its checkpoints.
        held_out: the test sets by name, in the order of reports.
    """

    train: Sequence[Pair]
    validation: Sequence[Pair]
    held_out: Mapping[str, Sequence[Pair]]


@dataclass(frozen=True, slots=True)
class Gold:
    """The gold links of a pair, each (source, target), from 0.

    An aligner must have the sure links and may have the possible ones. Source: Och and Ney (2003), §5,
    https://aclanthology.org/J03-1002: links that annotators agree on are sure, ambiguous ones are possible.

    Args:
        sure: S.
        possible: P ⊇ S.
    """

    sure: frozenset[Link]
    possible: frozenset[Link]

    @classmethod
    def of(cls, sure: Collection[Link], possible: Collection[Link] = ()) -> Gold:
        """Make gold links of S and P, which need not repeat S."""
        return cls(frozenset(sure), frozenset(possible) | frozenset(sure))


def add_tag(tag: str, text: str) -> str:
    """Write a tag before a source text, as in `fr | mardi 3 mars 2026`.

    Args:
        tag: the language or locale of the text.
        text: the text.
    """
    return f"{tag} | {text}"
