"""Texts in sentences, and everything between them kept."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attent.text.sentences import SplitText, split_sentences


def test_sentences_and_what_is_between() -> None:
    text = "  Mr. Smith sits. Who is he?\r\n\n...\tA dog"
    assert split_sentences(text, "en") == SplitText(
        ("  ", " ", "\r\n\n...\t", ""), ("Mr. Smith sits.", "Who is he?", "A dog")
    )


def test_a_line_can_be_taken_whole() -> None:
    assert split_sentences("One. Two.\nThree.", "en", whole=True).sentences == ("One. Two.", "Three.")


@given(st.text(st.characters(codec="utf-8"), max_size=60), st.sampled_from(["en", "zh-Hans", "de_AT", "xx"]))
def test_nothing_is_lost(text: str, language: str) -> None:
    split = split_sentences(text, language)
    assert split.join(split.sentences) == text
    assert all(sentence == sentence.strip() and any(map(str.isalnum, sentence)) for sentence in split.sentences)


@pytest.mark.parametrize("piece", [" ", "\u3000", "\n", "«"])
def test_what_repeats_takes_time_in_proportion(piece: str) -> None:
    text = f"A dog{piece * 2**18}runs."
    begin = time.process_time()
    split = split_sentences(text, "en")
    # it took minutes
    assert time.process_time() - begin < 5
    assert split.join(split.sentences) == text


def test_a_long_line_has_the_sentences_of_its_parts() -> None:
    sentences = [f"Dog {number} runs." for number in range(2_000)]
    assert list(split_sentences(" ".join(sentences), "en").sentences) == sentences
    words = [f"dog{number}" for number in range(2_000)]
    assert " ".join(split_sentences(" ".join(words), "en").sentences).split() == words
