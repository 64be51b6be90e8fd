"""Adapting a translator to another kind of text: what it gains there, and what it forgets.

    benchmarks/adapt.py RUN MULTI30K OUT [--minutes 10]

RUN translates lowercased, tokenized captions from English to German (configs/multi30k-marian.toml); MULTI30K is the
folder of its data. The run is exported as a Marian folder and imported again, and the imported run is adapted to 2,000
sentences with dates, once by themselves and once mixed with captions. It is evaluated on 500 other sentences, with
dates that do not occur in the 2,000, and on test_2016 of the captions.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from datetime import date, timedelta
from itertools import islice
from pathlib import Path
from random import Random

from _sides import head, table
from babel.dates import format_date

from attent.search.settings import SearchSettings
from attent.tasks.translation.evaluation import bleu
from attent.tasks.translation.translator import load
from attent.text.readers import read_lines

ADAPTED, JUDGED = 2_000, 500
BEAM = SearchSettings(beam=5)
TEMPLATES = (
    ("the meeting is on {} .", "die besprechung ist am {} ."),
    ("she was born on {} in a small town .", "sie wurde am {} in einer kleinen stadt geboren ."),
    ("please send the report before {} .", "bitte schicken sie den bericht vor dem {} ."),
    ("the shop has been closed since {} .", "der laden ist seit dem {} geschlossen ."),
    ("we will meet again on {} at noon .", "wir treffen uns am {} mittags wieder ."),
    ("the contract ends on {} .", "der vertrag endet am {} ."),
    ("on {} the bridge was opened to traffic .", "am {} wurde die brücke für den verkehr freigegeben ."),
    ("the letter dated {} never arrived .", "der brief vom {} kam nie an ."),
    ("his holiday begins on {} .", "sein urlaub beginnt am {} ."),
    ("the concert was moved to {} .", "das konzert wurde auf den {} verschoben ."),
)


def sentences(count: int, first: date, days: int, seed: int) -> list[tuple[str, str]]:
    """Return sentences in English and German with dates from a range of days."""
    random, pairs = Random(seed), []
    for _ in range(count):
        day, (english, german) = first + timedelta(random.randrange(days)), random.choice(TEMPLATES)
        written = [
            format_date(day, "EEEE, MMMM d, y" if random.random() < 0.5 else "MMMM d, y", "en"),
            format_date(day, "d. MMMM y", "de"),
        ]
        cut = [text.lower().replace(",", " ,") for text in written]
        pairs.append((english.format(cut[0]), german.format(cut[1])))
    return pairs


def attent(*arguments: object) -> None:
    """Print a command and run it."""
    words = [str(argument) for argument in arguments]
    print(f"$ attent {' '.join(words)}", file=sys.stderr, flush=True)
    subprocess.run([sys.executable, "-m", "attent", *words], check=True, stdout=sys.stderr)


def score(run: Path, pairs: list[tuple[str, str]]) -> float:
    """Return BLEU of the tokenized text, with a beam of 5."""
    sources, references = map(list, zip(*pairs, strict=True))
    return bleu(load(run).translate(sources, BEAM), references, "none").score


def main() -> None:
    """Adapt, evaluate, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("multi30k", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--minutes", type=float, default=10)
    options = parser.parse_args()
    out: Path = options.out
    out.mkdir(parents=True)
    captions = [options.multi30k / "tok" / f"train.lc.norm.tok.{language}.gz" for language in ("en", "de")]
    test = [options.multi30k / "tok" / f"test_2016_flickr.lc.norm.tok.{language}.gz" for language in ("en", "de")]
    old = list(zip(*(read_lines(str(file)) for file in test), strict=True))
    new = sentences(JUDGED, date(2027, 1, 1), 700, seed=2)
    for name, pairs in (
        ("replay", islice(zip(*(read_lines(str(file)) for file in captions), strict=True), 29_000)),
        ("dates", sentences(ADAPTED, date(1990, 1, 1), 10_000, seed=1)),
    ):
        (out / f"{name}.tsv").write_text("".join(f"{source}\t{target}\n" for source, target in pairs), encoding="utf-8")
    attent("export", options.run, "--to", "marian", "--out", out / "marian")
    attent("import", out / "marian", "--out", out / "imported")
    start = (
        "train",
        "--init-from",
        out / "imported",
        "--train",
        out / "dates.tsv",
        "--minutes",
        options.minutes,
        "--set",
        "training.seed=1",
    )
    attent(*start, "--out", out / "alone")
    attent(*start, "--replay", out / "replay.tsv", "--out", out / "replayed")
    head("Adapting an imported translator to 2,000 sentences with dates")
    rows = [
        ("trained here", options.run),
        ("imported", out / "imported"),
        ("adapted", out / "alone"),
        ("with replay", out / "replayed"),
    ]
    table(
        ["run", "BLEU on dates", "BLEU on test_2016"],
        [[name, f"{score(run, new):.2f}", f"{score(run, old):.2f}"] for name, run in rows],
    )


if __name__ == "__main__":
    main()
