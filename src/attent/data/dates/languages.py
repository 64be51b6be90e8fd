"""Dates as people write them, labelled with their language: `mardi 3 mars 2026` → `fr`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from babel import Locale

from attent.data.dates.combinations import shuffled
from attent.data.dates.corpus import TRIES_PER_PAIR, chance, pick
from attent.data.dates.patterns import ALL_DATES, DatePattern, date_patterns, moment
from attent.data.dates.readings import key, keys
from attent.data.dates.settings import DatesSettings
from attent.data.labelled.texts import LabelledText
from attent.errors import ArgumentError

# What the files of a folder are called.
TRAIN, VALIDATION, TEST = "train.tsv", "valid.tsv", "test.tsv"


@dataclass(frozen=True)
class DateLanguages:
    """Texts with their languages, none of them in two of the three.

    Args:
        train: to train on.
        validation: to stop by.
        test: to be judged by; its dates are neither in training nor in validation.
        remarks: what was left out, for a person.
    """

    train: Sequence[LabelledText]
    validation: Sequence[LabelledText]
    test: Sequence[LabelledText]
    remarks: tuple[str, ...]

    def write(self, folder: Path) -> None:
        """Put them into a folder, as train.tsv, valid.tsv and test.tsv.

        Raises:
            ArgumentError: they cannot be written.
        """
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for name, examples in ((TRAIN, self.train), (VALIDATION, self.validation), (TEST, self.test)):
                (folder / name).write_text("".join(f"{text}\t{label}\n" for text, label in examples), encoding="utf-8")
        except OSError as error:
            raise ArgumentError(f"{error.filename} cannot be written: {error.strerror}") from error


def date_languages(settings: DatesSettings) -> DateLanguages:
    """Write dates in many languages, each as often as the others, and keep some dates for validation and for a test.

    What several languages write alike, as 2026-03-03, has no answer: whatever a pattern of another language could write as
    well, be it for another date, is left out. A language of which nothing is left then is left out too, and said.

    Args:
        settings: which locales, how many texts and dates, and the seed.

    Raises:
        ArgumentError: fewer than two languages are left, or more texts are asked for than there are.
    """
    patterns: dict[str, list[DatePattern]] = {}
    for locale in settings.locale_names:
        patterns.setdefault(Locale.parse(locale).language, []).extend(date_patterns(locale))
    own, share = _own(patterns)
    left = {language: [pattern for pattern in of_language if own[pattern]] for language, of_language in patterns.items()}
    lost = [language for language, of_language in left.items() if not of_language]
    left = {language: of_language for language, of_language in left.items() if of_language}
    if len(left) < 2:
        raise ArgumentError(f"at least two languages must write dates of their own, got {', '.join(left) or 'none'}")
    days = shuffled(ALL_DATES, chance(settings, "dates"))
    tested, days = days[: settings.held_out_dates], days[settings.held_out_dates :]
    validated, days = days[: settings.validation_pairs], days[settings.validation_pairs :]
    seen: set[str] = set()

    def texts(count: int, purpose: str, among: Sequence[int]) -> list[LabelledText]:
        draw = chance(settings, f"languages, {purpose}").random
        return _distinct(count, lambda: _drawn(draw, left, own, among, settings.native_digits), seen)

    # the test first, so that what training draws is what is left
    test = texts(settings.held_out_pairs, "test", tested)
    validation = texts(settings.validation_pairs, "validation", validated)
    said = [f"{share:.1%} of all texts are written alike in several languages, and left out"]
    if lost:
        said.append(f"nothing is left of {', '.join(lost)}")
    return DateLanguages(texts(settings.training_pairs, "training", days), validation, test, tuple(said))


Own = Mapping[DatePattern, frozenset[str]]


def _own(patterns: Mapping[str, Sequence[DatePattern]]) -> tuple[Own, float]:
    """What of each pattern no other language writes in one leap year, and the share of texts that several write."""
    language_of: dict[str, str | None] = {}
    for language, of_language in patterns.items():
        for pattern in of_language:
            for text, _ in keys(pattern):
                known = language_of.setdefault(text, language)
                if known != language:
                    language_of[text] = None
    own = {
        pattern: frozenset(text for text, _ in keys(pattern) if language_of[text] is not None)
        for of_language in patterns.values()
        for pattern in of_language
    }
    return own, sum(language is None for language in language_of.values()) / len(language_of)


def _drawn(
    draw: Callable[[], float], patterns: Mapping[str, Sequence[DatePattern]], own: Own, days: Sequence[int], native_share: float
) -> LabelledText:
    """A language, one of its patterns and a date, each uniformly at random among those whose text is the language's own."""
    language = pick(draw, [*patterns])
    for _ in range(TRIES_PER_PAIR):
        pattern, day = pick(draw, patterns[language]), date.fromordinal(pick(draw, days))
        native = pattern.native_parts is not None and draw() < native_share
        if key(pattern, moment(day), native=native) in own[pattern]:
            return LabelledText(pattern.text(moment(day), native=native), language)
    raise ArgumentError(f"too few texts are {language}'s own")


def _distinct(count: int, write: Callable[[], LabelledText], seen: set[str]) -> list[LabelledText]:
    """So many examples whose texts have not been seen, which are seen from then on."""
    found: list[LabelledText] = []
    for _ in range(TRIES_PER_PAIR * count):
        if len(found) == count:
            return found
        example = write()
        if example.text not in seen:
            seen.add(example.text)
            found.append(example)
    if len(found) < count:
        raise ArgumentError(f"there are no {count:,} different texts of these dates: ask for fewer, or for more dates or locales")
    return found
