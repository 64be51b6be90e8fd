import re
from bisect import bisect_right
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from attent.alignment.aligner import align, extract_links, merge_to_words, piece_starts, tokenize_pair, word_indices
from attent.alignment.forced_decoding import AttentionSelector
from attent.attention.capture.watch import watch
from attent.models.settings import TransformerSettings
from attent.models.transformer import Transformer
from attent.tasks.dates.corpus import tokenize_dates
from attent.text.tokenizer import BOS, CharTokenizer

TOKENIZER = CharTokenizer("abcde -0123456789")
BOTH = TOKENIZER, TOKENIZER


def make_model() -> Transformer:
    settings = TransformerSettings(encoder_layers=1, decoder_layers=2, width=16, feed_forward=17, heads=2)
    return Transformer(settings, TOKENIZER.size, TOKENIZER.size).eval()


def test_a_pair_is_taken_by_words_by_tokens_or_by_the_digits_of_dates() -> None:
    tokenized = tokenize_pair("ab c", "d ee", BOTH)
    assert (tokenized.source, tokenized.target) == (TOKENIZER.encode("ab c"), TOKENIZER.encode("d ee"))
    assert (tokenized.source_words, tokenized.target_words) == ([0, 0, None, 1], [0, None, 1, 1])
    tokenized = tokenize_pair("ab c", "d", BOTH, "tokens")
    assert (list(tokenized.source_words), list(tokenized.target_words)) == ([0, 1, 2, 3], [0])
    tokenized = tokenize_dates("3 a", "2026-03-03", BOTH)
    assert (list(tokenized.source_words), tokenized.target_words) == ([0, 1, 2], [0, 1, 2, 3, None, 5, 6, None, 8, 9])
    assert [target for _, target in align(make_model(), [tokenized])[0]] == [0, 1, 2, 3, 5, 6, 8, 9]


def test_links_are_those_of_the_map_itself() -> None:
    model = make_model()
    pair = tokenize_pair("ab c", "d ee", BOTH)
    with torch.no_grad(), watch(model) as captured:
        inputs = torch.tensor([[BOS, *pair.target]])
        model.decode(model.encode(torch.tensor([pair.source]), torch.tensor([4])), inputs)
    weights = captured["decoder.layers.0.cross_attention"].dense()[0, 1]  # (5, 4)
    for about, offset in (("produced", 0), ("read", 1)):
        rows = weights[offset:], weights[offset + 2 :][:2].mean(0)
        expected = [(int(row[3] > row[0] + row[1]), word) for word, row in enumerate((rows[0][0], rows[1]))]
        assert align(model, [pair], AttentionSelector(0, 1, about)) == [expected]
    combined = align(model, [pair], threshold=0.0)
    assert combined == [[(0, 0), (1, 0), (0, 1), (1, 1)]]


def test_an_empty_side_has_no_links() -> None:
    pairs = [tokenize_pair(*texts, BOTH) for texts in (("", "a"), ("a", ""), (" ", "a"), ("a", "b"))]
    assert align(make_model(), pairs) == [[], [], [], [(0, 0)]]


WEIGHTS = torch.tensor([[0.2, 0.5, 0.3], [0.4, 0.2, 0.4], [0.0, 0.0, 0.0]])


def test_links_are_of_the_largest_weights_or_of_all_above_a_threshold() -> None:
    # of two alike the first, and of nothing none
    assert extract_links(WEIGHTS[None])[0] == [(1, 0), (0, 1)]
    assert extract_links(WEIGHTS[None], 0.25)[0] == [(1, 0), (2, 0), (0, 1), (2, 1)]
    assert extract_links(WEIGHTS[None], 0.0)[0] == [(0, 0), (1, 0), (2, 0), (0, 1), (1, 1), (2, 1)]
    assert extract_links(WEIGHTS[None], 0.5)[0] == []
    for shape, threshold in (((1, 2, 0), None), ((1, 0, 3), None), ((1, 2, 0), 0.1)):
        assert extract_links(torch.zeros(shape), threshold) == [[]]


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


@settings(max_examples=60)
@given(first=st.sampled_from(["", "▁"]), text=WORDS, data=st.data())
def test_pieces_that_spell_a_text_lie_where_any_pieces_do(first: str, text: str, data: st.DataObject) -> None:
    spelling = first + text.replace(" ", "▁")
    cuts = sorted(data.draw(st.sets(st.integers(0, len(spelling)))) | {0, len(spelling)})
    pieces = [spelling[begin:end] for begin, end in pairwise(cuts)]
    begins = [match.start() for match in re.finditer(r"\S+", text)]
    starts = piece_starts(text, pieces)
    expected = [None if start is None else max(bisect_right(begins, start) - 1, 0) for start in starts]
    assert word_indices(text, pieces) == expected


def test_summed_where_they_are_looked_at_and_averaged_where_they_look() -> None:
    weights = torch.tensor([[0.5, 0.0, 0.5, 0.0], [0.0, 0.9, 0.1, 0.0], [0.0, 0.9, 0.1, 0.0], [0.1, 0.3, 0.2, 0.4]])
    # of source word 0 the pieces 0 and 2; piece 1 is a space; of target word 0 the pieces 0 and 1; piece 2 is a space
    merged = merge_to_words(weights[None], [[0, None, 0, 1]], [[0, 0, None, 1]])[0]
    torch.testing.assert_close(merged, torch.tensor([[(1.0 + 0.1) / 2, 0.0], [0.3, 0.4]], dtype=torch.float64))
    # rows still sum to one
    weights = torch.rand(7, 5).softmax(1)
    merged = merge_to_words(weights[None], [[0, 0, 1, 2, 2]], [[0, 1, 1, 1, 2, 3, 3]])[0]
    assert merged.shape == (4, 3)
    torch.testing.assert_close(merged.sum(1), torch.ones(4, dtype=torch.float64))
    # a word without pieces looks at nothing
    assert merge_to_words(torch.ones(1, 2, 1), [[0]], [[0, 2]])[0].tolist() == [[1.0], [0.0], [1.0]]
    assert merge_to_words(torch.ones(1, 2, 2), [[None, None]], [[0, 1]])[0].shape == (2, 0)
    assert merge_to_words(torch.ones(1, 0, 2), [[0, 1]], [[]])[0].shape == (0, 2)
