import itertools
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from attent.data.batches import Batch, BatchSize, Bitext, Sequences
from attent.data.disk_texts import DiskTexts, TemporaryFolder, write_pairs
from attent.data.index import DiskBitext, EncodedBitext, ResampledBitext, index, save_bitext
from attent.data.report import ReadReport
from attent.data.subword_tokenizer import BpeTokenizer
from attent.data.text import Pair
from attent.data.tokenizer import PAD, CharTokenizer
from attent.errors import DataError

TOKENIZER = CharTokenizer("abcde")
PAIRS = [Pair("abcde"[: 1 + place % 5] * (1 + place % 3), "edcba"[: place % 4]) for place in range(101)]


def stored(pairs: list[Pair]) -> DiskTexts[Pair]:
    return write_pairs(enumerate(pairs, start=1), TemporaryFolder(), "pairs")


def test_batches_from_disk_are_those_from_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("attent.data.index.BLOCK_SIZE", 7)
    monkeypatch.setattr("attent.data.index.OFFSET_INTERVAL", 4)
    in_memory, size = Bitext(PAIRS, TOKENIZER, TOKENIZER), BatchSize(tokens=97)
    on_disk = index(stored(PAIRS), TOKENIZER, TOKENIZER, tmp_path / "index", maximum_length=99)
    save_bitext(in_memory, tmp_path / "put")
    for data in (on_disk, DiskBitext(tmp_path / "index"), DiskBitext(tmp_path / "put")):
        assert len(data) == 101
        assert not hasattr(data.source, "tokens")
        for _, (mine, other) in zip(range(19), zip(data.stream(size, 3), in_memory.stream(size, 3), strict=False), strict=False):
            for name in ("source", "source_lengths", "target_in", "target_out", "target_lengths"):
                assert getattr(mine, name).equal(getattr(other, name))
                assert getattr(mine, name).dtype == getattr(other, name).dtype
            assert mine.tokens == other.tokens


def test_what_is_too_long_is_left_out_and_reported(tmp_path: Path) -> None:
    report = ReadReport("pairs", lines=101)
    data = index(stored(PAIRS), TOKENIZER, TOKENIZER, tmp_path, maximum_length=4, report=report)
    short = [row for row, pair in enumerate(PAIRS) if max(len(pair.source), len(pair.target)) <= 4]
    assert data.rows.tolist() == short
    assert report.kept_count == len(short)
    assert data.source.lengths.max() == 4
    with pytest.raises(DataError, match="every one of the 2 pairs is longer than the maximum length of 3 tokens"):
        index(stored([Pair("abcd", "a"), Pair("a", "abcd")]), TOKENIZER, TOKENIZER, tmp_path / "none", maximum_length=3)


def test_large_vocabularies_keep_their_ids(tmp_path: Path) -> None:
    tokenizer = CharTokenizer([chr(code) for code in range(0x10000, 0x10000 + 70_000)])
    data = index(stored([Pair(chr(0x10000 + 69_999), "\U00010000")]), tokenizer, TOKENIZER, tmp_path, maximum_length=9)
    assert data.batch(np.array([0])).source[0, 0] == 70_003


def test_the_array_on_disk_is_numpys(tmp_path: Path) -> None:
    index(stored(PAIRS), TOKENIZER, TOKENIZER, tmp_path, maximum_length=99)
    assert np.load(tmp_path / "source.lengths.npy").tolist() == [len(pair.source) for pair in PAIRS]
    assert np.load(tmp_path / "source.tokens.npy")[:5].tolist() == TOKENIZER.encode(PAIRS[0].source + PAIRS[1].source)


def test_texts_may_be_empty(tmp_path: Path) -> None:
    assert index(stored([Pair("", "")]), TOKENIZER, TOKENIZER, tmp_path, maximum_length=9).batch(np.array([0])).tokens == 1


def test_encoded_pairs_make_batches() -> None:
    assert EncodedBitext(Sequences([[5, 6]]), Sequences([[2, 7, 3]]), length_multiple=1).batch(np.array([0])).target_out.tolist() == [
        [7, 3]
    ]


WORD_PAIRS = [Pair(f"the dog {number} walks", f"der Hund {number} geht") for number in range(41)] + [Pair("long " * 30, "lang")]
SIZE = BatchSize(pairs=8)


def learnt() -> BpeTokenizer:
    return BpeTokenizer.learn([text for pair in WORD_PAIRS for text in (pair.source, pair.target)], 330)


def resampled(folder: Path, tokenizer: BpeTokenizer, these: Sequence[Pair] = WORD_PAIRS) -> ResampledBitext:
    pairs = write_pairs(enumerate(these), TemporaryFolder(), "pairs")
    encoded = index(pairs, tokenizer, tokenizer, folder, maximum_length=20)
    return ResampledBitext(encoded, pairs, tokenizer, tokenizer, 0.3)


@pytest.fixture
def tokenizer() -> BpeTokenizer:
    return learnt()


