"""Glossaries: how often terms are followed, and how much the other words change.

    benchmarks/glossary.py RUN SOURCE REFERENCE [--lines N] [--seed N] [--counted SOURCE REFERENCE]

Each line has one term: a source word that is linked to one word of the reference (by the run's attention), to be
translated by that word, or by a rarer one to which the same source word is linked elsewhere, such as a synonym or
another form. A pair of words counts if it is linked more than once and the target is linked to no source word more
often: a single link is often wrong, and a wrong translation would be counted as an error of the search. `--counted`
names further pairs for counting links, such as the training data.

For both kinds, and separately for the lines whose translation lacks the term without a glossary, the table contains the
share of terms followed and chrF2 outside the term, with and without the glossary (both without the term or the words
linked to its source, against the reference without its word). Lines without a term, in one batch with the others, are
compared with those of a search without a glossary.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from random import Random
from typing import NamedTuple

import sacrebleu

from attent.alignment.aligner import align, tokenize_pair
from attent.alignment.forced_decoding import AttentionSelector
from attent.search.settings import SearchSettings
from attent.tasks.translation.alignment import Alignment
from attent.tasks.translation.glossary import Glossary, missing
from attent.tasks.translation.term_search import TermSearch
from attent.tasks.translation.translator import Translator, load
from attent.text.readers import read_lines
from attent.text.tokenizer import UNK

# Number of the most frequent source words, which no glossary contains.
STOP_WORDS = 60
SHORTEST = 3


class Example(NamedTuple):
    """A line with a term: a source word, its index, the index of the reference's word, and the two translations."""

    source: str
    reference: str
    word: str
    position: int
    reference_index: int
    told: dict[str, str]


def read_pairs(source: str, reference: str, count: int) -> list[tuple[str, str]]:
    """Return the first pairs of two files."""
    return list(islice(zip(read_lines(source), read_lines(reference), strict=True), count))


def examples(
    translator: Translator, pairs: Sequence[tuple[str, str]], random: Random, further: Sequence[tuple[str, str]] = ()
) -> list[Example]:
    """Draw a term for each pair that has one; links are also counted in further pairs."""
    tokenizers = translator.source_tokenizer, translator.target_tokenizer
    selector = AttentionSelector.of_run(translator.config)
    links = align(translator.model, [tokenize_pair(*pair, tokenizers) for pair in (*pairs, *further)], selector)
    frequent = {
        word for word, _ in Counter(word for source, _ in pairs for word in source.split()).most_common(STOP_WORDS)
    }
    counts = Counter(word for _, target in (*pairs, *further) for word in target.split())
    # for source words and for targets: how often each is linked to which
    known: dict[str, Counter[str]] = defaultdict(Counter)
    origins: dict[str, Counter[str]] = defaultdict(Counter)
    single: list[list[tuple[int, int]]] = []
    for (source, target), pair_links in zip((*pairs, *further), links, strict=True):
        left, right = source.split(), target.split()
        of_source, of_target = Counter(i for i, _ in pair_links), Counter(j for _, j in pair_links)
        good = [
            (i, j)
            for i, j in pair_links
            if of_source[i] == of_target[j] == left.count(left[i]) == right.count(right[j]) == 1
        ]
        single.append(good)
        for i, j in good:
            known[left[i]][right[j]] += 1
            origins[right[j]][left[i]] += 1

    def is_term(word: str, target: str) -> bool:
        """Return whether a target word is linked to a source word more than once, and to no other more often.

        A single link is often wrong.
        """
        count = known[word][target]
        return count > 1 and count == max(origins[target].values()) and target.isalpha() and len(target) >= SHORTEST

    result = []
    for (source, target), good in zip(pairs, single, strict=False):
        left, right = source.split(), target.split()
        good = [(i, j) for i, j in good if left[i] not in frequent and left[i].isalpha() and is_term(left[i], right[j])]
        if not good:
            continue
        i, j = random.choice(good)
        word, own = left[i], right[j]
        rarer = [
            other
            for other in known[word]
            if counts[other] < counts[own] and other not in right and is_term(word, other)
        ]
        synonym = min(rarer, key=lambda other: (-known[word][other], other)) if rarer else None
        told = {"reference": own} | ({"synonym": synonym} if synonym else {})
        if all(UNK not in translator.target_tokenizer.encode(text) for text in told.values()):
            result.append(Example(source, target, word, i, j, told))
    return result


