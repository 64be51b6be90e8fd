"""The language of a text, among those that are served."""

import pytest

from attent.text.sentences import LanguageDetector

TEXTS = {
    "en": "The children are playing in the street with a dog.",
    "de": "Die Kinder spielen mit einem Hund auf der Straße.",
    "fr": "Les enfants jouent dans la rue avec un chien.",
}


@pytest.mark.parametrize("language", TEXTS)
def test_a_sentence_is_enough(language: str) -> None:
    best, *others = LanguageDetector(TEXTS).detect(TEXTS[language])
    assert best.language == language and 90 < best.confidence <= 100
    assert all(second.confidence <= best.confidence and second.language in TEXTS for second in others)


def test_codes_with_a_script_or_a_country_are_the_languages() -> None:
    assert (
        LanguageDetector(["pt-BR", "en"]).detect("As crianças brincam na rua com um cachorro.")[0].language == "pt-BR"
    )


def test_a_text_without_letters_has_no_language() -> None:
    assert LanguageDetector(TEXTS).detect("12 : 30 😀")[0].confidence == 0


def test_what_is_certainly_another_language_has_little_confidence() -> None:
    assert LanguageDetector(["en"]).detect(TEXTS["de"])[0].confidence < 10
    assert LanguageDetector(["tlh"]).detect(TEXTS["de"])[0] == ("tlh", 0.0)
