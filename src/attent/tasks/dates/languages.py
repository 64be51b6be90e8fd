"""Dates labeled with their language: `mardi 3 mars 2026` → `fr`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from attent.errors import ArgumentError
from attent.tasks.dates.corpus import TRIES_PER_PAIR, DatesSettings, choose, distinct, random_stream, split_days
from attent.tasks.dates.patterns import DatePattern, date_patterns, leap_year_text, moment, texts_with_readings
from attent.text.readers import LabelledText

# Names of the files in a folder.
TRAIN, VALIDATION, TEST = "train.tsv", "valid.tsv", "test.tsv"


@dataclass(frozen=True)
class DateLanguages:
    """Texts with their languages; the three parts have no text in common.

    Args:
        train: the texts to train on.
        validation: the texts to validate on.
        test: the texts to test on; their dates are neither in training nor in validation.
        remarks: remarks on the texts left out, for the user.
    """

    train: Sequence[LabelledText]
    validation: Sequence[LabelledText]
    test: Sequence[LabelledText]
    remarks: tuple[str, ...]

    def write(self, folder: Path) -> None:
        """Write the parts to a folder, as train.tsv, valid.tsv and test.tsv.

        Raises:
            ArgumentError: a file cannot be written.
        """
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for name, examples in ((TRAIN, self.train), (VALIDATION, self.validation), (TEST, self.test)):
                (folder / name).write_text(
                    "".join(f"{text}\t{label}\n" for text, label in examples), encoding="utf-8", newline=""
                )
        except OSError as error:
            raise ArgumentError(f"{error.filename} cannot be written: {error.strerror}") from error


def date_languages(settings: DatesSettings) -> DateLanguages:
    """Write dates in many languages, each equally often, and hold out some dates for validation and for a test.

    Texts that several languages share, such as 2026-03-03, are left out, even if they mean different dates in these
    languages. A language without texts of its own is left out too, with a remark.

    Args:
        settings: the locales, the numbers of texts and dates, and the seed.

    Raises:
        ArgumentError: fewer than two languages are left, or there are fewer texts than the settings ask for.
    """
    from babel import Locale

    patterns: dict[str, list[DatePattern]] = {}
    for locale in settings.locale_names:
        patterns.setdefault(Locale.parse(locale).language, []).extend(date_patterns(locale))
    own, share = _unique_texts(patterns)
    usable = {
        language: [pattern for pattern in of_language if own[pattern]] for language, of_language in patterns.items()
    }
    empty = [language for language, of_language in usable.items() if not of_language]
    usable = {language: of_language for language, of_language in usable.items() if of_language}
    if len(usable) < 2:
        raise ArgumentError(
            f"at least two languages must have texts that no other language writes, got {', '.join(usable) or 'none'}"
        )
    test_days, validation_days, days = split_days(settings)
    used: set[str] = set()

    def texts(count: int, purpose: str, days: Sequence[int]) -> list[LabelledText]:
        draw = random_stream(settings, f"languages, {purpose}").random
        examples = distinct(
            count, lambda: _draw(draw, usable, own, days, settings.native_digits), lambda example: example.text, used
        )
        if len(examples) < count:
            raise ArgumentError(
                f"there are fewer than {count:,} different texts of these dates: ask for fewer, or for more dates or "
                "locales"
            )
        return examples

    # the test first: training draws from the rest
    test = texts(settings.held_out_pairs, "test", test_days)
    validation = texts(settings.validation_pairs, "validation", validation_days)
    remarks = [f"left out {share:.1%} of all texts, which are the same in several languages"]
    if empty:
        remarks.append(f"left out languages without texts of their own: {', '.join(empty)}")
    return DateLanguages(texts(settings.training_pairs, "training", days), validation, test, tuple(remarks))


Own = Mapping[DatePattern, frozenset[str]]


def _unique_texts(patterns: Mapping[str, Sequence[DatePattern]]) -> tuple[Own, float]:
    """Return the texts of each pattern in one leap year that no other language writes.

    Also return the share of texts that several languages write.
    """
    language_of: dict[str, str | None] = {}
    for language, of_language in patterns.items():
        for pattern in of_language:
            for text, _ in texts_with_readings(pattern):
                if language_of.setdefault(text, language) != language:
                    language_of[text] = None
    own = {
        pattern: frozenset(text for text, _ in texts_with_readings(pattern) if language_of[text] is not None)
        for of_language in patterns.values()
        for pattern in of_language
    }
    return own, sum(language is None for language in language_of.values()) / len(language_of)


def _draw(
    draw: Callable[[], float],
    patterns: Mapping[str, Sequence[DatePattern]],
    own: Own,
    days: Sequence[int],
    native_share: float,
) -> LabelledText:
    """Draw a language, then one of its patterns and a date whose text no other language writes."""
    language = choose(draw, [*patterns])
    for _ in range(TRIES_PER_PAIR):
        pattern, day = choose(draw, patterns[language]), date.fromordinal(choose(draw, days))
        native = pattern.native_parts is not None and draw() < native_share
        if leap_year_text(pattern, moment(day), native=native) in own[pattern]:
            return LabelledText(pattern.text(moment(day), native=native), language)
    raise ArgumentError(f"too few texts are unique to {language}")
