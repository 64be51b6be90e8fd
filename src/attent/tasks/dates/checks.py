"""Checks of texts and translations of a run that was trained on dates."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Mapping
from datetime import date
from itertools import groupby
from typing import Any

from attent.tasks.dates.patterns import FIRST_YEAR, LAST_YEAR

InputCheck = Callable[[str], str | None]


def input_check(corpus: Mapping[str, Any]) -> InputCheck | None:
    """Return the check of texts that a run with this corpus translates; None if it takes any text.

    A check returns a reason or None.

    Args:
        corpus: the tables of the corpus' settings by name, as in the run's config.
    """
    return why_no_date if "dates" in corpus else None


def why_no_date(text: str) -> str | None:
    """Return a reason if a text is no date of the corpus, else None.

    A date has a year of four digits of any script.
    """
    for is_number, characters in groupby(text, key=lambda character: unicodedata.decimal(character, None) is not None):
        digits = [unicodedata.decimal(character) for character in characters] if is_number else []
        if len(digits) == 4 and FIRST_YEAR <= int("".join(map(str, digits))) <= LAST_YEAR:
            return None
    return f"{text!r} holds no year from {FIRST_YEAR} to {LAST_YEAR} in four digits"


def is_date(translation: str) -> bool:
    """Return whether a translation is a day of the calendar as ISO 8601 writes it, such as 2026-03-03."""
    try:
        return date.fromisoformat(translation).isoformat() == translation
    except ValueError:
        return False
