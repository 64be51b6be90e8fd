"""Tags of documents after translation: lost, doubled or wrongly nested tags, and tags on the right words.

    benchmarks/markup.py --dates RUN --reordering FOLDER --captions RUN SOURCE [--documents N] [--seed N]

Documents have nested inline tags around words. In dates, the words of year, month and day are known from the run's
corpus. FOLDER is for a made-up corpus reordered with known links (benchmarks/_reordering.py); a run is trained there
unless FOLDER/run exists, and aligns with the attention that is best on its validation data. For captions, only the
structure is evaluated. A tag is on the right word if it encloses only that word, in correct translations.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import islice, pairwise
from pathlib import Path
from random import Random
from typing import NamedTuple

import _reordering

from attent.alignment.forced_decoding import AttentionSelector
from attent.documents.html import parse_html
from attent.documents.pipeline import by_run, translate_documents
from attent.runs.config import read_config
from attent.tasks.dates.generated import regenerate
from attent.tasks.translation.translator import Translator, load
from attent.text.readers import read_lines

TAG = re.compile(r"<[^>]*>")
NAMES = ("b", "i", "u", "em", "strong", "span", "mark", "a")
# Character ranges of years, months and days.
FIELDS = ((0, 4), (5, 7), (8, 10))


class Tagged(NamedTuple):
    """A document.

    Args:
        html: the document with tags, each with a unique number.
        expected: the expected text within each evaluated tag of the translation, by its number.
        reference: the correct translation, if known.
    """

    html: str
    expected: dict[str, str]
    reference: str | None = None


def tagged(text: str, spans: Sequence[tuple[int, int]], random: Random) -> tuple[str, list[str]]:
    """Return a text with a tag around each span and some around several spans, and the number of each span's tag."""
    inserts: list[tuple[int, float, str]] = []
    numbers = []
    for number, (begin, end) in enumerate(spans):
        name = random.choice(NAMES)
        attribute = f'<{name} id="{number}">'
        inserts += [(begin, 2, attribute), (end, 1, f"</{name}>")]
        numbers.append(str(number))
        if random.random() < 0.3:
            inserts += [(begin, 3, f'<{name} id="{number}x">'), (end, 0, f"</{name}>")]
    if len(spans) > 1 and random.random() < 0.7:
        first = random.randrange(len(spans) - 1)
        last = random.randrange(first + 1, len(spans))
        inserts += [(spans[first][0], 1.5, '<span id="outer">'), (spans[last][1], 1.5, "</span>")]
    result, position = "", 0
    for index, _, tag in sorted(inserts, key=lambda item: (item[0], item[2].startswith("</") is False, item[1])):
        result += text[position:index] + tag
        position = index
    return f"<p>{result}{text[position:]}</p>", numbers


def of_dates(run: Path, count: int, random: Random) -> list[Tagged]:
    """Return documents from held-out dates with tags around year, month and day."""
    corpus = regenerate(run, read_config(run).corpus)
    pairs = [pair for test in corpus.held_out.values() for pair in test]
    random.shuffle(pairs)
    result = []
    for pair in pairs:
        gold = corpus.gold_links(pair)
        links = {*gold.sure, *gold.possible}
        spans = []
        for begin, end in FIELDS:
            positions = [source for source, target in links if begin <= target < end]
            spans.append((min(positions), max(positions) + 1) if positions else (0, 0))
        fields = dict(zip(spans, pair.target.split("-"), strict=True))
        ordered = sorted(spans)
        if any(begin == end for begin, end in spans) or any(left[1] > right[0] for left, right in pairwise(ordered)):
            continue
        html, numbers = tagged(pair.source, ordered, random)
        result.append(Tagged(html, dict(zip(numbers, (fields[span] for span in ordered), strict=True)), pair.target))
        if len(result) == count:
            break
    return result


def of_words(pairs: Iterable[tuple[str, str | None, dict[int, str]]], random: Random) -> list[Tagged]:
    """Return documents from sentences whose words have known counterparts, with tags around some words."""
    result = []
    for source, reference, counterparts in pairs:
        spans = [match.span() for match in re.finditer(r"\S+", source)]
        chosen = sorted(random.sample(range(len(spans) - 1), min(3, len(spans) - 1)))
        html, numbers = tagged(source, [spans[index] for index in chosen], random)
        expected = {
            number: counterparts[index] for number, index in zip(numbers, chosen, strict=True) if index in counterparts
        }
        result.append(Tagged(html, expected, reference))
    return result


