"""Dates as people write them, to ISO 8601: a translation task whose answers and whose alignments are known."""

from attent.tasks.dates.corpus import HELD_OUT_COMBINATIONS, HELD_OUT_DATES, dates
from attent.tasks.dates.settings import DatesSettings

__all__ = ["HELD_OUT_COMBINATIONS", "HELD_OUT_DATES", "DatesSettings", "dates"]
