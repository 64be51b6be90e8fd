import numpy as np
import pytest
import torch

from attent.errors import ArgumentError, ShapeError
from attent.text.batches import Sequences
from attent.text.subword_tokenizer import BpeTokenizer
from attent.text.tokenizer import BOS, EOS, SPECIALS, UNK, CharTokenizer, WordTokenizer
from attent.text.word_vectors import WordVectors
from attent.text.word_vectors.vectors import candidate_words, match_vocabulary

WORDS = WordVectors(["dog", "cat", "hound", "Rome"], torch.tensor([[2.0, 0.0], [1.0, 1.0], [3.0, 0.0], [0.0, -1.0]]))


def test_words_are_looked_up() -> None:
    assert (len(WORDS), WORDS.width, "cat" in WORDS, "cow" in WORDS) == (4, 2, True, False)
    assert WORDS["hound"].tolist() == [3, 0]
    assert repr(WORDS) == "WordVectors(4 words of 2 numbers)"
    with pytest.raises(ArgumentError, match=r"^no vector of 'cow'$"):
        WORDS["cow"]
    with pytest.raises(ArgumentError, match=r"^no vector of 'DOG', only 'dog'$"):
        WORDS["DOG"]


def test_the_nearest_have_the_largest_cosine() -> None:
    (first, first_cosine), (second, half), (third, third_cosine) = WORDS.nearest("dog", 3)
    assert (first, second, third) == ("hound", "cat", "Rome")
    assert (first_cosine, half, third_cosine) == pytest.approx((1, 0.5**0.5, 0))
    assert WORDS.nearest(torch.tensor([0.0, -5.0]), 4)[0] == ("Rome", 1)


def test_cosines_are_those_of_plain_torch() -> None:
    vectors = torch.randn(1003, 7)
    word_vectors = WordVectors([f"w{n}" for n in range(1003)], vectors)
    cosines = torch.cosine_similarity(vectors[5], vectors)
    cosines[5] = -2
    best = cosines.argsort(descending=True)
    nearest = word_vectors.nearest("w5", 1002)
    assert [word for word, _ in nearest[:50]] == [f"w{n}" for n in best[:50].tolist()]
    torch.testing.assert_close(torch.tensor([cosine for _, cosine in nearest]), cosines[best[:-1]])


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ShapeError, match=r"vectors must be \(N, D\), one for each of 2 words, got \(3, 4\)"):
        WordVectors(["a", "b"], torch.zeros(3, 4))
    with pytest.raises(ArgumentError, match="words must be distinct, got 'a' twice"):
        _ = WordVectors(["a", "b", "a"], torch.zeros(3, 4)).rows
    with pytest.raises(ShapeError, match=r"a vector must be \(2,\), got \(3,\)"):
        WORDS.nearest(torch.zeros(3))
    for n in (0, 4):
        with pytest.raises(ArgumentError, match=f"n must be from 1 to 3, got {n}"):
            WORDS.nearest("dog", n)


TOKENIZER = WordTokenizer([" the", " Paris", " (", "(", " Zug", "\t", " cat"])


def vectors(*words: str) -> WordVectors:
    return WordVectors(list(words), torch.arange(float(len(words)))[:, None])


def test_words_are_found_as_written_and_else_lower_cased() -> None:
    matches = match_vocabulary(TOKENIZER, vectors("paris", "Paris", "zug", "(", "the", "THE"))
    assert {TOKENIZER.piece(token): row for token, row in zip(matches.ids, matches.rows, strict=True)} == {
        " the": 4,
        " Paris": 1,
        " (": 3,
        "(": 3,
        " Zug": 2,
    }
    assert (matches.lowercased, matches.parts, matches.size) == (1, 1, 7)
    assert candidate_words(TOKENIZER) >= {"the", "Paris", "paris", "(", "Zug", "zug", "cat"}


def test_nothing_found_is_nothing() -> None:
    assert match_vocabulary(TOKENIZER, vectors("dog"))[:3] == ([], [], 0)


def test_running_words_count_as_often_as_they_come() -> None:
    matches = match_vocabulary(TOKENIZER, vectors("the", "cat"))
    the, cat, zug = TOKENIZER.encode("the cat Zug")
    text = Sequences([[BOS, the, the, zug, EOS], [], [BOS, UNK, cat, zug, EOS]])
    assert matches.text_coverage(text) == pytest.approx(3 / 6)
    assert matches.text_coverage(Sequences([])) == 0


def test_pieces_of_words_have_no_words_vector() -> None:
    tokenizer = BpeTokenizer.learn(["low lower lowest newer wider, low"] * 20, 300)
    assert "▁low" in tokenizer.pieces("low")
    pieces = [piece for piece in map(tokenizer.piece, range(tokenizer.size)) if piece]
    parts = [piece for piece in pieces if not piece.startswith("▁")]
    assert {"e", "r", ","} <= set(parts)
    matches = match_vocabulary(tokenizer, vectors("low", "e", "r", ","))
    assert {tokenizer.piece(token) for token in matches.ids} == {"▁low", ","} | ({"▁e", "▁r"} & set(pieces))
    # the space alone is no word either
    assert matches.parts == len(parts) - 1 + ("▁" in pieces)
    assert matches.size == tokenizer.size - 4
    by_piece = match_vocabulary(tokenizer, vectors("▁low", *parts))
    assert {tokenizer.piece(token) for token in by_piece.ids} == {"▁low", *parts}
    assert by_piece.parts == 0


def test_characters_are_words_and_signs() -> None:
    matches = match_vocabulary(CharTokenizer("aB "), vectors("a", "b"))
    assert np.array(matches.ids).tolist() == [4, 5]
    assert (matches.lowercased, matches.parts) == (1, 1)


def test_a_space_alone_makes_no_vectors_of_pieces() -> None:
    tokenizer = BpeTokenizer.learn(["the dog and the cat"] * 9, 300)
    assert "▁" in map(tokenizer.piece, range(SPECIALS, tokenizer.size))
    matches = match_vocabulary(tokenizer, vectors("▁", "the", "dog"))
    assert {tokenizer.word(token) for token in matches.ids} == {"the", "dog"}
