from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attent.errors import ArgumentError, DataError
from attent.text.batches import BatchSize, Bitext
from attent.text.disk_texts import DiskBitext, DiskTexts, TemporaryFolder, index, write_pairs
from attent.text.text import Pair, ReadReport
from attent.text.tokenizer import CharTokenizer

TEXTS = ["a", "", "é\u0301 👩‍🚀", "line\nfeed", "tab\t\x00"]
STRANGE = [Pair(source, target) for source in TEXTS for target in reversed(TEXTS)]
TOKENIZER = CharTokenizer("abcde")
PAIRS = [Pair("abcde"[: 1 + row % 5] * (1 + row % 3), "edcba"[: row % 4]) for row in range(101)]


def stored(pairs: list[Pair]) -> DiskTexts[Pair]:
    return write_pairs(((2 * row + 1, pair) for row, pair in enumerate(pairs)), TemporaryFolder(), "pairs")


@settings(max_examples=25)
@given(st.lists(st.tuples(st.text(), st.text()), max_size=7))
def test_pairs_come_back_as_they_were(texts: list[tuple[str, str]]) -> None:
    pairs = [Pair(*text) for text in texts]
    assert list(stored(pairs)) == pairs


def test_it_is_a_sequence_whose_parts_remember_their_lines() -> None:
    pairs = stored(STRANGE)
    assert len(pairs) == 25
    assert (pairs[7], pairs[-1], list(pairs[3:11:2])) == (STRANGE[7], STRANGE[-1], STRANGE[3:11:2])
    with pytest.raises(IndexError):
        pairs[25]
    sample = pairs.select(np.array([5, 2, 17])).select(np.array([1, 2]))
    assert list(sample) == [STRANGE[2], STRANGE[17]]
    assert [sample.line_number(row) for row in range(2)] == [5, 35]


def test_the_folder_lasts_as_long_as_the_pairs_which_are_written_once(tmp_path: Path) -> None:
    folder = TemporaryFolder(tmp_path)
    pairs = write_pairs(enumerate(STRANGE), folder, "pairs")
    with pytest.raises(ArgumentError, match="already exists"):
        write_pairs(enumerate(STRANGE), folder, "pairs")
    subset = pairs[:3]
    del pairs, folder
    assert list(subset) == STRANGE[:3]
    del subset
    assert not list(tmp_path.iterdir())


def test_batches_from_disk_are_those_from_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("attent.text.disk_texts.BLOCK_SIZE", 7)
    monkeypatch.setattr("attent.text.disk_texts.OFFSET_INTERVAL", 4)
    in_memory, size = Bitext(PAIRS, TOKENIZER, TOKENIZER), BatchSize(tokens=97)
    on_disk = index(stored(PAIRS), TOKENIZER, TOKENIZER, tmp_path / "index", maximum_length=99)
    for data in (on_disk, DiskBitext(tmp_path / "index")):
        assert len(data) == 101
        assert not hasattr(data.source, "tokens")
        mine, peers = data.stream(size, 3), in_memory.stream(size, 3)
        for _ in range(19):
            batch, peer = next(mine), next(peers)
            for name in ("source", "source_lengths", "target_in", "target_out", "target_lengths"):
                assert getattr(batch, name).equal(getattr(peer, name))
                assert getattr(batch, name).dtype == getattr(peer, name).dtype
            assert batch.tokens == peer.tokens


def test_what_is_too_long_is_left_out_and_reported(tmp_path: Path) -> None:
    report = ReadReport("pairs", lines=101)
    data = index(stored(PAIRS), TOKENIZER, TOKENIZER, tmp_path, maximum_length=4, report=report)
    short = [row for row, pair in enumerate(PAIRS) if max(len(pair.source), len(pair.target)) <= 4]
    assert data.rows.tolist() == short
    assert report.kept_count == len(short)
    assert data.source.lengths.max() == 4
    with pytest.raises(DataError, match="all 2 pairs are longer than the maximum length of 3 tokens"):
        index(stored([Pair("abcd", "a"), Pair("a", "abcd")]), TOKENIZER, TOKENIZER, tmp_path / "none", maximum_length=3)


def test_large_vocabularies_keep_their_ids_and_texts_may_be_empty(tmp_path: Path) -> None:
    tokenizer = CharTokenizer([chr(code) for code in range(0x10000, 0x10000 + 70_000)])
    pairs = stored([Pair(chr(0x10000 + 69_999), "\U00010000"), Pair("", "")])
    data = index(pairs, tokenizer, TOKENIZER, tmp_path, maximum_length=9)
    assert data.batch(np.array([0])).source[0, 0] == 70_003
    assert data.batch(np.array([1])).tokens == 1
