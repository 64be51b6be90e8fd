"""Dates as people write them, to ISO 8601: a translation task whose answers and whose alignments are known."""

from attent.tasks.dates.corpus import HELD_OUT_COMBINATIONS, HELD_OUT_DATES, DatesSettings, dates

__all__ = ["HELD_OUT_COMBINATIONS", "HELD_OUT_DATES", "DatesSettings", "dates"]
