import pytest
import torch

from attent.data.word_vectors import WordVectors
from attent.errors import ArgumentError, ShapeError

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
    (first, one), (second, half), (third, nothing) = WORDS.nearest("dog", 3)
    assert (first, second, third) == ("hound", "cat", "Rome")
    assert (one, half, nothing) == pytest.approx((1, 0.5**0.5, 0))
    assert WORDS.nearest(torch.tensor([0.0, -5.0]), 4)[0] == ("Rome", 1)


def test_cosines_are_those_of_plain_torch() -> None:
    vectors = torch.randn(1003, 7)
    found = WordVectors([f"w{n}" for n in range(1003)], vectors)
    cosines = torch.cosine_similarity(vectors[5], vectors)
    cosines[5] = -2
    best = cosines.argsort(descending=True)
    nearest = found.nearest("w5", 1002)
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
