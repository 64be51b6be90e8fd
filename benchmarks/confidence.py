"""Confidence: how well it tells usable translations from others, beside the mean log-probability of their tokens.

    benchmarks/confidence.py RUN [--pairs N] [--seed N]        a run on dates: damaged dates in held-out combinations
    benchmarks/confidence.py RUN SOURCE TARGET [--seed N]      a run on text: lines that it was not trained on

Half of the pairs calibrate, the others are judged; both halves have dates of their own. One character of each date is
damaged: replaced by, or preceded by, a random one of those in the training texts, removed, or exchanged with the next.
Some damaged texts are dates too, such as 21 for 12: they are translated as they read, so no evidence can tell that they
are wrong. The table has a row with them and a row without them.

For text, half of the judged lines are also joined with the next line and paired with the translation of the first one
alone, as if a sentence had been dropped: the last rows are the shares of translations with a warning.
"""

from __future__ import annotations

import argparse
import re
import unicodedata
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from random import Random

import numpy as np

from attent.search.search import Translation
from attent.tasks.dates.corpus import HELD_OUT_COMBINATIONS, DatesSettings, dates
from attent.tasks.dates.patterns import date_patterns, texts_with_readings
from attent.tasks.translation.calibration import area_under_curve, calibration_error
from attent.tasks.translation.confidence import Confidence, calibrate
from attent.tasks.translation.evaluation import sentence_chrf
from attent.tasks.translation.translator import Translator, load
from attent.text.readers import read_with_references
from attent.text.text import Pair

TAG = " | "
KINDS = ("replaced", "inserted", "removed", "exchanged")


def damage(source: str, characters: Sequence[str], draw: Random) -> str:
    """Return a source with one damaged character after its tag."""
    begin = source.find(TAG) + len(TAG) if TAG in source else 0
    while True:
        at, kind, character = draw.randrange(begin, len(source)), draw.choice(KINDS), draw.choice(characters)
        before, here, after = source[:at], source[at], source[at + 1 :]
        damaged = {
            "replaced": before + character + after,
            "inserted": before + character + here + after,
            "removed": before + after,
            "exchanged": before + after[:1] + here + after[1:],
        }[kind]
        if damaged != source:
            return damaged


@cache
def readings(locale: str) -> dict[str, set[str]]:
    """Return the month and day, as in 12-31, that the texts of the year 2000 in a locale can mean."""
    table = defaultdict[str, set[str]](set)
    for pattern in date_patterns(locale):
        for text, (month, day, _) in texts_with_readings(pattern):
            table[text].add(f"{month + 1:02}-{day + 1:02}")
    return table


def dates_read(source: str) -> set[str]:
    """Return the dates that a tagged text can mean, in any year and with any day of the week."""
    locale, _, text = source.partition(TAG)
    results = set[str]()
    for match in re.finditer(r"\d{4}", text):
        zero = chr(ord(match[0][0]) - unicodedata.digit(match[0][0]))
        year = chr(ord(zero) + 2) + 3 * zero
        days = readings(locale).get(text[: match.start()] + year + text[match.end() :], ())
        results.update(f"{int(match[0])}-{day}" for day in days)
    return results


def damaged_dates(count: int, seed: int) -> tuple[list[Pair], list[Pair]]:
    """Return two lists of damaged dates in held-out combinations, without a date in common."""
    corpus, draw = dates(DatesSettings.model_validate({"held_out_pairs": count})), Random(seed)
    characters = sorted({character for pair in corpus.train for character in pair.source})
    pairs = [
        replace(pair, source=damage(pair.source, characters, draw)) for pair in corpus.held_out[HELD_OUT_COMBINATIONS]
    ]
    days = sorted({pair.target for pair in pairs})
    first = set(draw.sample(days, len(days) // 2))
    return [pair for pair in pairs if pair.target in first], [pair for pair in pairs if pair.target not in first]


def row(name: str, items: Sequence[Translation], values: np.ndarray, labels: np.ndarray) -> str:
    """Return a row of the table: both areas under the curve, and the calibration error."""
    plain = np.array([item.log_probability / (len(item.tokens) + 1) for item in items])
    areas = (area_under_curve(numbers, labels) for numbers in (values, plain))
    cells = (f"{number:.3f}" for number in (*areas, calibration_error(values, labels)))
    return f"| {name} | {len(items):,} | {(~labels).sum():,} | {' | '.join(cells)} |"


def judge(translator: Translator, pairs: Sequence[Pair]) -> None:
    """Print the table of judged pairs."""
    found = [
        (pair, n_best[0]) for pair, n_best in zip(pairs, translator.search([p.source for p in pairs]), strict=True)
    ]
    found = [(pair, item) for pair, item in found if item.tokens]
    items = [item for _, item in found]
    confidences = [confidence or Confidence(0.0) for confidence in Confidence.of(translator, items)]
    values = np.array([confidence.confidence for confidence in confidences])
    print("| pairs | number | wrong | AUC, confidence | AUC, log-probability | calibration error |")
    print("|---|---|---|---|---|---|")
    if TAG in pairs[0].source:
        labels = np.array([item.text == pair.target for pair, item in found])
        print(row("damaged dates", items, values, labels))
        is_date = np.array([bool(days := dates_read(pair.source)) and pair.target not in days for pair, _ in found])
        kept = [item for item, is_other in zip(items, is_date, strict=True) if not is_other]
        print(row("without those that are other dates", kept, values[~is_date], labels[~is_date]))
        return
    scores = np.array([sentence_chrf(item.text, pair.target) for pair, item in found])
    print(row("chrF2 at least the median", items, values, scores >= np.median(scores)))
    couples = list(zip(items[::2], items[1::2], strict=False))
    joined = [translator.read(f"{one.source.text} {two.source.text}") for one, two in couples]
    dropped = [replace(one, source=source) for (one, _), source in zip(couples, joined, strict=True)]
    for name, of_name in (("usual", confidences), ("with a dropped sentence", Confidence.of(translator, dropped))):
        missed = [any("attended" in warning for warning in item.warnings) for item in of_name if item]
        print(f"warned of source words not attended to, {name}: {np.mean(missed):.1%} of {len(missed):,}")


def main() -> None:
    """Parse the command line, calibrate on one half, and judge the other."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run")
    parser.add_argument("files", nargs="*", metavar="SOURCE TARGET")
    parser.add_argument("--pairs", type=int, default=6000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    translator = load(options.run)
    if options.files:
        pairs = [Pair(*pair) for pair in zip(*read_with_references(*options.files), strict=True)]
        Random(options.seed).shuffle(pairs)
        halves = pairs[: len(pairs) // 2], pairs[len(pairs) // 2 :]
    else:
        halves = damaged_dates(options.pairs, options.seed)
    translator.calibration, lines = calibrate(
        translator, *zip(*((pair.source, pair.target) for pair in halves[0]), strict=True)
    )
    print("cross-validation on the first half:", *lines, "\nthe other half:", "", sep="\n")
    judge(translator, halves[1])


if __name__ == "__main__":
    main()
