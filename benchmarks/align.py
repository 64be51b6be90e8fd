"""Alignments from attention: pairs per second, and error rates beside eflomal (see `scripts/peers eflomal`).

    benchmarks/align.py RUN SOURCE TARGET [--gold LINKS] [--threads 2]
    benchmarks/align.py RUN [--threads 2]          a run on dates: its held-out sets, by character

SOURCE and TARGET contain one sentence per line, with words separated by spaces, and may be .gz. LINKS contains gold
links of the first pairs, one line each. Layer and head are the default, chosen without gold links, or chosen by the
gold links of other pairs. eflomal is trained on all pairs and, for dates, on 20,000 further training pairs.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

import torch
from _peers import python
from _sides import head, table
from links import eflomal_links

from attent.alignment.aligner import TokenizedPair, align, rank_selectors, tokenize_pair
from attent.alignment.error_rate import Agreement, agreement
from attent.alignment.forced_decoding import AttentionSelector
from attent.alignment.head_selection import rank_by_differences
from attent.alignment.pharaoh import parse, read_gold
from attent.alignment.symmetrization import symmetrize
from attent.runs.config import read_config
from attent.tasks.dates import DatesSettings, dates
from attent.tasks.dates.corpus import gold_links, tokenize_dates
from attent.tasks.dates.generated import regenerate
from attent.tasks.translation.pair_linker import CHOSEN_BY as CHOSEN_ALONE_BY
from attent.tasks.translation.pair_linker import PairLinker, random_halves
from attent.tasks.translation.translator import Translator, load
from attent.text.readers import read_lines
from attent.text.text import Gold, Link, Pair
from attent.text.tokenizer import Tokenizer

# Number of pairs to choose layer and head, and of further pairs of a generated corpus to train eflomal.
CHOSEN_BY, LEARNT = 1000, 20_000
WAYS = ("intersection", "grow-diag", "grow-diag-final-and")


def row(name: str, links: Sequence[Sequence[Link]], gold: Sequence[Gold]) -> list[str]:
    """Return a row of the table of errors."""
    total = sum(map(agreement, links, gold), Agreement())
    return [name, f"{total.error_rate:.3f}", f"{total.precision:.3f}", f"{total.recall:.3f}"]


def attention_rows(
    model: Translator,
    judged: Sequence[TokenizedPair],
    gold: Sequence[Gold],
    others: Sequence[TokenizedPair],
    other_gold: Sequence[Gold],
) -> list[list[str]]:
    """Return a row for each way to choose layer and head from other pairs."""
    choices = {
        "default": AttentionSelector(),
        "chosen without gold links": rank_by_differences(model.model, others[:CHOSEN_ALONE_BY])[0][0],
        "chosen by gold links": rank_selectors(model.model, others[:CHOSEN_BY], other_gold[:CHOSEN_BY])[0][0],
    }
    return [
        row(f"attention, {name}: {selector}", align(model.model, judged, selector), gold)
        for name, selector in choices.items()
    ]


def eflomal_rows(
    corpus: Sequence[tuple[str, str]], gold: Sequence[Gold], judged: Sequence[TokenizedPair]
) -> list[list[str]]:
    """Return the rows of eflomal, trained in both directions on a corpus whose first pairs are evaluated.

    There are none if eflomal is missing.
    """
    if not (python("eflomal").parent / "eflomal-align").is_file():
        print("eflomal is left out: scripts/peers eflomal makes its environment.", file=sys.stderr)
        return []
    begin = time.perf_counter()
    directions = eflomal_links(list(corpus))
    seconds = time.perf_counter() - begin
    forward, backward = (
        [
            [link for link in parse(line).sure if link[1] in set(pair.target_words)]
            for line, pair in zip(lines, judged, strict=False)
        ]
        for lines in directions
    )
    print(f"eflomal: {len(corpus):,} pairs in {seconds:.1f} s, both directions", flush=True)
    joined = {way: [symmetrize(*links, way) for links in zip(forward, backward, strict=True)] for way in WAYS}
    return [
        row(f"eflomal, {name}", links, gold)
        for name, links in {"source to target": forward, "target to source": backward, **joined}.items()
    ]


def spaced(text: str) -> str:
    """Return a text with spaces between its characters."""
    return " ".join(character if not character.isspace() else "␣" for character in text)


def _with_gold(
    pairs: Sequence[Pair], tokenizers: tuple[Tokenizer, Tokenizer]
) -> tuple[list[TokenizedPair], list[Gold]]:
    """Return encoded pairs of dates and the gold links of each."""
    encoded = [tokenize_dates(pair.source, pair.target, tokenizers) for pair in pairs]
    return encoded, [gold_links(pair) for pair in pairs]


def judge_dates(run: Path, model: Translator) -> None:
    """Evaluate the held-out sets of a run on dates."""
    config = read_config(run)
    corpus, tokenizers = regenerate(run, config.corpus), (model.source_tokenizer, model.target_tokenizer)
    others, other_gold = _with_gold(corpus.validation, tokenizers)
    training = dates(DatesSettings.model_validate(config.corpus["dates"])).train[:LEARNT]
    for name, pairs in corpus.held_out.items():
        judged, gold = _with_gold(pairs, tokenizers)
        rows = attention_rows(model, judged, gold, others, other_gold)
        learnt = [*pairs, *training]
        rows += eflomal_rows([(spaced(pair.source), spaced(pair.target)) for pair in learnt], gold, judged)
        print(f"\n{name}, {len(pairs):,} pairs\n")
        table(["links", "AER", "precision", "recall"], rows)


def texts(model: Translator, source: str, target: str, gold_file: str | None) -> None:
    """Time the alignment of two files, and evaluate it if gold links are given."""
    pairs = list(zip(read_lines(source), read_lines(target), strict=True))
    linker = PairLinker(model, None, None, None, "words", "grow-diag", print)
    for _ in linker.stream(iter(pairs[:256])):
        pass
    begin, processor = time.perf_counter(), time.process_time()
    count = sum(len(links) for links, _ in linker.stream(iter(pairs)))
    seconds, processor = time.perf_counter() - begin, time.process_time() - processor
    print(
        f"{count:,} pairs in {seconds:.1f} s on {linker.threads} threads: **{count / seconds:,.0f} pairs a second**, "
        f"{1000 * processor / count:.2f} ms of the processor a pair, or {linker.threads * count / processor:,.0f} a "
        "second of its time\n",
        flush=True,
    )
    if gold_file is None:
        return
    gold = list(islice(read_gold(gold_file), len(pairs)))
    tokenizers = model.source_tokenizer, model.target_tokenizer
    tokenized = [tokenize_pair(*pair, tokenizers) for pair in pairs[: len(gold)]]
    chosen, judged = random_halves(len(gold))
    halves = ([tokenized[index] for index in half] for half in (judged, chosen))
    judged_gold, chosen_gold = ([gold[index] for index in half] for half in (judged, chosen))
    judged_pairs, chosen_pairs = halves
    rows = attention_rows(model, judged_pairs, judged_gold, chosen_pairs, chosen_gold)
    table(["links", "AER", "precision", "recall"], rows)


def main() -> None:
    """Time, evaluate, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("source", nargs="?")
    parser.add_argument("target", nargs="?")
    parser.add_argument("--gold")
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    model = load(options.run)
    head(f"Alignments by {options.run.name}")
    if options.source is not None and options.target is not None:
        texts(model, options.source, options.target, options.gold)
    elif "dates" in read_config(options.run).corpus:
        judge_dates(options.run, model)
    else:
        sys.exit("a run that was not trained on dates needs SOURCE and TARGET")


if __name__ == "__main__":
    main()
