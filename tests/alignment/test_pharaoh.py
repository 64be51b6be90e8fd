from pathlib import Path

import pytest

from attent.alignment.pharaoh import check, parse, pharaoh, read_gold
from attent.errors import DataError
from attent.text.text import Gold


def test_sure_and_possible_links() -> None:
    assert pharaoh([(2, 0), (0, 1), (10, 2)]) == "0-1 2-0 10-2"
    assert pharaoh([(1, 1)], [(0, 2), (1, 1)]) == "0?2 1-1"
    assert pharaoh([]) == ""
    gold = Gold.of([(0, 0), (12, 3)], [(1, 2), (3, 4)])
    assert parse("0-0 1?2  3p4\t12-3") == gold
    assert parse("1-1 2?3 4p5 13-4", first=1) == gold
    assert parse(pharaoh(gold.sure, gold.possible)) == gold
    assert parse("") == parse(" ") == parse("\t") == Gold.of([])


@pytest.mark.parametrize("text", ["0:1", "0-", "-1-2", "1-2-3", "0–1", "٠-٠", "0-1,", "9999999999999999999-1"])
def test_what_is_no_link_is_named_with_its_line(tmp_path: Path, text: str) -> None:
    file = tmp_path / "gold.txt"
    file.write_text(f"0-0\n\n1-1 {text}\n", encoding="utf-8")
    read = read_gold(file)
    assert [next(read), next(read)] == [Gold.of([(0, 0)]), Gold.of([])]
    with pytest.raises(DataError, match=r"gold\.txt, line 3: a link must be written 0-2, or 0\?2 or 0p2") as raised:
        next(read)
    assert repr(text) in str(raised.value)


def test_links_are_of_words_that_there_are() -> None:
    with pytest.raises(DataError, match=r"^words are counted from 1, got '0-3'"):
        parse("0-3", first=1)
    gold = Gold.of([(0, 0)], [(2, 1)])
    check(gold, 3, 2, "line 1")
    for counts in ((2, 2), (3, 1)):
        with pytest.raises(DataError, match=r"^line 1: 2-1, counted from 0, links words of \d source"):
            check(gold, *counts, "line 1")
