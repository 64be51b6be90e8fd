from __future__ import annotations

import json
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attent.errors import ArgumentError, DataError
from attent.text.tokenizer import (
    BOS,
    EOS,
    PAD,
    UNK,
    CharTokenizer,
    WordTokenizer,
    respell,
    sentence_ends,
    unicode_names,
    unknown_pieces,
)


@given(st.lists(st.text()))
def test_decoding_undoes_encoding_where_every_character_is_known(lines: list[str]) -> None:
    tokenizer = CharTokenizer.learn(lines)
    for line in lines:
        ids = tokenizer.encode(line)
        assert tokenizer.decode(ids) == line
        assert all(EOS < token < tokenizer.size for token in ids)


def test_by_hand() -> None:
    tokenizer = CharTokenizer.learn(["banana", "cab"])
    assert tokenizer.entries == ("a", "b", "n", "c")
    assert tokenizer.size == 8
    assert tokenizer.encode("canxb") == [7, 4, 6, UNK, 5]
    assert tokenizer.decode([BOS, 7, 4, PAD, UNK, 5, EOS, 6, 99]) == "cab"
    for token in (-1, 8):
        with pytest.raises(ArgumentError, match=f"from 0 to 7, got {token}"):
            tokenizer.decode([4, token])
    assert CharTokenizer.learn(["cab", "banana"]).entries == tokenizer.entries
    # nothing is normalized
    assert CharTokenizer.learn(["é"]).encode("e\u0301É") == [UNK] * 3


def test_an_id_stands_for_a_piece_and_for_a_word() -> None:
    characters, words = CharTokenizer("a \N{CJK UNIFIED IDEOGRAPH-65E5}"), WordTokenizer([" the", "\t", "("])
    assert [characters.piece(token) for token in range(7)] == ["", "", "", "", "a", " ", "日"]
    assert [characters.word(token) for token in range(7)] == [None, None, None, None, "a", None, "日"]
    assert [words.piece(token) for token in range(7)] == ["", "", "", "", " the", "\t", "("]
    assert [words.word(token) for token in range(7)] == [None, None, None, None, "the", None, "("]


