import numpy as np
import pytest
import torch

from attent.errors import DataError
from attent.tasks.fill_mask.examples import MASK, MaskedBatch, MaskedLines, hash_positions, tokenize_masked
from attent.text.batches import Sequences
from attent.text.tokenizer import SPECIALS, UNK, CharTokenizer
from attent.text.tokenizers import learn

SIZE = 101
LINES = [list(range(SPECIALS, SPECIALS + length)) for length in (1, 2, 3, 5, 7, 13, 29, 31, 37, 53, 67, 71)]
DATA = MaskedLines(Sequences(LINES), SIZE, 0.15)
ROWS = np.arange(len(LINES))


def cells(batch: MaskedBatch) -> list[list[tuple[int, int]]]:
    """By row: each blank's place and what is read there."""
    width = batch.token_ids.shape[1]
    result = [list[tuple[int, int]]() for _ in batch.token_ids]
    for index in batch.positions.tolist():
        result[index // width].append((index % width, int(batch.token_ids[index // width, index % width])))
    return result


def test_a_share_of_each_line_is_to_be_guessed_and_all_else_is_as_it_was() -> None:
    batch = DATA.augmented(ROWS, 1, 0)
    # one token at least
    assert [len(row) for row in cells(batch)] == [max(1, round(0.15 * len(line))) for line in LINES]
    assert batch.tokens == len(batch.labels) == DATA.token_count(ROWS)
    whole = batch.token_ids.flatten().clone()
    whole[batch.positions] = batch.labels
    for row, line, blanks in zip(whole.view(batch.token_ids.shape).tolist(), LINES, cells(batch), strict=True):
        assert all(blank < len(line) for blank, _ in blanks)
        assert row[: len(line)] == line
        assert not any(row[len(line) :])


def test_of_blanks_eight_tenths_are_masked_one_is_anything_and_one_as_it_was() -> None:
    data = MaskedLines(Sequences([list(range(SPECIALS, SIZE))] * 997), SIZE, 0.15)
    batch = data.augmented(np.arange(997), 3, 1)
    read = batch.token_ids.flatten()[batch.positions]
    shares = [(read == SIZE).float().mean(), (read == batch.labels).float().mean()]
    # a hundredth of the others is by chance what it was
    assert shares == [pytest.approx(0.8, abs=0.015), pytest.approx(0.101, abs=0.01)]
    others = read[(read != SIZE) & (read != batch.labels)]
    assert set(others.tolist()) == set(range(SPECIALS, SIZE))
    assert (data.batch(np.arange(5)).token_ids.flatten()[data.batch(np.arange(5)).positions] == SIZE).all()


def test_blanks_are_a_function_of_seed_epoch_and_row_alone() -> None:
    whole = cells(DATA.augmented(ROWS, 1, 0))
    sample = ROWS[[7, 3, 11]]
    assert cells(DATA.augmented(sample, 1, 0)) == [whole[row] for row in sample]
    assert cells(DATA.augmented(ROWS, 1, 1)) != whole
    assert cells(DATA.augmented(ROWS, 2, 0)) != whole
    repeated = cells(DATA.batch(ROWS))
    assert cells(DATA.batch(sample)) == [repeated[row] for row in sample]


def test_every_place_is_as_likely_as_every_other() -> None:
    data = MaskedLines(Sequences([list(range(SPECIALS, SPECIALS + 10))] * 5003), SIZE, 0.15, length_multiple=1)
    counts = torch.bincount(data.augmented(np.arange(5003), 1, 0).positions % 10, minlength=10)
    assert counts.sum() == 2 * 5003
    assert (counts - 1000.6).abs().max() < 120
    numbers = hash_positions(1, 2, np.arange(101), 101)
    assert len(np.unique(numbers)) == 101 * 101
    assert numbers.dtype == np.uint64


TEXT = ["the dog was tired , so it slept .", "the cat was tired .", "the dog slept , so it was ( tired ) ."] * 5


@pytest.mark.parametrize("kind", ["word", "bpe", "unigram", "char"])
def test_a_blank_is_one_token_whatever_cuts_the_text(kind: str) -> None:
    tokenizer = learn(kind, TEXT, None if kind in ("word", "char") else 310)
    line = tokenize_masked("the dog was [MASK] , so it [MASK] .", tokenizer)
    assert [line.pieces[mask_position] for mask_position in line.mask_positions] == [MASK, MASK]
    assert [index for index, token in enumerate(line.tokens) if token == tokenizer.size] == list(line.mask_positions)
    rest = [token for token in line.tokens if token != tokenizer.size]
    assert UNK not in rest
    # of a character's blank the space before it stays
    assert tokenizer.decode(rest) == ("the dog was  , so it  ." if kind == "char" else "the dog was , so it .")


def test_a_blank_stands_at_either_end_and_beside_signs_and_is_no_part_of_a_word() -> None:
    tokenizer = learn("word", TEXT)
    assert tokenize_masked("[MASK]", tokenizer).mask_positions == [0]
    assert tokenize_masked("[MASK], so", tokenizer).pieces == [MASK, ",", " so"]
    assert tokenize_masked("([MASK])", tokenizer).pieces == [" (", MASK, ")"]
    assert tokenize_masked("[MASK]", CharTokenizer("a")).tokens == [5]
    with pytest.raises(
        DataError, match=r"there is no \[MASK\] or _____ in 'the dog': write one of them for each blank"
    ):
        tokenize_masked("the dog", tokenizer)
    with pytest.raises(DataError, match=r"\[MASK\] stands for a whole word: put spaces around it in ' un\[MASK\]ed'"):
        tokenize_masked("the dog was un[MASK]ed", tokenizer)


@pytest.mark.parametrize("kind", ["word", "bpe", "char"])
def test_a_blank_may_be_underscores_that_are_no_part_of_a_word(kind: str) -> None:
    tokenizer = learn(kind, TEXT, 310 if kind == "bpe" else None)
    for text in ("the dog was [MASK] , so it [MASK] .", "[MASK], so ([MASK])"):
        for underscores in ("___", "_____", "_" * 20):
            assert tokenize_masked(text.replace(MASK, underscores), tokenizer) == tokenize_masked(text, tokenizer)
    for text in ("the __ dog", "the un___ed dog", "the ___ed dog", "the 7____ dog"):
        assert not tokenize_masked(text, tokenizer, is_masked=False).mask_positions
        with pytest.raises(DataError, match=r"there is no \[MASK\] or _____ in"):
            tokenize_masked(text, tokenizer)
