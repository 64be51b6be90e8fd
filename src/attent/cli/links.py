"""Links between the words of pairs, read from the attention of one run or of two, and their agreement with gold links."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path
from random import Random

import typer

from attent.cli.inputs import TextPair, check_file
from attent.cli.output import say
from attent.data.readers import display_name
from attent.data.text import Gold, Link
from attent.decoding.translator import Translator
from attent.errors import ArgumentError, DataError
from attent.evaluation.aligner import TokenizedPair, Units, align, rank_selectors, tokenize_pair
from attent.evaluation.error_rate import Agreement, agreement
from attent.evaluation.forced_decoding import ABOUT_LABELS, AttentionSelector
from attent.evaluation.pharaoh import check, read_gold
from attent.evaluation.symmetrization import symmetrize
from attent.runs.config import read_config
from attent.tasks.generated import regenerate

# Layers and heads that are listed with the best one.
LISTED = 10


@dataclass(frozen=True)
class PairLinker:
    """Links the words or tokens of pairs.

    Args:
        forward: the run whose attention is read.
        backward: a run for the other direction, whose links are joined to these; None without one.
        selector: layer, head and meaning of the rows.
        threshold: as for `attent.evaluation.aligner.extract_links`.
        units: words or tokens.
        symmetrization: the way to join the links of both directions.
    """

    forward: Translator
    backward: Translator | None
    selector: AttentionSelector
    threshold: float | None
    units: Units
    symmetrization: str

    def tokenize(self, pair: TextPair) -> TokenizedPair:
        """Encode a pair for the forward run."""
        return tokenize_pair(*pair, (self.forward.source_tokenizer, self.forward.target_tokenizer), self.units)

    def links(self, pairs: Sequence[TextPair]) -> list[list[Link]]:
        """Return the links of each pair."""
        forward = align(self.forward.model, [self.tokenize(pair) for pair in pairs], self.selector, threshold=self.threshold)
        if self.backward is None:
            return forward
        tokenizers = self.backward.source_tokenizer, self.backward.target_tokenizer
        reversed_pairs = [tokenize_pair(target, source, tokenizers) for source, target in pairs]
        backward = align(self.backward.model, reversed_pairs, self.selector, threshold=self.threshold)
        flipped = ([(source, target) for target, source in links] for links in backward)
        return [symmetrize(links, reverse, self.symmetrization) for links, reverse in zip(forward, flipped, strict=True)]

    def blank_long(self, pairs: Sequence[TextPair], first: int) -> list[TextPair]:
        """Return the pairs, with empty texts in the place of those too long for a model, which are reported.

        Args:
            pairs: sources and targets.
            first: the line number of the first pair.
        """
        readable: list[TextPair] = []
        for number, pair in enumerate(pairs, start=first):
            error = self._length_error(pair)
            if error:
                say(f"line {number}: not aligned: {error}")
            readable.append(("", "") if error else pair)
        return readable

    def _length_error(self, pair: TextPair) -> str | None:
        for translator, (source, target) in ((self.forward, pair), (self.backward, pair[::-1])):
            if translator is not None and (error := translator.length_error(source, target, translator.longest_source)):
                return error
        return None


def judge_generated(run: Path, translator: Translator, selector: AttentionSelector, threshold: float | None, *, choose: bool) -> None:
    """Judge a run by the gold links of the held-out sets of its generated corpus, after choosing on its validation if wanted.

    Raises:
        ArgumentError: the corpus of the run was read from files.
    """
    corpus = regenerate(run, read_config(run).corpus)
    tokenizers = translator.source_tokenizer, translator.target_tokenizer
    if choose:
        pairs, gold = corpus.with_gold(corpus.validation, tokenizers)
        selector = _choose(translator, pairs, gold, threshold, f"{len(gold):,} pairs of validation")
    width = max(map(len, corpus.held_out))
    for name, test in corpus.held_out.items():
        pairs, gold = corpus.with_gold(test, tokenizers)
        print(f"{name:{width}}  {_agreement(align(translator.model, pairs, selector, threshold=threshold), gold, selector)}")


def judge_file(linker: PairLinker, read: Iterator[TextPair], gold: str, *, first: int, choose: bool) -> None:
    """Judge the links of pairs by those of a file, after choosing on half of the pairs if wanted.

    Args:
        linker: makes the links.
        read: the pairs.
        gold: the file.
        first: number of a sentence's first word in the file, 0 or 1.
        choose: whether the best layer, head and meaning of the rows are chosen on half of the pairs, and the other half judged.

    Raises:
        ArgumentError: there is no such file, or only one pair to choose by.
        DataError: its lines are not as many as the pairs, or one holds a link between words that the pair does not have.
    """
    check_file(gold)
    pairs, gold_links = _read_gold(linker, read, gold, first)
    if not pairs:
        raise DataError("there is no pair to align")
    readable = linker.blank_long(pairs, 1)
    judged = list(range(len(pairs)))
    if choose:
        if len(pairs) < 2:
            raise ArgumentError("--best-head needs a pair to choose on and another one to judge")
        chosen, judged = random_halves(len(pairs))
        tokenized, gold_of_chosen = [linker.tokenize(readable[row]) for row in chosen], [gold_links[row] for row in chosen]
        title = f"{len(chosen):,} of {len(pairs):,} pairs, drawn at random"
        linker = replace(linker, selector=_choose(linker.forward, tokenized, gold_of_chosen, linker.threshold, title))
    suffix = "" if linker.backward is None else f"; {linker.symmetrization} of both directions"
    links = linker.links([readable[row] for row in judged])
    print(_agreement(links, [gold_links[row] for row in judged], linker.selector, suffix))
    if readable != pairs:
        raise typer.Exit(2)


def random_halves(count: int) -> tuple[list[int], list[int]]:
    """Split rows at random, always in the same way: the halves of a corpus may differ, and so may every other line."""
    draw = Random(0).random
    order = sorted(range(count), key=[draw() for _ in range(count)].__getitem__)
    return sorted(order[: count // 2]), sorted(order[count // 2 :])


def _read_gold(linker: PairLinker, read: Iterator[TextPair], gold: str, first: int) -> tuple[list[TextPair], list[Gold]]:
    pairs: list[TextPair] = []
    gold_links: list[Gold] = []
    for number, (pair, links) in enumerate(zip_longest(read, read_gold(gold, first=first)), start=1):
        if pair is None or links is None:
            missing = "no pair" if pair is None else "no line"
            raise DataError(f"{display_name(gold)} must have a line for each pair: there is {missing} {number}")
        tokenized = linker.tokenize(pair)
        words = tokenized.source_words, tokenized.target_words
        counts = [max((word for word in indices if word is not None), default=-1) + 1 for indices in words]
        check(links, counts[0], counts[1], f"{display_name(gold)}, line {number}")
        pairs.append(pair)
        gold_links.append(links)
    return pairs, gold_links


def _choose(
    translator: Translator, pairs: Sequence[TokenizedPair], gold: Sequence[Gold], threshold: float | None, title: str
) -> AttentionSelector:
    """Return the selector whose links agree best with the gold links; print it with the next best ones."""
    say(f"looking at every layer and head on {title}")
    ranking = rank_selectors(translator.model, pairs, gold, threshold=threshold)
    if not ranking:
        raise DataError("there is nothing to choose by: every pair has an empty side")
    print(f"chosen on {title}:")
    print("layer  head  a row is about        AER  precision  recall")
    for selector, scores in ranking[:LISTED]:
        head, about = "mean" if selector.head is None else selector.head, ABOUT_LABELS[selector.about]
        print(f"{selector.layer:5}  {head:>4}  {about:18}  {scores.error_rate:.3f}  {scores.precision:9.3f}  {scores.recall:6.3f}")
    return ranking[0][0]


def _agreement(links: Sequence[Sequence[Link]], gold: Sequence[Gold], selector: AttentionSelector, suffix: str = "") -> str:
    total = sum(map(agreement, links, gold), Agreement())
    return (
        f"AER {total.error_rate:.3f}  precision {total.precision:.3f}  recall {total.recall:.3f}  "
        f"({len(links):,} pairs; {selector}{suffix})"
    )
