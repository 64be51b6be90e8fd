"""attent align --gold: how well links agree with those that are known."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import typer

from attent.cli.commands.align import Linker, readable
from attent.cli.lines import must_be_file
from attent.cli.output import say
from attent.errors import ArgumentError, DataError

if TYPE_CHECKING:
    from attent.data.text import Gold, Pair
    from attent.decoding.translator import Translator
    from attent.evaluation.aligner import TokenizedPair
    from attent.evaluation.error_rate import Agreement
    from attent.evaluation.forced_decoding import AttentionSelector

# Of all that can be looked at, so many are listed.
LISTED = 10


def judge_dates(run: Path, translator: Translator, look: AttentionSelector, threshold: float | None, *, best: bool) -> None:
    """Judge a run on dates by its held-out sets, with what is best on its validation if asked for.

    Raises:
        ArgumentError: the run was not trained on dates.
    """
    from attent.cli.commands.evaluate import corpus_of
    from attent.evaluation.aligner import align

    corpus = corpus_of(run)
    model = translator.model
    if best:
        sides, gold = _dates(translator, corpus.validation)
        look = _best(translator, sides, gold, threshold, f"{len(gold):,} pairs of validation")
    width = max(map(len, corpus.held_out))
    for name, pairs in corpus.held_out.items():
        sides, gold = _dates(translator, pairs)
        print(f"{name:{width}}  {_said(_sum(align(model, sides, look, threshold=threshold), gold), len(pairs), look)}")


def judge_file(linker: Linker, read: Iterator[tuple[str, str]], gold: str, *, first: int, best: bool) -> None:
    """Judge links of pairs by those of a file, with what is best on half of the pairs if asked for.

    Raises:
        ArgumentError: there is no such file, or nothing to choose by.
        DataError: it has not as many lines as there are pairs, or holds what is no link of them.
    """
    must_be_file(gold)
    pairs, known = _with_gold(linker, read, gold, first)
    if not pairs:
        raise DataError("there is no pair to align")
    fine = readable(linker, pairs, 1)
    look, judged = linker.look, list(range(len(pairs)))
    if best:
        if len(pairs) < 2:
            raise ArgumentError("--best needs a pair to choose on and another one to judge")
        chosen, judged = halves(len(pairs))
        sides, gold_of_chosen = [linker.sides(fine[row]) for row in chosen], [known[row] for row in chosen]
        look = _best(linker.forward, sides, gold_of_chosen, linker.threshold, f"{len(chosen):,} of {len(pairs):,} pairs, drawn at random")
        linker = replace(linker, look=look)
    found = linker.links([fine[row] for row in judged])
    how = "" if linker.backward is None else f"; {linker.how} of both directions"
    print(_said(_sum(found, [known[row] for row in judged]), len(found), look, how))
    if fine != pairs:
        raise typer.Exit(2)


def halves(count: int) -> tuple[list[int], list[int]]:
    """Rows parted at random, always in the same way: in corpora neither halves nor every other line need be alike."""
    draw = Random(0).random
    order = sorted(range(count), key=[draw() for _ in range(count)].__getitem__)
    return sorted(order[: count // 2]), sorted(order[count // 2 :])


def _with_gold(linker: Linker, read: Iterator[tuple[str, str]], gold: str, first: int) -> tuple[list[tuple[str, str]], list[Gold]]:
    from attent.cli.lines import where
    from attent.evaluation.pharaoh import check, read_gold

    pairs: list[tuple[str, str]] = []
    known: list[Gold] = []
    for number, (pair, links) in enumerate(zip_longest(read, read_gold(gold, first=first)), start=1):
        if pair is None or links is None:
            raise DataError(f"{where(gold)} must have a line for each pair: there is {'no pair' if pair is None else 'no line'} {number}")
        sides = linker.sides(pair)
        counts = [max((word for word in words if word is not None), default=-1) + 1 for words in (sides.source_words, sides.target_words)]
        check(links, counts[0], counts[1], f"{where(gold)}, line {number}")
        pairs.append(pair)
        known.append(links)
    return pairs, known


def _dates(translator: Translator, pairs: Sequence[Pair]) -> tuple[list[TokenizedPair], list[Gold]]:
    from attent.data.dates.corpus import gold_links
    from attent.evaluation.aligner import tokenize_dates

    tokenizers = translator.source_tokenizer, translator.target_tokenizer
    return [tokenize_dates(pair.source, pair.target, tokenizers) for pair in pairs], [gold_links(pair) for pair in pairs]


def _best(
    translator: Translator, sides: Sequence[TokenizedPair], gold: Sequence[Gold], threshold: float | None, pairs: str
) -> AttentionSelector:
    """What agrees best with the gold links, listed with the next best ones."""
    from attent.evaluation.forced_decoding import ABOUT_LABELS
    from attent.evaluation.ranking import rank_selectors

    say(f"looking at every layer and head on {pairs}")
    ranking = rank_selectors(translator.model, sides, gold, threshold=threshold)
    if not ranking:
        raise DataError("there is nothing to choose by: every pair has an empty side")
    print(f"chosen on {pairs}:")
    print("layer  head  a row is about        AER  precision  recall")
    for look, found in ranking[:LISTED]:
        head = "mean" if look.head is None else look.head
        print(
            f"{look.layer:5}  {head:>4}  {ABOUT_LABELS[look.about]:18}  {found.error_rate:.3f}  {found.precision:9.3f}  {found.recall:6.3f}"
        )
    return ranking[0][0]


def _sum(found: Sequence[Sequence[tuple[int, int]]], gold: Sequence[Gold]) -> Agreement:
    from attent.evaluation.error_rate import Agreement, agreement

    return sum(map(agreement, found, gold), Agreement())


def _said(found: Agreement, pairs: int, look: AttentionSelector, how: str = "") -> str:
    scores = f"AER {found.error_rate:.3f}  precision {found.precision:.3f}  recall {found.recall:.3f}"
    return f"{scores}  ({pairs:,} pairs; {look}{how})"