GOOD = {"format": "attent character tokenizer", "version": 1, "characters": ["a", "b"]}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "cannot be read"),
        ("\udcff", "cannot be read"),
        ("[]", "is not a character tokenizer"),
        (json.dumps(GOOD | {"format": "other"}), "is not a character tokenizer"),
        (json.dumps(GOOD | {"version": 2}), "version 2; this attent reads version 1"),
        (json.dumps(GOOD | {"characters": "ab"}), "must be a list"),
        (json.dumps(GOOD | {"characters": ["a", "a"]}), "'a' twice"),
        (json.dumps(GOOD | {"characters": ["a", 5]}), "got 5"),
        (json.dumps(GOOD | {"characters": ["a", ["b"]]}), "one code point"),
    ],
)
def test_a_damaged_file_is_one_line_with_its_path(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_bytes(content.encode("utf-8", "surrogateescape"))
    with pytest.raises(DataError, match=message) as caught:
        CharTokenizer.load(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


@given(st.lists(st.text(), max_size=5))
def test_decoding_undoes_encoding_where_every_word_is_known(lines: list[str]) -> None:
    tokenizer = WordTokenizer.learn([*lines, *lines])
    for line in lines:
        ids = tokenizer.encode(line)
        assert tokenizer.decode(ids) == line
        assert all(EOS < token < tokenizer.size for token in ids)


@given(st.text())
def test_there_is_one_piece_per_id_of_words(text: str) -> None:
    tokenizer = WordTokenizer.learn(["abc abc"])
    assert len(tokenizer.pieces(text)) == len(tokenizer.encode(text))
    assert "".join(tokenizer.pieces(text)).removeprefix(" ") == text


def test_words_by_hand() -> None:
    tokenizer = WordTokenizer.learn(["A dog, a cat.", "a dog!", "dog."])
    assert tokenizer.entries == (" dog", " a", ".")
    assert tokenizer.size == 7
    assert tokenizer.encode("dog. a bird") == [4, 6, 5, UNK]
    assert tokenizer.decode([BOS, 4, PAD, UNK, 6, EOS, 5, 99]) == "dog."
    assert WordTokenizer([]).pieces("Don't stop: हिन्दी, e\u0301te\u0301 (x)") == [
        " Don", "'", "t", " stop", ":", " हिन्दी", ",", " e\u0301te\u0301", " (", "x", ")",
    ]  # fmt: skip
    lines = ["a b c d e", "a b c", "a"]
    assert WordTokenizer.learn(lines, 6).entries == (" a", " b")
    assert WordTokenizer.learn(lines, 99).size == 9
    with pytest.raises(ArgumentError, match="more than its 4 special ids, got 4"):
        WordTokenizer.learn(lines, 4)


def test_a_damaged_or_missing_file_of_words_is_named(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps({"format": "attent word tokenizer", "version": 1, "words": ["a", ""]}), encoding="utf-8")
    with pytest.raises(DataError, match=r"tokenizer\.json.*must be a non-empty text"):
        WordTokenizer.load(path)
    with pytest.raises(DataError, match=r"none\.json"):
        WordTokenizer.load(tmp_path / "none.json")


def test_a_long_text_is_cut_as_a_short_one_is_in_little_memory() -> None:
    tokenizer, text = WordTokenizer.learn(["one two", "one two"]), "one two " * 50_000
    assert tokenizer.encode(text.strip()) == tokenizer.encode("one two") * 50_000
    tracemalloc.start()
    tokenizer.encode(text)
    WordTokenizer.learn([text])
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 8 * len(text)


TOKENIZER = CharTokenizer("abé3\u202f'-")


@pytest.mark.parametrize(
    ("typed", "read"),
    [("ab\u202f3", "ab\u202f3"), ("a 3", "a\u202f3"), ("e\u0301", "é"), ("３", "3"), ("a’b–a", "a'b-a"), ("aЖ", "aЖ")],
)
def test_what_is_typed_is_written_as_the_model_knows_it(typed: str, read: str) -> None:
    assert respell(typed, TOKENIZER) == (read, TOKENIZER.encode(read))
    # what is known is left alone
    assert respell("a e\u0301\u202f", CharTokenizer("a \u202fe\u0301é"))[0] == "a e\u0301\u202f"


@pytest.mark.parametrize(
    ("typed", "read"),
    [
        ("The dog sleeps", "the dog sleeps"),
        ("  the  dog sleeps ", "the dog sleeps"),
        ("THE DOG sleeps", "the DOG sleeps"),
        ("the Dog", "the Dog"),
        ("Rex sleeps", "Rex sleeps"),
        ("Paris sleeps", "Paris sleeps"),
        ("The Rex", "the Rex"),
        ("the  ", "the"),
    ],
)
def test_a_sentence_is_spelled_as_the_model_knows_it(typed: str, read: str) -> None:
    words = WordTokenizer([" the", " dog", " sleeps", " Paris", " paris"])
    assert respell(typed, words) == (read, words.encode(read))
    assert len(unknown_pieces(read, words)) == sum(word in ("Rex", "Dog", "DOG") for word in read.split())


def test_sentences_end_with_signs_and_with_pieces_that_end_with_one() -> None:
    assert sentence_ends(WordTokenizer([" a", ".", " …", ",", "?", "。", "Mr."])) == (5, 6, 8, 9, 10)
    assert sentence_ends(CharTokenizer(["a", "-", "!"])) == (6,)
    assert sentence_ends(CharTokenizer(["a"])) == ()


def test_unknown_pieces_come_once_and_with_their_names() -> None:
    assert unknown_pieces("aЖbЖ?", TOKENIZER) == ["Ж", "?"]
    assert unicode_names("Ж") == "'Ж' (CYRILLIC CAPITAL LETTER ZHE)"
    assert unicode_names("\x00") == "'\\x00' (U+0000)"
