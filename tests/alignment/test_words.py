import re
from bisect import bisect_right
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from attent.alignment.aligner import merge_to_words, piece_starts, word_indices


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


WORDS = st.lists(st.text(st.sampled_from("ab▁#@ \u00a0é"), max_size=5), max_size=5).map(" ".join)


@pytest.mark.parametrize("first", ["", "▁"])
@given(text=WORDS, data=st.data())
def test_pieces_that_spell_a_text_lie_where_any_pieces_do(first: str, text: str, data: st.DataObject) -> None:
    spelling = first + text.replace(" ", "▁")
    cuts = sorted(data.draw(st.sets(st.integers(0, len(spelling)))) | {0, len(spelling)})
    pieces = [spelling[begin:end] for begin, end in pairwise(cuts)]
    begins = [match.start() for match in re.finditer(r"\S+", text)]
    expected = [
        None if start is None else max(bisect_right(begins, start) - 1, 0) for start in piece_starts(text, pieces)
    ]
    assert word_indices(text, pieces) == expected


def test_summed_where_they_are_looked_at_and_averaged_where_they_look() -> None:
    weights = torch.tensor([[0.5, 0.0, 0.5, 0.0], [0.0, 0.9, 0.1, 0.0], [0.0, 0.9, 0.1, 0.0], [0.1, 0.3, 0.2, 0.4]])
    # of source word 0 the pieces 0 and 2; piece 1 is a space; of target word 0 the pieces 0 and 1; piece 2 is a space
    merged = merge_to_words(weights[None], [[0, None, 0, 1]], [[0, 0, None, 1]])[0]
    torch.testing.assert_close(merged, torch.tensor([[(1.0 + 0.1) / 2, 0.0], [0.3, 0.4]], dtype=torch.float64))


def test_rows_still_sum_to_one() -> None:
    weights = torch.rand(7, 5).softmax(1)
    merged = merge_to_words(weights[None], [[0, 0, 1, 2, 2]], [[0, 1, 1, 1, 2, 3, 3]])[0]
    assert merged.shape == (4, 3)
    torch.testing.assert_close(merged.sum(1), torch.ones(4, dtype=torch.float64))


def test_a_word_without_pieces_looks_at_nothing() -> None:
    assert merge_to_words(torch.ones(1, 2, 1), [[0]], [[0, 2]])[0].tolist() == [[1.0], [0.0], [1.0]]
    assert merge_to_words(torch.ones(1, 2, 2), [[None, None]], [[0, 1]])[0].shape == (2, 0)
    assert merge_to_words(torch.ones(1, 0, 2), [[0, 1]], [[]])[0].shape == (0, 2)
