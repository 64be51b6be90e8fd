import pytest

from attent.data.dates import DatesSettings, dates
from attent.data.dates.gold import FIELDS, gold_links, target_words
from attent.data.text import Pair

ISO = "2026-03-03"


def pair(source: str, **fields: str) -> Pair:
    """A pair whose fields are these parts of the source."""
    spans = [range(start := source.index(fields[name]), start + len(fields[name])) for name in ("year", "month", "day")]
    return Pair(source, ISO, tuple((s, t) for span, field in zip(spans, FIELDS, strict=True) for s in span for t in field))


YEAR_AT_6 = {(6, 0), (7, 1), (8, 2), (9, 3)}


def test_worked_by_hand() -> None:
    gold = gold_links(pair("3 mar 2026", year="2026", month="mar", day="3"))
    # the day's only digit is its last; a month in letters has no sure link
    assert gold.sure == YEAR_AT_6 | {(0, 9)}
    assert gold.possible - gold.sure == (
        {(s, t) for s in range(6, 10) for t in range(4)} - YEAR_AT_6 | {(s, t) for s in (2, 3, 4) for t in (5, 6)} | {(0, 8)}
    )


def test_digits_that_are_written_out_are_sure_in_any_script() -> None:
    for source in ("04/03/2026", "٠٤/٠٣/٢٠٢٦"):
        gold = gold_links(pair(source, year=source[6:], month=source[3:5], day=source[:2]))
        assert gold.sure == YEAR_AT_6 | {(3, 5), (4, 6), (0, 8), (1, 9)}


def test_a_numbered_month_may_have_its_word_beside_it() -> None:
    gold = gold_links(pair("2026年3月3日", year="2026", month="3月", day="3"))
    assert (5, 6) in gold.sure
    assert {(5, 5), (6, 5), (6, 6)} <= gold.possible - gold.sure


def test_hyphens_are_no_words() -> None:
    assert target_words(ISO) == [0, 1, 2, 3, None, 5, 6, None, 8, 9]


@pytest.mark.parametrize("locales", [("en", "fr", "ja", "fa", "mr"), ("ar_EG", "zh", "ko", "ru")])
def test_sure_links_join_equal_digits_and_every_link_stays_in_its_field(locales: tuple[str, ...]) -> None:
    settings = DatesSettings(locales=locales, training_pairs=1, validation_pairs=1, held_out_dates=97, held_out_pairs=211)
    for held_out in dates(settings.model_copy(update={"held_out_combinations": 2})).held_out.values():
        for one in held_out:
            gold = gold_links(one)
            assert gold.possible == set(one.links)
            assert gold.sure < gold.possible
            assert all(int(one.source[source]) == int(one.target[target]) for source, target in gold.sure)
            # four digits of the year, and at least the last one of the day
            assert {target for _, target in gold.sure} >= {0, 1, 2, 3, 9}
            assert {target for _, target in gold.possible} == {place for field in FIELDS for place in field}
