"""The translation of dates, as people write them, to ISO 8601: a task with known answers and alignments."""

from attent.tasks.dates.corpus import HELD_OUT_COMBINATIONS, HELD_OUT_DATES, DatesSettings, dates

__all__ = ["HELD_OUT_COMBINATIONS", "HELD_OUT_DATES", "DatesSettings", "dates"]
