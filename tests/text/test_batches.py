import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attent.errors import ArgumentError, DataError
from attent.text.batches import ROW_MULTIPLE, Batch, BatchSize, Bitext, Sequences, round_up
from attent.text.text import Pair
from attent.text.tokenizer import BOS, EOS, PAD, CharTokenizer

TOKENIZER = CharTokenizer("abcde")


def bitext(pairs: list[tuple[str, str]], keys: int = 16) -> Bitext:
    return Bitext([Pair(*pair) for pair in pairs], TOKENIZER, TOKENIZER, length_multiple=keys)


def make_pairs(count: int) -> Bitext:
    return bitext([("abcde"[: 1 + row % 5] * (1 + row % 3), "edcba"[: row % 4]) for row in range(count)])


def test_worked_by_hand() -> None:
    batch = bitext([("ab", "c"), ("abc", "de")], keys=1).batch(np.array([1, 0]))
    a, b, c, d, e = range(4, 9)
    assert batch.source.tolist() == [[a, b, c], [a, b, PAD]]
    assert batch.source_lengths.tolist() == [3, 2]
    assert batch.target_in.tolist() == [[BOS, d, e], [BOS, c, EOS]]
    assert batch.target_out.tolist() == [[d, e, EOS], [c, EOS, PAD]]
    assert batch.target_lengths.tolist() == [3, 2]
    assert batch.tokens == 5
    mixed = Bitext([Pair("ab", "c")], CharTokenizer("ab"), CharTokenizer("c"))
    tokens = {side: sequences.concatenate(np.arange(1)).tolist() for side, sequences in mixed.token_sequences.items()}
    assert tokens == {"source": [4, 5], "target": [BOS, 4, EOS]}


@settings(max_examples=25)
@given(st.lists(st.tuples(st.text("abcde", max_size=41), st.text("abcde", max_size=41)), min_size=1, max_size=7))
def test_a_batch_holds_every_token_and_padding_only(pairs: list[tuple[str, str]]) -> None:
    batch = bitext(pairs).batch(np.arange(len(pairs)))
    assert batch.source.shape[1] % 16 == batch.target_in.shape[1] % 16 == 0
    assert batch.target_in.shape == batch.target_out.shape
    assert batch.tokens == batch.target_lengths.sum() == (batch.target_out != PAD).sum()
    for row, (source, target) in enumerate(pairs):
        length = int(batch.source_lengths[row])
        assert TOKENIZER.decode(batch.source[row, :length].tolist()) == source
        assert batch.source[row, length:].eq(PAD).all()
        assert batch.target_in[row, 0] == BOS
        assert batch.target_out[row].tolist()[: len(target) + 1] == [*TOKENIZER.encode(target), EOS]
        assert batch.target_in[row, 1 : len(target) + 1].tolist() == TOKENIZER.encode(target)


def test_every_pair_comes_once_an_epoch_and_epochs_differ() -> None:
    data = make_pairs(53)
    for size in (BatchSize(pairs=7), BatchSize(tokens=61)):
        orders = [np.concatenate(data.epoch_plan(size, *index)) for index in ((1, 0), (1, 0), (1, 1), (2, 0))]
        assert all(sorted(order) == list(range(53)) for order in orders)
        assert (orders[0] == orders[1]).all()
        assert (orders[0] != orders[2]).any()
        assert (orders[0] != orders[3]).any()


def test_batches_by_tokens_keep_to_their_size_in_multiples_of_eight() -> None:
    data, size = make_pairs(503), BatchSize(tokens=211)
    batches = [data.batch(rows) for rows in data.epoch_plan(size, seed=1, epoch=0)]
    longest = [max(int(batch.source_lengths.max()), int(batch.target_lengths.max())) for batch in batches]
    assert all(len(batch.source) * length <= 211 for batch, length in zip(batches, longest, strict=True))
    odd = [batch for batch in batches if len(batch.source) > ROW_MULTIPLE and len(batch.source) % ROW_MULTIPLE]
    assert len(odd) <= 1
    assert size.rows(1000) == 1
    assert [round_up(number, ROW_MULTIPLE) for number in (0, 1, 8, 9)] == [0, 8, 8, 16]


