import itertools
from pathlib import Path

import pytest

from attent.data.batches import Batch, BatchSize
from attent.data.index import index
from attent.data.resampled import ResampledBitext
from attent.data.stored import WorkingFolder, store
from attent.data.subword_tokenizer import BpeTokenizer
from attent.data.text import Pair

PAIRS = [Pair(f"the dog {number} walks", f"der Hund {number} geht") for number in range(41)] + [Pair("long " * 30, "lang")]
SIZE = BatchSize(pairs=8)


@pytest.fixture
def tokenizer() -> BpeTokenizer:
    return BpeTokenizer.learn([text for pair in PAIRS for text in (pair.source, pair.target)], 330)


@pytest.fixture
def data(tmp_path: Path, tokenizer: BpeTokenizer) -> ResampledBitext:
    pairs = store(enumerate(PAIRS), WorkingFolder(), "pairs")
    encoded = index(pairs, tokenizer, tokenizer, tmp_path, maximum_length=20)
    return ResampledBitext(encoded, pairs, tokenizer, tokenizer, 0.3)


def texts(tokenizer: BpeTokenizer, batch: Batch) -> list[tuple[str, str]]:
    return [
        (tokenizer.decode(source), tokenizer.decode(target))
        for source, target in zip(batch.source.tolist(), batch.target_out.tolist(), strict=True)
    ]


def test_each_epoch_has_every_pair_in_other_pieces(data: ResampledBitext, tokenizer: BpeTokenizer) -> None:
    batches = list(itertools.islice(data.endless(SIZE, 1), 12))
    for epoch in (batches[:6], batches[6:]):
        found = [pair for batch in epoch for pair in texts(tokenizer, batch)]
        assert sorted(found) == sorted((pair.source, pair.target) for pair in PAIRS[:-1])
    pieces = {
        tuple(ids)
        for batch in batches
        for ids, (source, _) in zip(batch.source.tolist(), texts(tokenizer, batch), strict=True)
        if "g 7 " in source
    }
    assert len(pieces) == 2


def test_a_stream_taken_up_again_goes_on_the_same(data: ResampledBitext) -> None:
    stream = data.endless(SIZE, 1)
    for _ in range(7):
        next(stream)
    again = data.endless(SIZE, 1, stream.place)
    for _ in range(3):
        assert next(stream).source.equal(next(again).source)


def test_outside_training_pieces_are_the_likeliest(data: ResampledBitext, tokenizer: BpeTokenizer) -> None:
    rows, batch = next(data.once(SIZE))
    expected = [tokenizer.encode(PAIRS[row].source) for row in rows]
    assert [row[:length] for row, length in zip(batch.source.tolist(), batch.source_lengths.tolist(), strict=True)] == expected
