"""Links between the words of pairs, read from the attention of one run or two, and their agreement with gold links."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import islice, zip_longest
from pathlib import Path
from random import Random
from typing import NamedTuple, TypeVar

import torch

from attent.alignment.aligner import TokenizedPair, Units, align, rank_selectors, tokenize_pair
from attent.alignment.error_rate import Agreement, agreement
from attent.alignment.forced_decoding import ABOUT_LABELS, AttentionSelector
from attent.alignment.head_selection import rank_by_differences
from attent.alignment.pharaoh import check, read_gold
from attent.alignment.symmetrization import symmetrize
from attent.errors import ArgumentError, DataError
from attent.runs.config import AlignmentHead, read_config, write_config
from attent.runs.durable import held
from attent.tasks.translation.translator import Translator
from attent.text.readers import TextPair, chunks, display_name
from attent.text.sources import check_file
from attent.text.text import Gold, Link

# Pairs aligned at a time: enough to sort them by length, few enough to see results soon.
LINES = 2048
# Maximum number of layers and heads listed.
LISTED = 10
HEAD = f"layer  head  {'a row is about':18}"
# Pairs without gold links used for a choice, beyond which it hardly changes.
CHOSEN_BY = 200
Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True)
class PairLinker:
    """Links the words or tokens of pairs.

    Args:
        forward: the run whose attention is read.
        backward: a run for the other direction, whose links are combined with these; None if there is none.
        selector: layer, head and meaning of the rows; None for each run's own choice.
        threshold: as for `attent.alignment.aligner.extract_links`.
        units: words or tokens.
        symmetrization: the method for combining the links of both directions.
        say: reports progress, and pairs that are too long.
    """

    forward: Translator
    backward: Translator | None
    selector: AttentionSelector | None
    threshold: float | None
    units: Units
    symmetrization: str
    say: Callable[[str], None]

    def tokenize(self, pair: TextPair) -> TokenizedPair:
        """Encode a pair for the forward run."""
        return tokenize_pair(*pair, (self.forward.source_tokenizer, self.forward.target_tokenizer), self.units)

    def links(self, pairs: Sequence[TextPair]) -> list[list[Link]]:
        """Return the links of each pair."""
        selector = self.selector_of(self.forward)
        forward = align(self.forward.model, [self.tokenize(pair) for pair in pairs], selector, threshold=self.threshold)
        if self.backward is None:
            return forward
        selector = self.selector_of(self.backward)
        backward = align(self.backward.model, reversed_pairs(self.backward, pairs), selector, threshold=self.threshold)
        flipped = ([(source, target) for target, source in links] for links in backward)
        return [
            symmetrize(links, reverse, self.symmetrization) for links, reverse in zip(forward, flipped, strict=True)
        ]

    def stream(self, read: Iterator[TextPair]) -> Iterator[tuple[list[list[Link]], bool]]:
        """Yield the links of pairs in order, in chunks, each with whether all of its pairs could be read.

        Neither the links nor their order depend on the number of threads.
        """

        def readable_chunks() -> Iterator[tuple[list[TextPair], bool]]:
            number = 1
            for chunk in chunks(read, LINES):
                readable = self.blank_long(chunk, number)
                yield readable, readable == chunk
                number += len(chunk)

        return map_in_order(lambda chunk: (self.links(chunk[0]), chunk[1]), readable_chunks(), self.threads)

    @property
    def threads(self) -> int:
        """The number of threads for alignment: torch's on a CPU, else one.

        It is also one if attention has to be watched, since the results of such models depend on the number of threads.
        """
        translators = [translator for translator in (self.forward, self.backward) if translator is not None]
        are_parallel = all(
            translator.device.type == "cpu" and translator.model.source_attention_layers for translator in translators
        )
        return torch.get_num_threads() if are_parallel else 1

    def selector_of(self, translator: Translator) -> AttentionSelector:
        """Return the selector of the attention from which a run's links are read."""
        return self.selector or AttentionSelector.of_run(translator.config)

    def blank_long(self, pairs: Sequence[TextPair], first: int) -> list[TextPair]:
        """Replace pairs that are too long for a model with empty texts, and report them.

        Args:
            pairs: sources and targets.
            first: the line number of the first pair.
        """
        readable: list[TextPair] = []
        for number, pair in enumerate(pairs, start=first):
            error = self._length_error(pair)
            if error:
                self.say(f"line {number}: not aligned: {error}")
            readable.append(("", "") if error else pair)
        return readable

    def _length_error(self, pair: TextPair) -> str | None:
        for translator, (source, target) in ((self.forward, pair), (self.backward, pair[::-1])):
            if translator is not None and (error := translator.length_error(source, target, translator.longest_source)):
                return error
        return None


