"""From document to document: sentences, their pieces, what is refused, and where translations stand."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pytest

from attent.documents.html import parse_html
from attent.documents.inline import AlignedText
from attent.documents.markdown import parse_markdown
from attent.documents.pipeline import MAX_SENTENCE, DocumentSentence, Refusal, cut_sentence, translate_documents
from attent.errors import DataError
from attent.text.units import Span

# Translations, and the links between words.
DICTIONARY = {
    "A dog runs.": AlignedText("Ein Hund.", ()),
    "Two men sit.": AlignedText("Assis, deux hommes", [(Span(4, 7), Span(12, 18))]),
    "It rains.": AlignedText("Regen", ()),
}


def test_each_sentence_is_translated_once_and_stands_in_its_place() -> None:
    document_sentences: list[DocumentSentence] = []

    def translate(sentences: Sequence[DocumentSentence]) -> Iterator[AlignedText]:
        document_sentences.extend(sentences)
        return (DICTIONARY[sentence.text] for sentence in sentences)

    documents = [parse_html("<p>A dog runs.  Two <b>men</b> sit.</p>"), parse_markdown("# It rains.\n\n---\n")]
    translated = translate_documents(documents, "en", translate)
    assert document_sentences == [("A dog runs.", True), ("Two men sit.", True), ("It rains.", False)]
    assert translated == ["<p>Ein Hund.  Assis, deux <b>hommes</b></p>", "# Regen\n\n---\n"]


def test_lines_of_no_known_language_are_translated_whole() -> None:
    lines: list[str] = []

    def translate(sentences: Sequence[DocumentSentence]) -> list[AlignedText]:
        lines.extend(sentence.text for sentence in sentences)
        return [AlignedText(sentence.text.upper(), ()) for sentence in sentences]

    assert translate_documents([parse_html("<p>a b. c</p>")], None, translate) == ["<p>A B. C</p>"]
    assert lines == ["a b. c"]


def test_what_is_refused_stays_and_is_named() -> None:
    refused: list[tuple[int, str, str]] = []
    documents = [parse_html("<p>It rains.</p>"), parse_html("<p>Two <b>men</b> sit.</p>")]

    def translate(sentences: Sequence[DocumentSentence]) -> list[Refusal | AlignedText]:
        return [Refusal("too wet") if "rain" in text else AlignedText("x", ()) for text, _ in sentences]

    translated = translate_documents(documents, "en", translate, lambda *refusal: refused.append(refusal))
    assert translated == ["<p>It rains.</p>", "<p><b></b>x</p>"]
    assert refused == [(0, "It rains.", "too wet")]


def at_most(size: int) -> Callable[[str], None]:
    """Return a check of texts that may have so many characters."""

    def check(text: str) -> None:
        if len(text) > size:
            raise DataError(f"{len(text)} characters are too long")

    return check


@pytest.mark.parametrize(
    ("sentence", "between", "pieces"),
    [
        ("one two  three four", ("", "  ", " ", ""), ("one two", "three", "four")),
        ("one two", ("", ""), ("one two",)),
        ("incomprehensible or", ("", "", " ", ""), ("incompre", "hensible", "or")),
    ],
)
def test_a_sentence_that_is_too_long_is_cut_between_words(
    sentence: str, between: tuple[str, ...], pieces: tuple[str, ...]
) -> None:
    split = cut_sentence(sentence, at_most(8))
    assert (split.between, split.sentences) == (between, pieces)
    assert split.join(split.sentences) == sentence


def test_a_long_sentence_is_cut_also_where_it_could_be_read() -> None:
    # others would wait for as long as it is translated
    long = " ".join(["a"] * MAX_SENTENCE)
    split = cut_sentence(long, at_most(10**6))
    assert split.join(split.sentences) == long
    assert [len(piece) for piece in split.sentences] == [499, 499]


def test_a_sentence_whose_characters_are_refused_is_refused_as_a_whole() -> None:
    with pytest.raises(DataError, match=r"^7 characters are too long"):
        cut_sentence("one two", at_most(0))
