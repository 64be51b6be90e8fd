"""Texts in sentences, everything between them kept; and the language of a text, among those that are served."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attent.text.sentences import LanguageDetector, SplitText, split_sentences


def test_sentences_and_what_is_between() -> None:
    text = "  Mr. Smith sits. Who is he?\r\n\n...\tA dog"
    assert split_sentences(text, "en") == SplitText(
        ("  ", " ", "\r\n\n...\t", ""), ("Mr. Smith sits.", "Who is he?", "A dog")
    )
    assert split_sentences("One. Two.\nThree.", "en", whole=True).sentences == ("One. Two.", "Three.")


@given(st.text(st.characters(codec="utf-8"), max_size=60), st.sampled_from(["en", "zh-Hans", "de_AT", "xx"]))
def test_nothing_is_lost(text: str, language: str) -> None:
    split = split_sentences(text, language)
    assert split.join(split.sentences) == text
    assert all(sentence == sentence.strip() and any(map(str.isalnum, sentence)) for sentence in split.sentences)


@pytest.mark.parametrize("piece", [" ", "\u3000", "\n", "«"])
def test_what_repeats_takes_time_in_proportion(piece: str) -> None:
    text = f"A dog{piece * 2**16}runs."
    begin = time.process_time()
    split = split_sentences(text, "en")
    # it took minutes
    assert time.process_time() - begin < 2
    assert split.join(split.sentences) == text


def test_a_long_line_has_the_sentences_of_its_parts() -> None:
    sentences = [f"Dog {number} runs." for number in range(2_000)]
    assert list(split_sentences(" ".join(sentences), "en").sentences) == sentences
    words = [f"dog{number}" for number in range(2_000)]
    assert " ".join(split_sentences(" ".join(words), "en").sentences).split() == words


TEXTS = {
    "en": "The children are playing in the street with a dog.",
    "de": "Die Kinder spielen mit einem Hund auf der Straße.",
    "fr": "Les enfants jouent dans la rue avec un chien.",
}


def test_a_sentence_is_enough_to_detect_its_language() -> None:
    detector = LanguageDetector(TEXTS)
    for language, text in TEXTS.items():
        best, *others = detector.detect(text)
        assert best.language == language and 90 < best.confidence <= 100
        assert all(second.confidence <= best.confidence and second.language in TEXTS for second in others)
    assert detector.detect("12 : 30 😀")[0].confidence == 0
    best, *_ = LanguageDetector(["pt-BR", "en"]).detect("As crianças brincam na rua com um cachorro.")
    assert best.language == "pt-BR"
    assert LanguageDetector(["en"]).detect(TEXTS["de"])[0].confidence < 10
    assert LanguageDetector(["tlh"]).detect(TEXTS["de"])[0] == ("tlh", 0.0)
