"""The corpus of dates for commands: regenerated from a run's config, with checks of its texts."""

import hashlib
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from itertools import groupby
from pathlib import Path
from typing import Any

from attent.errors import ArgumentError, DataError, RunError
from attent.tasks.dates.corpus import DatesSettings, dates
from attent.tasks.dates.patterns import FIRST_YEAR, LAST_YEAR
from attent.text.text import Pair, TranslationCorpus

InputCheck = Callable[[str], str | None]
# Examples of dates that runs translate. Spelled as in Unicode CLDR, with the narrow space before the Russian "г."
DATES = (
    "fr | mardi 3 mars 2026",
    "en | Tuesday, March 3, 2026",
    "de | Dienstag, 3. März 2026",
    "ru | вторник, 3 марта 2026 г.",
    "el | Τρίτη 3 Μαρτίου 2026",
    "ar_EG | الثلاثاء، ٣ مارس ٢٠٢٦",
    "mr | मंगळवार, ३ मार्च, २०२६",
    "ja | 2026年3月3日火曜日",
    "ko | 2026년 3월 3일 화요일",
    "30 settembre 1987",
)


def held_out_digest(held_out: Mapping[str, Sequence[Pair]]) -> str:
    """Return the SHA-256 of test sets: their names and pairs."""
    digest = hashlib.sha256()
    for name, pairs in held_out.items():
        digest.update(f"{name}\n".encode())
        digest.update("".join(f"{pair.source}\t{pair.target}\n" for pair in pairs).encode())
    return digest.hexdigest()


def regenerate(run: Path, corpus: Mapping[str, Any], digest: str | None = None) -> TranslationCorpus:
    """Regenerate the corpus of a run.

    Args:
        run: the run folder, named in messages.
        corpus: the tables of the corpus settings by name (`RunConfig.corpus`).
        digest: `held_out_digest` of the test sets when the run was trained; None if unknown.

    Raises:
        ArgumentError: the corpus was read from files.
        DataError: the test sets have another digest.
        RunError: its settings are damaged.
    """
    if "dates" not in corpus:
        raise ArgumentError(
            f"{run} was not trained on a corpus that can be generated again, such as dates: give one with --source "
            "FILE --target FILE"
        )
    try:
        generated = dates(DatesSettings.model_validate(corpus["dates"]))
    except ValueError as error:
        raise RunError(f"{run}/config.json is damaged: the settings of its corpus cannot be used") from error
    if digest is not None and digest != held_out_digest(generated.held_out):
        from babel import __version__ as version
        from babel.core import get_cldr_version

        raise DataError(
            f"the corpus of {run} has changed, so the run may have been trained on this test data: its patterns come "
            f"from Unicode CLDR, now {get_cldr_version()} of Babel {version}; train a new run, or install the former "
            "Babel"
        )
    return generated


def input_check(corpus: Mapping[str, Any]) -> InputCheck | None:
    """Return the check of the texts that a run with this corpus translates; None if any text is accepted.

    The check returns the reason why a text is refused, or None.

    Args:
        corpus: the tables of the corpus settings by name (`RunConfig.corpus`).
    """
    return why_no_date if "dates" in corpus else None


def output_check(corpus: Mapping[str, Any]) -> Callable[[str], str | None] | None:
    """Return the check of a run's translations; None if any text is accepted.

    The check returns the reason why a translation is malformed, or None.
    """
    if "dates" not in corpus:
        return None
    return lambda translation: None if is_date(translation) else f"the answer {translation!r} is not a date"


def why_no_date(text: str) -> str | None:
    """Return the reason why a text is not a date of the corpus; None if it is one.

    A date has a year of four digits in any script.
    """
    for is_number, characters in groupby(text, key=lambda character: unicodedata.decimal(character, None) is not None):
        digits = [unicodedata.decimal(character) for character in characters] if is_number else []
        if len(digits) == 4 and FIRST_YEAR <= int("".join(map(str, digits))) <= LAST_YEAR:
            return None
    return f"{text!r} has no four-digit year from {FIRST_YEAR} to {LAST_YEAR}"


def is_date(translation: str) -> bool:
    """Return whether a translation is a valid calendar date in ISO 8601 form, such as 2026-03-03."""
    try:
        return date.fromisoformat(translation).isoformat() == translation
    except ValueError:
        return False
