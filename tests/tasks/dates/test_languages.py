import re

import pytest

from attent.errors import ArgumentError
from attent.tasks.dates.corpus import DatesSettings
from attent.tasks.dates.languages import DateLanguages, date_languages
from attent.tasks.dates.patterns import date_patterns, texts_with_readings

FEW = {"training_pairs": 200, "validation_pairs": 20, "held_out_pairs": 30, "held_out_dates": 30}


@pytest.fixture(scope="module")
def languages() -> DateLanguages:
    return date_languages(DatesSettings(locales=("en", "en_GB", "fr", "nb", "da"), **FEW))


def test_labels_are_languages_each_as_often_as_the_others(languages: DateLanguages) -> None:
    assert [len(part) for part in (languages.train, languages.validation, languages.test)] == [200, 20, 30]
    counts = {label: sum(example.label == label for example in languages.train) for label in ("en", "fr", "nb", "da")}
    assert sum(counts.values()) == 200
    assert min(counts.values()) > 30
    texts = [example.text for part in (languages.train, languages.validation, languages.test) for example in part]
    assert len(set(texts)) == len(texts)
    assert languages.remarks[0].endswith("of all texts, which are the same in several languages")


def test_no_other_language_writes_the_same(languages: DateLanguages) -> None:
    def written(locale: str) -> set[str]:
        return {text for pattern in date_patterns(locale) for text, _ in texts_with_readings(pattern)}

    # the year stands for every other
    norwegian, danish = (
        {re.sub(r"\d{4}", "2000", text) for text, name in languages.train if name == label} for label in ("nb", "da")
    )
    assert norwegian <= written("nb")
    assert not norwegian & written("da")
    assert not danish & written("nb")


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ArgumentError, match="texts that no other language writes, got en"):
        date_languages(DatesSettings(locales=("en", "en_GB"), **FEW))
    with pytest.raises(ArgumentError, match="there are fewer than 300 different texts"):
        date_languages(DatesSettings(locales=("en", "fr"), **(FEW | {"held_out_pairs": 300, "held_out_dates": 1})))