def is_nested(html: str) -> bool:
    """Return whether all tags are properly nested."""
    waiting: list[str] = []
    for tag in TAG.findall(html):
        name = re.sub(r"[</>]| .*", "", tag)
        if not tag.startswith("</"):
            waiting.append(name)
        elif not waiting or waiting.pop() != name:
            return False
    return not waiting


def contents_of(html: str) -> dict[str, str]:
    """Return the text within each tag, by the tag's number."""
    waiting: list[tuple[str, str]] = []
    result: dict[str, str] = {}
    for piece in re.split(r"(<[^>]*>)", html):
        if piece.startswith("</"):
            number, text = waiting.pop()
            result[number] = text
            if waiting:
                waiting[-1] = waiting[-1][0], waiting[-1][1] + text
        elif piece.startswith("<"):
            waiting.append((piece.partition('id="')[2].rstrip('">'), ""))
        elif waiting:
            waiting[-1] = waiting[-1][0], waiting[-1][1] + piece
    return result


def judge(name: str, translator: Translator, documents: Sequence[Tagged]) -> str:
    """Return a row of the table."""
    translations = translate_documents([parse_html(document.html) for document in documents], None, by_run(translator))
    lost = doubled = broken = right = judged = correct = 0
    for document, translation in zip(documents, translations, strict=True):
        before, after = (Counter(TAG.findall(text)) for text in (document.html, translation))
        lost += (before - after).total()
        doubled += (after - before).total()
        broken += not is_nested(translation)
        text = TAG.sub("", translation)
        if document.reference != text:
            continue
        correct, contents = correct + 1, contents_of(translation)
        for number, expected in document.expected.items():
            content = contents[number]
            judged += 1
            # a hyphen has no link
            right += re.findall(r"\w+", content) == [expected]
    share = f"{100 * right / judged:.1f}" if judged else "–"
    tags = sum(len(TAG.findall(document.html)) for document in documents)
    selector = AttentionSelector.of_run(translator.config)
    return (
        f"| {name} | {len(documents):,} | {tags:,} | {lost} | {doubled} | {broken} | {correct:,} | {judged:,} | "
        f"{share} | {selector} |"
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dates", type=Path)
    parser.add_argument("--reordering", type=Path)
    parser.add_argument("--captions", nargs=2)
    parser.add_argument("--documents", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    print(
        "| corpus | documents | tags | lost | doubled | not nested | right texts | tags judged | on the right word, % "
        "| attention |"
    )
    print("|---|" + "--:|" * 8 + "---|")
    if options.dates:
        print(
            judge("dates", load(options.dates), of_dates(options.dates, options.documents, Random(options.seed))),
            flush=True,
        )
    if options.reordering:
        options.reordering.mkdir(parents=True, exist_ok=True)
        pairs = _reordering.write(options.reordering)[: options.documents]
        run = options.reordering / "run"
        if not run.is_dir():
            recipe = options.reordering / "recipe.toml"
            attent = [sys.executable, "-m", "attent"]
            subprocess.run(
                [*attent, "train", "--config", recipe, "--data", options.reordering, "--out", run], check=True
            )
            links = ("--gold", options.reordering / "valid.links", "--best")
            subprocess.run(
                [*attent, "align", run, options.reordering / "valid.tsv", *links], check=True, stdout=subprocess.DEVNULL
            )
        known = (
            (pair.source, pair.target, {source: pair.target.split()[target] for source, target in pair.links})
            for pair in pairs
        )
        print(judge("reordering", load(run), of_words(known, Random(options.seed))), flush=True)
    if options.captions:
        run, source = options.captions
        lines = islice((line for line in read_lines(source) if len(line.split()) > 3), options.documents)
        print(
            judge("captions", load(run), of_words(((line, None, {}) for line in lines), Random(options.seed))),
            flush=True,
        )


if __name__ == "__main__":
    main()
