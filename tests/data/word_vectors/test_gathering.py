import numpy as np
import pytest
import torch

from attent.data.word_vectors import gathering
from attent.data.word_vectors.gathering import Block, Gathered
from attent.data.word_vectors.report import AGAIN, NOT_FINITE, NOT_UTF8, VectorsReport


def block(first: int, *words: bytes, width: int = 3) -> Block:
    places = list(range(first, first + len(words)))
    return Block(places, list(words), np.arange(len(words) * width, dtype=np.float32).reshape(-1, width) + 100 * first)


def test_pieces_make_one_whatever_the_sizes_of_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gathering, "PIECE", 5 * 4 * 3)
    blocks = [block(1, b"a", b"b"), block(3, *(b"%d" % n for n in range(11))), block(14, b"c")]
    gathered = Gathered(3, VectorsReport("x"))
    for one in blocks:
        gathered.add(one)
    assert list(gathered.rows) == ["a", "b", *map(str, range(11)), "c"]
    torch.testing.assert_close(gathered.vectors(), torch.from_numpy(np.concatenate([one.vectors for one in blocks])), rtol=0, atol=0)


def test_the_first_of_a_words_vectors_is_kept_and_none_that_is_not_finite() -> None:
    report = VectorsReport("x")
    gathered, damaged = Gathered(3, report), block(1, b"a", b"b", b"a", b"c")
    damaged.vectors[1, 2], damaged.vectors[3, 0] = np.nan, np.inf
    gathered.add(damaged)
    gathered.add(block(5, b"b", b"a"))
    assert list(gathered.rows) == ["a", "b"]
    assert gathered.vectors().tolist() == [[100, 101, 102], [500, 501, 502]]
    assert {reason: tally.first for reason, tally in report.dropped.items()} == {NOT_FINITE: [2, 4], AGAIN: [3, 6]}


def test_a_word_that_is_not_utf8_keeps_its_vector() -> None:
    report = VectorsReport("x")
    gathered = Gathered(3, report)
    gathered.add(block(1, b"na\xefve", "naïve".encode()))
    assert list(gathered.rows) == ["na�ve", "naïve"]
    assert report.noted[NOT_UTF8].first == [1]


def test_only_what_is_wanted_is_kept() -> None:
    report = VectorsReport("x")
    gathered = Gathered(3, report, {"b", "d"})
    gathered.add(block(1, b"a", b"b", b"c"))
    assert (list(gathered.rows), report.unwanted) == (["b"], 2)
    assert gathered.vectors().tolist() == [[103, 104, 105]]