def reversed_pairs(backward: Translator, pairs: Sequence[TextPair]) -> list[TokenizedPair]:
    """Encode pairs of source and target for a run from target to source."""
    tokenizers = backward.source_tokenizer, backward.target_tokenizer
    return [tokenize_pair(target, source, tokenizers) for source, target in pairs]


def map_in_order(function: Callable[[Item], Result], items: Iterator[Item], threads: int) -> Iterator[Result]:
    """Map a function over items in threads that each compute single-threaded, and yield the results in order.

    Args:
        function: its result must not depend on torch's number of threads, which is one.
        items: read no further ahead than threads need; an error in reading them is raised after the earlier results.
        threads: number of threads.
    """
    if threads == 1:
        yield from map(function, items)
        return
    pending: deque[Future[Result]] = deque()
    failure: StopIteration | DataError | None = None
    try:
        with ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            while failure is None:
                try:
                    pending.append(pool.submit(function, next(items)))
                except (StopIteration, DataError) as error:
                    failure = error
                while pending and (failure is not None or len(pending) > threads):
                    yield pending.popleft().result()
    finally:
        # each thread has its own number, but a new thread inherits the last one set anywhere
        torch.set_num_threads(threads)
    if isinstance(failure, DataError):
        raise failure


class HeadReport(NamedTuple):
    """The attention that links are read from, as chosen or evaluated.

    Args:
        selector: selector of the run.
        lines: a table of the best choices, and agreement with gold links.
        is_complete: whether every pair could be read.
    """

    selector: AttentionSelector
    lines: list[str]
    is_complete: bool


def choose_unlabelled(linker: PairLinker, read: Iterator[TextPair]) -> HeadReport:
    """Choose the layer, head and meaning of the rows from the first pairs, without gold links.

    Raises:
        DataError: no pair can be used, or the pairs do not distinguish between heads.
    """
    pairs = list(islice(read, CHOSEN_BY))
    readable = linker.blank_long(pairs, 1)
    title = f"{len(pairs):,} {'pair' if len(pairs) == 1 else 'pairs'} without gold links"
    linker.say(f"looking at every layer and head on {title}")
    tokenized = [linker.tokenize(pair) for pair in readable]
    if not any(pair.source and pair.target for pair in tokenized):
        raise DataError("there are no pairs to choose by: every pair has an empty side")
    ranking = rank_by_differences(linker.forward.model, tokenized)
    if not ranking or ranking[0][1] <= 0 or ranking[0][1] == ranking[-1][1]:
        raise DataError("these pairs do not tell the heads apart: give more pairs, or --gold")
    rows = [f"{_cells(selector)}  {score:.3f}" for selector, score in ranking[:LISTED]]
    return HeadReport(ranking[0][0], [f"chosen on {title}:", f"{HEAD}  score", *rows], readable == pairs)


