from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attent.errors import ArgumentError
from attent.text.disk_texts import DiskTexts, TemporaryFolder, write_pairs
from attent.text.text import Pair

TEXTS = ["a", "", "é\u0301 👩‍🚀", "line\nfeed", "tab\t\x00"]
PAIRS = [Pair(source, target) for source in TEXTS for target in reversed(TEXTS)]


def stored(pairs: list[Pair]) -> DiskTexts[Pair]:
    return write_pairs(((2 * row + 1, pair) for row, pair in enumerate(pairs)), TemporaryFolder(), "pairs")


@settings(max_examples=25)
@given(st.lists(st.tuples(st.text(), st.text()), max_size=7))
def test_pairs_come_back_as_they_were(texts: list[tuple[str, str]]) -> None:
    pairs = [Pair(*text) for text in texts]
    assert list(stored(pairs)) == pairs


def test_it_is_a_sequence() -> None:
    pairs = stored(PAIRS)
    assert len(pairs) == 25
    assert pairs[7] == PAIRS[7]
    assert pairs[-1] == PAIRS[-1]
    assert list(pairs[3:11:2]) == PAIRS[3:11:2]
    with pytest.raises(IndexError):
        pairs[25]


def test_some_of_them_remember_their_lines() -> None:
    sample = stored(PAIRS).select(np.array([5, 2, 17])).select(np.array([1, 2]))
    assert list(sample) == [PAIRS[2], PAIRS[17]]
    assert [sample.line_number(row) for row in range(2)] == [5, 35]


def test_the_folder_lasts_as_long_as_the_pairs(tmp_path: Path) -> None:
    pairs = write_pairs(enumerate(PAIRS), TemporaryFolder(tmp_path), "pairs")
    subset = pairs[:3]
    del pairs
    assert list(subset) == PAIRS[:3]
    del subset
    assert not list(tmp_path.iterdir())


def test_a_file_is_written_once() -> None:
    folder = TemporaryFolder()
    write_pairs(enumerate(PAIRS), folder, "pairs")
    with pytest.raises(ArgumentError, match="already exists"):
        write_pairs(enumerate(PAIRS), folder, "pairs")
