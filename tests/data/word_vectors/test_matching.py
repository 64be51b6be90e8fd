import numpy as np
import pytest
import torch

from attent.data.batches import Sequences
from attent.data.subword_tokenizer import BpeTokenizer
from attent.data.tokenizer import BOS, EOS, SPECIALS, UNK, CharTokenizer
from attent.data.word_tokenizer import WordTokenizer
from attent.data.word_vectors import WordVectors
from attent.data.word_vectors.matching import matched, wanted

WORDS = WordTokenizer([" the", " Paris", " (", "(", " Zug", "\t", " cat"])


def vectors(*words: str) -> WordVectors:
    return WordVectors(list(words), torch.arange(float(len(words)))[:, None])


def test_words_are_found_as_written_and_else_lower_cased() -> None:
    found = matched(WORDS, vectors("paris", "Paris", "zug", "(", "the", "THE"))
    assert {WORDS.piece(token): row for token, row in zip(found.ids, found.rows, strict=True)} == {
        " the": 4,
        " Paris": 1,
        " (": 3,
        "(": 3,
        " Zug": 2,
    }
    assert (found.lowered, found.parts, found.size) == (1, 1, 7)
    assert wanted(WORDS) >= {"the", "Paris", "paris", "(", "Zug", "zug", "cat"}


def test_nothing_found_is_nothing() -> None:
    assert matched(WORDS, vectors("dog"))[:3] == ([], [], 0)


def test_running_words_count_as_often_as_they_come() -> None:
    found = matched(WORDS, vectors("the", "cat"))
    the, cat, zug = WORDS.encode("the cat Zug")
    text = Sequences([[BOS, the, the, zug, EOS], [], [BOS, UNK, cat, zug, EOS]])
    assert found.running(text) == pytest.approx(3 / 6)
    assert found.running(Sequences([])) == 0


def test_pieces_of_words_have_no_words_vector() -> None:
    tokenizer = BpeTokenizer.learn(["low lower lowest newer wider, low"] * 20, 300)
    assert "▁low" in tokenizer.pieces("low")
    pieces = [piece for piece in map(tokenizer.piece, range(tokenizer.size)) if piece]
    parts = [piece for piece in pieces if not piece.startswith("▁")]
    assert {"e", "r", ","} <= set(parts)
    found = matched(tokenizer, vectors("low", "e", "r", ","))
    assert {tokenizer.piece(token) for token in found.ids} == {"▁low", ","} | ({"▁e", "▁r"} & set(pieces))
    # the space alone is no word either
    assert found.parts == len(parts) - 1 + ("▁" in pieces)
    assert found.size == tokenizer.size - 4
    by_piece = matched(tokenizer, vectors("▁low", *parts))
    assert {tokenizer.piece(token) for token in by_piece.ids} == {"▁low", *parts}
    assert by_piece.parts == 0


def test_characters_are_words_and_signs() -> None:
    found = matched(CharTokenizer("aB "), vectors("a", "b"))
    assert np.array(found.ids).tolist() == [4, 5]
    assert (found.lowered, found.parts) == (1, 1)


def test_a_space_alone_makes_no_vectors_of_pieces() -> None:
    tokenizer = BpeTokenizer.learn(["the dog and the cat"] * 9, 300)
    assert "▁" in map(tokenizer.piece, range(SPECIALS, tokenizer.size))
    found = matched(tokenizer, vectors("▁", "the", "dog"))
    assert {tokenizer.word(token) for token in found.ids} == {"the", "dog"}
