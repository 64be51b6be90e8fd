"""Texts in sentences, and everything between them kept."""

from hypothesis import given
from hypothesis import strategies as st

from attent.data.sentences import SplitText, split_sentences


def test_sentences_and_what_is_between() -> None:
    text = "  Mr. Smith sits. Who is he?\r\n\n...\tA dog"
    assert split_sentences(text, "en") == SplitText(("  ", " ", "\r\n\n...\t", ""), ("Mr. Smith sits.", "Who is he?", "A dog"))


def test_a_line_can_be_taken_whole() -> None:
    assert split_sentences("One. Two.\nThree.", "en", whole=True).sentences == ("One. Two.", "Three.")


@given(st.text(st.characters(codec="utf-8"), max_size=60), st.sampled_from(["en", "zh-Hans", "de_AT", "xx"]))
def test_nothing_is_lost(text: str, language: str) -> None:
    split = split_sentences(text, language)
    assert split.join(split.sentences) == text
    assert all(sentence == sentence.strip() and any(map(str.isalnum, sentence)) for sentence in split.sentences)
