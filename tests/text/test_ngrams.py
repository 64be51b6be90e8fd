import itertools
from collections import Counter
from typing import Any

import numpy as np
import pytest

from attent.text.ngrams import Counts, Trigrams
from attent.text.tokenizer import EOS, SPECIALS

SIZE = 11
A, B, C, D = range(SPECIALS, SPECIALS + 4)
LINES = [[A, B, C], [A, B, D], [A, B, C], [B, C], [D, A, C, B, C]]
TRIGRAMS = Trigrams(LINES, SIZE)


def test_probabilities_sum_to_one_whatever_came_before() -> None:
    counts = Counts(np.array([7, 3, 7, 9]))
    assert counts.of(np.array([[7, 8], [3, 0]])).tolist() == [[2, 0], [1, 0]]
    # two occur once, one twice
    assert counts.discount == pytest.approx(2 / 4)
    assert Counts(np.zeros(0, np.int64)).of(np.array([1])).tolist() == [0]
    for before in itertools.product(range(SIZE), repeat=2):
        assert TRIGRAMS.probability(*before, np.arange(SIZE)).sum() == pytest.approx(1)
    assert Trigrams([], SIZE).left_context([A], 0) == pytest.approx(np.full(SIZE, 1 / SIZE))
    with pytest.raises(ValueError, match="at most"):
        Trigrams([], 2**22)


def test_one_number_worked_by_hand() -> None:
    """Trigrams A B · : C twice, D once.

    Of the 13 kinds of trigram that there are, 11 occur once and 1 twice: D₃ = 11/13 if so.
    """
    kinds = Counter(tuple([2, 2, *line, EOS][at : at + 3]) for line in LINES for at in range(len(line) + 1))
    twos = Counter(kind[1:] for kind in kinds)
    ones = Counter(third for _, third in twos)

    def discount(counts: Counter[Any]) -> float:
        once, twice = (list(counts.values()).count(times) for times in (1, 2))
        return once / (once + 2 * twice) if once else 0.5

    three, two, item = discount(kinds), discount(twos), discount(ones)
    of_c = max(ones[C] - item, 0) / sum(ones.values()) + item * len(ones) / sum(ones.values()) / SIZE
    behind_b = {third: count for (second, third), count in twos.items() if second == B}
    of_b_c = max(behind_b[C] - two, 0) / sum(behind_b.values()) + two * len(behind_b) / sum(behind_b.values()) * of_c
    of_a_b_c = (2 - three) / 3 + three * 2 / 3 * of_b_c
    assert float(TRIGRAMS.probability(A, B, C)) == pytest.approx(of_a_b_c)


def test_what_was_seen_is_likelier_and_both_sides_know_more_than_one() -> None:
    left = TRIGRAMS.left_context([A, B, C], 2)
    assert left.argmax() == C
    combined = TRIGRAMS.both_contexts([D, A, C, B, C], 2)
    assert combined.sum() == pytest.approx(1)
    # between A and B C there was never anything but C
    assert combined.argmax() == C
    assert TRIGRAMS.left_context([D, A, C, B, C], 2)[B] < combined[C]


def test_both_sides_are_what_the_whole_line_would_get() -> None:
    line, index = [A, B, C, D], 1
    whole = []
    for word in range(SIZE):
        tokens = [2, 2, A, word, C, D, EOS]
        chances = [float(TRIGRAMS.probability(*tokens[at : at + 3])) for at in range(len(tokens) - 2)]
        whole.append(np.prod(chances))
    assert TRIGRAMS.both_contexts(line, index) == pytest.approx(np.array(whole) / np.sum(whole))
