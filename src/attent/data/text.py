"""Pairs of source and target text, and the corpora they make up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Pair:
    """A source text and the target text that it translates to.

    Args:
        source: the text to translate.
        target: its translation.
        links: the gold alignment where it is known, as (source character, target character) positions, both counted
            in code points from 0; empty where it is not known.
    """

    source: str
    target: str
    links: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class TranslationCorpus:
    """The pairs to learn from, to stop by, and to be judged by.

    Args:
        train: the pairs that a model is trained on.
        validation: the pairs that training looks at to choose among its own states.
        held_out: the test sets by name, in the order in which they are reported.
    """

    train: Sequence[Pair]
    validation: Sequence[Pair]
    held_out: Mapping[str, Sequence[Pair]]


def tagged(tag: str, text: str) -> str:
    """The source text with its tag before it, as in `fr | mardi 3 mars 2026`.

    Args:
        tag: what the text is in, such as the name of a locale.
        text: the text itself.
    """
    return f"{tag} | {text}"