def without(text: str, indices: set[int]) -> str:
    """Return a text without the words at these indices."""
    return " ".join(word for index, word in enumerate(text.split()) if index not in indices)


def chrf(hypotheses: Sequence[str], references: Sequence[str]) -> float:
    """Return chrF2 of texts."""
    return sacrebleu.corpus_chrf(hypotheses, [references]).score


def judge(translator: Translator, drawn: Sequence[Example], kind: str, settings: SearchSettings) -> str:
    """Return the row of a kind of terms."""
    drawn = [example for example in drawn if kind in example.told]
    sources = [example.source for example in drawn]
    begin = time.perf_counter()
    plain = [best[0] for best in translator.search(sources, settings)]
    seconds = time.perf_counter() - begin
    begin = time.perf_counter()
    terms = [Glossary(((item.word, item.told[kind]),)).find(item.source) for item in drawn]
    told = [best[0] for best in TermSearch(translator, Glossary(()))(sources, settings, terms=terms)]
    told_seconds = time.perf_counter() - begin
    links = [alignment.links for alignment in Alignment.of(translator, plain)]
    rows = [
        (
            not missing(best.text, [item.told[kind]]),
            not missing(before.text, [item.told[kind]]),
            without(
                best.text, {best.text.split().index(item.told[kind])} if item.told[kind] in best.text.split() else set()
            ),
            without(before.text, {target for source, target in pair_links if source == item.position}),
            without(item.reference, {item.reference_index}),
        )
        for item, best, before, pair_links in zip(drawn, told, plain, links, strict=True)
    ]
    cells = []
    for part in (rows, [row for row in rows if not row[1]]):
        with_terms, without_terms = (
            chrf([row[2] for row in part], [row[4] for row in part]),
            chrf([row[3] for row in part], [row[4] for row in part]),
        )
        share, before = (100 * sum(bool(row[column]) for row in part) / max(len(part), 1) for column in (0, 1))
        cells.append(f"{len(part):,} | {before:.1f} | {share:.1f} | {without_terms:.1f} | {with_terms:.1f}")
    return f"| {kind} | " + " | ".join(cells) + f" | {told_seconds / seconds:.1f} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("source")
    parser.add_argument("reference")
    parser.add_argument("--lines", type=int, default=1014)
    parser.add_argument("--beam", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--counted", nargs=2, metavar=("SOURCE", "REFERENCE"))
    parser.add_argument("--counted-lines", type=int, default=10_000)
    options = parser.parse_args()
    translator = load(options.run)
    pairs = read_pairs(options.source, options.reference, options.lines)
    further = read_pairs(options.counted[0], options.counted[1], options.counted_lines) if options.counted else []
    drawn, settings = examples(translator, pairs, Random(options.seed), further), SearchSettings(beam=options.beam)
    # for all lines, and for those that lack the term without a glossary
    columns = "told without, % | told, % | chrF2 outside without | with"
    print(f"| term | lines | {columns} | lines that lack it | {columns} | time |")
    print("|---|" + "--:|" * 11)
    for kind in ("reference", "synonym"):
        print(judge(translator, drawn, kind, settings), flush=True)
    glossary = Glossary(tuple({item.word: item.told["reference"] for item in drawn[: len(drawn) // 8]}.items()))
    texts = [source for source, _ in pairs]
    told, plain = TermSearch(translator, glossary)(texts, settings), translator.search(texts, settings)
    clean = [row for row, text in enumerate(texts) if not glossary.find(text)]
    same = sum(told[row] == plain[row] for row in clean)
    hit = [row for row, text in enumerate(texts) if glossary.find(text)]
    followed = sum(not missing(told[row][0].text, [term.target for term in glossary.find(texts[row])]) for row in hit)
    print(
        f"one glossary of {len(glossary.entries)} terms: {followed:,} of {len(hit):,} lines with terms as told; ",
        end="",
    )
    print(f"{same:,} of {len(clean):,} lines without any identical")


if __name__ == "__main__":
    main()
