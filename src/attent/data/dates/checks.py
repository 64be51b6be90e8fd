"""What can be said about a text, or a translation, without reading it as a date."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Mapping
from datetime import date
from itertools import groupby
from typing import Any

from attent.data.dates.patterns import FIRST_YEAR, LAST_YEAR

InputCheck = Callable[[str], str | None]


def input_check(corpus: Mapping[str, Any]) -> InputCheck | None:
    """The check that a text passes to be translated by a run with this corpus, a reason if it fails; None where any text does.

    Args:
        corpus: the tables of the corpus' settings by name, as the run's config has them.
    """
    return why_no_date if "dates" in corpus else None


def why_no_date(text: str) -> str | None:
    """Why a text cannot be one of the corpus' dates: it holds no whole year, in the digits of any script; None if it may be."""
    for is_number, run in groupby(text, key=lambda character: unicodedata.decimal(character, None) is not None):
        digits = [unicodedata.decimal(character) for character in run] if is_number else []
        if len(digits) == 4 and FIRST_YEAR <= int("".join(map(str, digits))) <= LAST_YEAR:
            return None
    return f"{text!r} holds no year from {FIRST_YEAR} to {LAST_YEAR} in four digits"


def is_date(translation: str) -> bool:
    """Whether a translation is a day of the calendar as ISO 8601 writes it, such as 2026-03-03."""
    try:
        return date.fromisoformat(translation).isoformat() == translation
    except ValueError:
        return False