def judge_file(linker: PairLinker, read: Iterator[TextPair], gold: str, *, first_word: int, choose: bool) -> HeadReport:
    """Evaluate the links of pairs against the gold links in a file.

    Args:
        linker: makes the links.
        read: the pairs.
        gold: the file of gold links.
        first_word: number of a sentence's first word in the file, 0 or 1.
        choose: whether to choose layer, head and meaning of the rows on half of the pairs and evaluate on the other
            half.

    Raises:
        ArgumentError: there is no such file, or only one pair to choose by.
        DataError: the numbers of lines and pairs differ, or a link refers to words that do not exist.
    """
    check_file(gold)
    pairs, gold_links = _read_gold(linker, read, gold, first_word)
    if not pairs:
        raise DataError("there are no pairs to align")
    readable, lines = linker.blank_long(pairs, 1), list[str]()
    rows = list(range(len(pairs)))
    if choose:
        if len(pairs) < 2:
            raise ArgumentError("--best-head needs at least two pairs: one to choose on and one to evaluate")
        half, rows = random_halves(len(pairs))
        title = f"{len(half):,} of {len(pairs):,} pairs, drawn at random"
        tokenized = [linker.tokenize(readable[row]) for row in half]
        linker, lines = _choose(linker, tokenized, [gold_links[row] for row in half], title)
    links, selector = linker.links([readable[row] for row in rows]), linker.selector_of(linker.forward)
    source = str(selector) if linker.backward is None else f"{selector}; {linker.symmetrization} of both directions"
    lines.append(_agreement(links, [gold_links[row] for row in rows], source))
    return HeadReport(selector, lines, readable == pairs)


def keep_choice(run: Path, selector: AttentionSelector) -> None:
    """Store the attention used for word alignment in a run's config.

    Raises:
        RunError: another process is training the run, or the config cannot be written.
    """
    with held(run):
        chosen = AlignmentHead(layer=selector.layer, head=selector.head, about=selector.about)
        write_config(read_config(run).model_copy(update={"alignment": chosen}), run)


def random_halves(count: int) -> tuple[list[int], list[int]]:
    """Split rows into random halves, always the same ones.

    The first and second half of a corpus may differ in kind, and so may its odd and even lines.
    """
    draw = Random(0).random
    order = sorted(range(count), key=[draw() for _ in range(count)].__getitem__)
    return sorted(order[: count // 2]), sorted(order[count // 2 :])


def _read_gold(
    linker: PairLinker, read: Iterator[TextPair], gold: str, first: int
) -> tuple[list[TextPair], list[Gold]]:
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
    linker: PairLinker, pairs: Sequence[TokenizedPair], gold: Sequence[Gold], title: str
) -> tuple[PairLinker, list[str]]:
    """Return a linker with the selector whose links agree best with the gold links, and a table of the best ones."""
    linker.say(f"looking at every layer and head on {title}")
    ranking = rank_selectors(linker.forward.model, pairs, gold, threshold=linker.threshold)
    if not ranking:
        raise DataError("there are no pairs to choose by: every pair has an empty side")
    rows = [
        f"{_cells(selector)}  {scores.error_rate:.3f}  {scores.precision:9.3f}  {scores.recall:6.3f}"
        for selector, scores in ranking[:LISTED]
    ]
    return replace(linker, selector=ranking[0][0]), [
        f"chosen on {title}:",
        f"{HEAD}    AER  precision  recall",
        *rows,
    ]


def _cells(selector: AttentionSelector) -> str:
    """Format a selector as a table row below HEAD."""
    return (
        f"{selector.layer:5}  {'mean' if selector.head is None else selector.head:>4}  "
        f"{ABOUT_LABELS[selector.about]:18}"
    )


def _agreement(links: Sequence[Sequence[Link]], gold: Sequence[Gold], source: str) -> str:
    """Format the agreement of links with gold links, and the attention they were read from, in one line."""
    total = sum(map(agreement, links, gold), Agreement())
    return (
        f"AER {total.error_rate:.3f}  precision {total.precision:.3f}  recall {total.recall:.3f}  "
        f"({len(links):,} pairs; {source})"
    )
