from pathlib import Path

import numpy as np
import pytest

from attent.errors import DataError
from attent.text.batches import BatchSize, Bitext
from attent.text.disk_texts import DiskBitext, DiskTexts, TemporaryFolder, index, save_bitext, write_pairs
from attent.text.text import Pair, ReadReport
from attent.text.tokenizer import CharTokenizer

TOKENIZER = CharTokenizer("abcde")
PAIRS = [Pair("abcde"[: 1 + position % 5] * (1 + position % 3), "edcba"[: position % 4]) for position in range(101)]


def stored(pairs: list[Pair]) -> DiskTexts[Pair]:
    return write_pairs(enumerate(pairs, start=1), TemporaryFolder(), "pairs")


def test_batches_from_disk_are_those_from_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("attent.text.disk_texts.BLOCK_SIZE", 7)
    monkeypatch.setattr("attent.text.disk_texts.OFFSET_INTERVAL", 4)
    in_memory, size = Bitext(PAIRS, TOKENIZER, TOKENIZER), BatchSize(tokens=97)
    on_disk = index(stored(PAIRS), TOKENIZER, TOKENIZER, tmp_path / "index", maximum_length=99)
    save_bitext(in_memory, tmp_path / "put")
    for data in (on_disk, DiskBitext(tmp_path / "index"), DiskBitext(tmp_path / "put")):
        assert len(data) == 101
        assert not hasattr(data.source, "tokens")
        for _, (mine, peer) in zip(
            range(19), zip(data.stream(size, 3), in_memory.stream(size, 3), strict=False), strict=False
        ):
            for name in ("source", "source_lengths", "target_in", "target_out", "target_lengths"):
                assert getattr(mine, name).equal(getattr(peer, name))
                assert getattr(mine, name).dtype == getattr(peer, name).dtype
            assert mine.tokens == peer.tokens


def test_what_is_too_long_is_left_out_and_reported(tmp_path: Path) -> None:
    report = ReadReport("pairs", lines=101)
    data = index(stored(PAIRS), TOKENIZER, TOKENIZER, tmp_path, maximum_length=4, report=report)
    short = [row for row, pair in enumerate(PAIRS) if max(len(pair.source), len(pair.target)) <= 4]
    assert data.rows.tolist() == short
    assert report.kept_count == len(short)
    assert data.source.lengths.max() == 4
    with pytest.raises(DataError, match="all 2 pairs are longer than the maximum length of 3 tokens"):
        index(stored([Pair("abcd", "a"), Pair("a", "abcd")]), TOKENIZER, TOKENIZER, tmp_path / "none", maximum_length=3)


def test_large_vocabularies_keep_their_ids(tmp_path: Path) -> None:
    tokenizer = CharTokenizer([chr(code) for code in range(0x10000, 0x10000 + 70_000)])
    data = index(stored([Pair(chr(0x10000 + 69_999), "\U00010000")]), tokenizer, TOKENIZER, tmp_path, maximum_length=9)
    assert data.batch(np.array([0])).source[0, 0] == 70_003


def test_texts_may_be_empty(tmp_path: Path) -> None:
    assert (
        index(stored([Pair("", "")]), TOKENIZER, TOKENIZER, tmp_path, maximum_length=9).batch(np.array([0])).tokens == 1
    )
