import pytest
import torch

from attent.evaluation.aligner import merge_to_words, word_indices


@pytest.mark.parametrize(
    ("text", "pieces", "expected"),
    [
        ("ab c", list("ab c"), [0, 0, None, 1]),
        (" a\u202fb ", list(" a\u202fb "), [None, 0, None, 1, None]),
        ("un known ab", ["▁un", "▁kno", "wn", "▁a", "b"], [0, 1, 1, 2, 2]),
        ("unknown ab", ["un@@", "known", "a@@", "b"], [0, 0, 1, 1]),
        ("unknown ab", ["un", "##known", "ab", ""], [0, 0, 1, None]),
        ("# ## b", ["#", "##", "b"], [0, 1, 2]),
        ("one two three", ["one", "⁇", "three"], [0, 1, 2]),
        ("hello😀 world", ["▁hello", "<0xF0>", "<0x9F>", "<0x98>", "<0x80>", "▁world"], [0, 0, 0, 0, 0, 1]),
        ("naïve foo😀", ["▁na", "<0xC3>", "<0xAF>", "ve", "▁foo", "<0xF0>"], [0, 0, 0, 0, 1, 1]),
        ("", [], []),
    ],
)
def test_each_piece_lies_in_a_word(text: str, pieces: list[str], expected: list[int | None]) -> None:
    assert word_indices(text, pieces) == expected


def test_summed_where_they_are_looked_at_and_averaged_where_they_look() -> None:
    weights = torch.tensor([[0.5, 0.0, 0.5, 0.0], [0.0, 0.9, 0.1, 0.0], [0.0, 0.9, 0.1, 0.0], [0.1, 0.3, 0.2, 0.4]])
    # of source word 0 the pieces 0 and 2; piece 1 is a space; of target word 0 the pieces 0 and 1; piece 2 is a space
    found = merge_to_words(weights, [0, None, 0, 1], [0, 0, None, 1])
    torch.testing.assert_close(found, torch.tensor([[(1.0 + 0.1) / 2, 0.0], [0.3, 0.4]], dtype=torch.float64))


def test_rows_still_sum_to_one() -> None:
    weights = torch.rand(7, 5).softmax(1)
    found = merge_to_words(weights, [0, 0, 1, 2, 2], [0, 1, 1, 1, 2, 3, 3])
    assert found.shape == (4, 3)
    torch.testing.assert_close(found.sum(1), torch.ones(4, dtype=torch.float64))


def test_a_word_without_pieces_looks_at_nothing() -> None:
    assert merge_to_words(torch.ones(2, 1), [0], [0, 2]).tolist() == [[1.0], [0.0], [1.0]]
    assert merge_to_words(torch.ones(2, 2), [None, None], [0, 1]).shape == (2, 0)
    assert merge_to_words(torch.ones(0, 2), [0, 1], []).shape == (0, 2)
