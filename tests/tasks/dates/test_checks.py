"""Texts and translations that can and cannot be dates."""

from __future__ import annotations

import pytest

from attent.tasks.dates import DatesSettings, dates
from attent.tasks.dates.generated import is_date, why_no_date


def test_no_text_of_the_corpus_is_refused() -> None:
    corpus = dates(DatesSettings(locales="full", training_pairs=121, validation_pairs=7, held_out_pairs=11))
    assert [pair.source for pair in corpus.train if why_no_date(pair.source)] == []
    assert all(is_date(pair.target) for pair in corpus.train)


@pytest.mark.parametrize(
    "text", ["banana", "", "fr | mardi 3 mars 26", "3 mars 1799", "3 mars 2201", "20260303", "fr | 3 mars 20 26"]
)
def test_a_text_without_a_whole_year_is_no_date(text: str) -> None:
    assert why_no_date(text) == f"{text!r} holds no year from 1800 to 2200 in four digits"


@pytest.mark.parametrize("text", ["3 mars 1800", "mr | ३ मार्च २२००", "2026年3月3日", "en | 3/3/2026"])
def test_a_year_counts_in_any_digits(text: str) -> None:
    assert why_no_date(text) is None


@pytest.mark.parametrize(
    ("text", "right"),
    [("2026-03-03", True), ("2024-02-29", True), ("2026-02-29", False), ("20260303", False), ("", False)],
)
def test_a_translation_is_a_day_of_the_calendar(text: str, right: bool) -> None:
    assert is_date(text) is right