def test_batches_hold_pairs_of_like_length() -> None:
    data = make_pairs(503)
    spread = [np.ptp(data.source.lengths[rows]) for rows in data.epoch_plan(BatchSize(pairs=8), seed=1, epoch=0)]
    assert np.mean(spread) < 3 < np.ptp(data.source.lengths)


def test_an_endless_stream_can_be_taken_up_at_any_place() -> None:
    data, size = make_pairs(11), BatchSize(pairs=4)
    stream = data.stream(size, seed=1)
    positions, batches = [], []
    for _ in range(7):
        positions.append(stream.position)
        batches.append(next(stream))
    assert positions[:4] == [(0, 0), (0, 1), (0, 2), (0, 3)]
    assert positions[4] == (1, 1)
    for position, batch in zip(positions, batches, strict=True):
        assert next(data.stream(size, seed=1, position=position)).source.equal(batch.source)


def test_once_gives_each_batch_with_its_rows() -> None:
    data = make_pairs(11)
    batches = list(data.sorted_batches(BatchSize(pairs=4)))
    assert sorted(np.concatenate([rows for rows, _ in batches])) == list(range(11))
    assert all((batch.source_lengths.numpy() == data.source.lengths[rows]).all() for rows, batch in batches)
    lengths = np.concatenate([data.source.lengths[rows] for rows, _ in batches])
    assert len(batches) == 3
    assert lengths[0] <= lengths[-1]


@pytest.mark.parametrize("size", [{}, {"pairs": 3, "tokens": 5}])
def test_a_size_is_one_or_the_other(size: dict[str, int]) -> None:
    with pytest.raises(ArgumentError, match="a batch size is pairs or tokens"):
        BatchSize(**size)


def test_nothing_makes_no_batch_and_an_empty_text_one_of_padding() -> None:
    assert Sequences([[], [5]]).pad(np.array([0])).tolist() == [[PAD]]
    with pytest.raises(DataError, match="no pair"):
        next(bitext([]).stream(BatchSize(pairs=3), seed=1))


def pieces(batch: Batch) -> list[tuple[list[int], list[int]]]:
    """The tokens of each pair that counts."""
    if not batch.tokens:
        return []
    sides = zip(batch.source, batch.source_lengths, batch.target_out, batch.target_lengths, strict=True)
    return [(source[:read].tolist(), target[:target_length].tolist()) for source, read, target, target_length in sides]


@pytest.mark.parametrize(
    ("parts", "size"),
    [(1, BatchSize(pairs=5)), (2, BatchSize(tokens=17)), (3, BatchSize(5)), (7, BatchSize(None, 17))],
)
def test_parts_are_the_whole_without_loss_or_repeat(parts: int, size: BatchSize) -> None:
    """Also where there are more of them than pairs, and from the same place on whatever their number."""
    data = make_pairs(53)
    whole = data.stream(size, 1, (0, 2))
    streams = [data.stream(size, 1, (0, 2)) for _ in range(parts)]
    for _ in range(2 * len(data.epoch_plan(size, 1, 0))):
        batch = next(whole)
        result = [batches.next_shard(number, parts) for number, batches in enumerate(streams)]
        assert {tokens for _, tokens in result} == {batch.tokens} == {sum(part.tokens for part, _ in result)}
        assert sorted(pair for part, _ in result for pair in pieces(part)) == sorted(pieces(batch))
        assert all(len(part.source) for part, _ in result)
        assert {batches.position for batches in streams} == {whole.position}
        for number, (part, _) in enumerate(result):
            assert pieces(part) == pieces(batch)[number::parts]
            assert part.tokens == int(batch.target_lengths[number::parts].sum())
