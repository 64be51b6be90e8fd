"""A small corpus of dates."""

import pytest

from attent.tasks.dates import DatesSettings, dates
from attent.text.text import TranslationCorpus


@pytest.fixture(scope="session")
def small() -> DatesSettings:
    few = {"training_pairs": 211, "validation_pairs": 13, "held_out_dates": 17, "held_out_pairs": 19}
    return DatesSettings(locales=("fr", "de", "fa"), held_out_combinations=2, seed=5, **few)


@pytest.fixture(scope="session")
def small_corpus(small: DatesSettings) -> TranslationCorpus:
    return dates(small)
