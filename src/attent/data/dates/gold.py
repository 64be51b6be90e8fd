"""Which character of a date's source says which digit of its ISO form.

Three fields stand in a target `YYYY-MM-DD`, and the pattern that wrote the source knows the span of each. Then

- a digit of the target and the digit of the source that has the same place in the same field, counted from the field's end, are a
  **sure** link, in whatever script the source's digits are: of `3.` and `03` the 3, of `03` and `03` both;
- a digit of the target and any other character of the same field in the source are a **possible** link: every letter of a month's name, the
  only digit of `3` for the 0 of `03`, another digit of the year;
- everything else is wrong: another field, the day of the week, the tag, spaces, signs and words between the fields.

The target's two hyphens say nothing of the source, as a space says nothing, and count as no words.
"""

from __future__ import annotations

import unicodedata

from attent.data.dates.corpus import TARGET_DAY, TARGET_MONTH, TARGET_YEAR
from attent.data.gold import Gold
from attent.data.text import Pair

FIELDS = (TARGET_YEAR, TARGET_MONTH, TARGET_DAY)


def gold_links(pair: Pair) -> Gold:
    """The gold links of a pair of the dates corpus, in characters of both sides."""
    sure = set[tuple[int, int]]()
    for field in FIELDS:
        span = sorted({source for source, target in pair.links if target in field})
        digits = [source for source in span if unicodedata.decimal(pair.source[source], None) is not None]
        sure.update(zip(reversed(digits), reversed(field), strict=False))
    return Gold.of(sure, pair.links)


def target_words(target: str) -> list[int | None]:
    """Each character of a target as a word by its place; None for those that are in no field."""
    return [place if any(place in field for field in FIELDS) else None for place in range(len(target))]