@pytest.fixture
def data(tmp_path: Path, tokenizer: BpeTokenizer) -> ResampledBitext:
    return resampled(tmp_path, tokenizer)


def drawn(data: ResampledBitext, batches: int) -> list[list[list[list[int]]]]:
    """The ids of the sources and the targets of the first batches."""
    return [[batch.source.tolist(), batch.target_out.tolist()] for batch in itertools.islice(data.stream(SIZE, 1), batches)]


def texts(tokenizer: BpeTokenizer, batch: Batch) -> list[tuple[str, str]]:
    return [
        (tokenizer.decode(source), tokenizer.decode(target))
        for source, target in zip(batch.source.tolist(), batch.target_out.tolist(), strict=True)
    ]


def test_each_epoch_has_every_pair_in_other_pieces(data: ResampledBitext, tokenizer: BpeTokenizer) -> None:
    batches = list(itertools.islice(data.stream(SIZE, 1), 12))
    epochs: list[set[tuple[int, ...]]] = []
    for epoch in (batches[:6], batches[6:]):
        found = [pair for batch in epoch for pair in texts(tokenizer, batch)]
        assert sorted(found) == sorted((pair.source, pair.target) for pair in WORD_PAIRS[:-1])
        epochs.append({tuple(token for token in row if token != PAD) for batch in epoch for row in batch.source.tolist()})
    # By chance a pair or two may come in the same pieces again.
    assert len(epochs[0] & epochs[1]) < len(WORD_PAIRS) / 2


def test_an_only_pair_comes_in_other_pieces_again_and_again(tmp_path: Path, tokenizer: BpeTokenizer) -> None:
    """Its batches differ in nothing but their place."""
    sources, targets = zip(*drawn(resampled(tmp_path, tokenizer, WORD_PAIRS[:1]), 7), strict=True)
    assert len({str(source) for source in sources}) > 3
    assert len({str(target) for target in targets}) > 3


def test_a_fresh_process_draws_the_same_batches(data: ResampledBitext, tmp_path: Path) -> None:
    script = """
import json, pathlib, sys
sys.path.insert(0, sys.argv[1])
import test_index as test
print(json.dumps(test.drawn(test.resampled(pathlib.Path(sys.argv[2]), test.learnt()), 7)))
"""
    (other := tmp_path / "other").mkdir()
    done = subprocess.run(
        [sys.executable, "-c", script, str(Path(__file__).parent), str(other)],
        env={**os.environ, "PYTHONHASHSEED": "7"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout) == drawn(data, 7)


def test_a_stream_taken_up_again_goes_on_the_same(data: ResampledBitext) -> None:
    stream = data.stream(SIZE, 1)
    for _ in range(7):
        next(stream)
    again = data.stream(SIZE, 1, stream.position)
    for _ in range(3):
        one, other = next(stream), next(again)
        assert one.source.equal(other.source)
        assert one.target_out.equal(other.target_out)


def test_outside_training_pieces_are_the_likeliest(data: ResampledBitext, tokenizer: BpeTokenizer) -> None:
    rows, batch = next(data.sorted_batches(SIZE))
    expected = [tokenizer.encode(WORD_PAIRS[row].source) for row in rows]
    assert [row[:length] for row, length in zip(batch.source.tolist(), batch.source_lengths.tolist(), strict=True)] == expected


def test_parts_are_cut_into_the_pieces_of_the_whole(data: ResampledBitext) -> None:
    whole, *parts = (data.stream(SIZE, 1) for _ in range(4))
    for _ in range(12):
        batch, found = next(whole), [part.next_shard(number, 3) for number, part in enumerate(parts)]
        assert sum(part.tokens for part, _ in found) == batch.tokens == found[0][1]
        for number, (part, _) in enumerate(found):
            if not part.tokens:
                assert number >= len(batch.source)
                continue
            width = part.target_out.shape[1]
            assert part.target_out.equal(batch.target_out[number::3, :width])
            assert batch.target_out[number::3, width:].eq(PAD).all()


def test_no_side_grows_beyond_what_a_model_can_read(tmp_path: Path, tokenizer: BpeTokenizer) -> None:
    pairs = write_pairs(enumerate(WORD_PAIRS), TemporaryFolder(), "pairs")
    longest = max(len(tokenizer.encode(pair.source)) for pair in WORD_PAIRS[:-1])
    encoded = index(pairs, tokenizer, tokenizer, tmp_path, maximum_length=longest)
    limited, free = (ResampledBitext(encoded, pairs, tokenizer, tokenizer, 0.3, maximum_length=most) for most in (longest, None))
    assert max(int(batch.source_lengths.max()) for batch in itertools.islice(free.stream(SIZE, 1), 12)) > longest
    batches = list(itertools.islice(limited.stream(SIZE, 1), 12))
    assert max(int(batch.source_lengths.max()) for batch in batches) == longest
    assert sorted(texts(tokenizer, batches[0])) == sorted(texts(tokenizer, next(free.stream(SIZE, 1))))
