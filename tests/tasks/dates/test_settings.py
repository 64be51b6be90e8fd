import unicodedata

import pydantic
import pytest
from babel import Locale, localedata

from attent.tasks.dates.corpus import DEMO, FULL, DatesSettings


def scripts(locales: tuple[str, ...]) -> set[str]:
    """The first word of the Unicode names of the letters in the names of the days of the week."""
    names = "".join(name for locale in locales for name in Locale.parse(locale).days["format"]["wide"].values())
    return {unicodedata.name(letter).split()[0] for letter in names if letter.isalpha()}


def test_the_demo_is_small_and_in_many_scripts() -> None:
    assert 12 <= len(set(DEMO)) == len(DEMO) <= 16
    assert scripts(DEMO) == {"LATIN", "CYRILLIC", "GREEK", "ARABIC", "DEVANAGARI", "CJK", "HANGUL"}


def test_the_full_corpus_has_the_demo_and_more() -> None:
    assert len(set(FULL)) == len(FULL) == 62
    assert set(DEMO) < set(FULL) <= set(localedata.locale_identifiers())


def test_the_default_is_the_demo() -> None:
    assert DatesSettings().locale_names == DEMO
    assert DatesSettings(locales="full").locale_names == FULL
    assert DatesSettings.model_validate({"locales": ["fr", "de"]}).locale_names == ("fr", "de")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"locales": ["frr_XX"]}, "unknown locale 'frr_XX'; did you mean 'fr"),
        ({"locales": ["fr", "fr"]}, "distinct"),
        ({"locales": []}, "at least one"),
        ({"locales": "all"}, "'demo' or 'full'"),
        ({"untagged": 1.5}, "less than or equal to 1"),
        ({"training_pairs": 0}, "greater than or equal to 1"),
        ({"training_pairs": 10**30}, "less than or equal to 100000000"),
        ({"held_out_dates": 145_000, "validation_pairs": 1462}, "below the 146462 dates there are, got 146462"),
        ({"pairs": 5}, "Extra inputs"),
    ],
)
def test_a_wrong_setting_says_what_is_wrong(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(pydantic.ValidationError, match=message):
        DatesSettings.model_validate(arguments)
