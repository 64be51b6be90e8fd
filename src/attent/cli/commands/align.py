"""attent align: which word came from which, read from a run's attention while it is given both texts."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from attent.cli.lines import must_be_file
from attent.cli.options import NUMBER, Device, TrustCode, device_of, loaded
from attent.cli.output import say
from attent.devices import AUTO
from attent.errors import ArgumentError, DataError

if TYPE_CHECKING:
    from attent.data.text import Link
    from attent.decoding.translator import Translator
    from attent.evaluation.aligner import TokenizedPair, Units
    from attent.evaluation.forced_decoding import AttentionSelector

# Pairs aligned together: enough to sort them by length, few enough to see results soon.
LINES = 512
# What --gold takes for the links of the run's own held-out dates.
DATES = "dates"
SYMMETRISE = "grow-diag"


def align(
    run: Annotated[Path, typer.Argument(help="The run folder.")],
    pairs: Annotated[str | None, typer.Argument(metavar="[FILE.tsv|-]", help="Lines of source, tab, target; - reads them.")] = None,
    source: Annotated[str | None, typer.Option(help="The sources, a line each, also .gz; with --target.")] = None,
    target: Annotated[str | None, typer.Option(help="Their translations.")] = None,
    layer: Annotated[int | None, typer.Option(min=0, help="Of those that look at the source, from 0; the last unless given.")] = None,
    head: Annotated[str | None, typer.Option(help="From 0; or mean, over all heads.")] = None,
    about: Annotated[str | None, typer.Option(help="Whether a row is about the token produced or read; produced unless given.")] = None,
    threshold: Annotated[float | None, typer.Option(min=0, max=1, help="Link all above this weight, not the largest alone.")] = None,
    tokens: Annotated[bool, typer.Option("--tokens", help="Link the run's tokens, not words.")] = False,
    reverse: Annotated[Path | None, typer.Option(help="A run for the other direction, whose links are joined to these.")] = None,
    symmetrise: Annotated[
        str | None, typer.Option(help="How: intersection, union, grow-diag (so unless given), -final, -final-and.", metavar="WAY")
    ] = None,
    gold: Annotated[str | None, typer.Option(help="Judge by the links of this file; or, of a run on dates: dates.")] = None,
    one_based: Annotated[bool, typer.Option("--one-based", help="Words are counted from 1 in that file.")] = False,
    best: Annotated[bool, typer.Option("--best", help="Choose layer, head and what rows are about by --gold.")] = False,
    device: Device = AUTO,
    trust_code: TrustCode = False,
) -> None:
    """Align given translations: one pair in, one line of links out, in order, such as 0-0 1-2, source-target from 0.

    The run is given each target, and each of its words is linked to the source word that is looked at most. Words are what
    spaces part; of a word's pieces weights are summed where they are looked at, and averaged where they look. The weights
    of a step may tell of the token produced or of the token read in: --about says which is meant.

    With --gold there are no lines but alignment error rate, precision and recall. A gold file has a line a pair, 0-0 for sure
    links and 0?2 or 0p2 for possible ones. --gold dates judges a run on dates by its held-out sets, whose links are known,
    character by character. --best chooses on half of the pairs, drawn at random (of dates, on validation), and judges what it
    chose on the others.
    """
    from attent.evaluation.symmetrization import symmetrize

    if best and (gold is None or any(option is not None for option in (layer, head, about, reverse))):
        raise ArgumentError("--best chooses layer, head and what rows are about by --gold, for one run: give --gold and none of the others")
    if symmetrise is not None and reverse is None:
        raise ArgumentError("--symmetrise joins the links of two runs: --reverse names the other one")
    if tokens and reverse is not None:
        raise ArgumentError("--tokens are each run's own, and --reverse joins links between words")
    if one_based and gold in (None, DATES):
        raise ArgumentError("--one-based says how a file of links is written: give it by --gold")
    if gold == "-" and "-" in ((source, target) if source is not None else (pairs or "-",)):
        raise ArgumentError("standard input holds the pairs or their links, not both")
    # an unknown way is refused before anything is read
    symmetrize((), (), how := symmetrise or SYMMETRISE)
    look = look_of(layer, head, about)
    where = device_of(device)
    translator: Translator = loaded(run, where, "translate", trust_code=trust_code)
    if gold == DATES:
        from attent.cli.gold import judge_dates

        if any(option is not None for option in (pairs, source, target, reverse)) or tokens:
            raise ArgumentError("--gold dates judges the held-out dates by character: it takes neither pairs, --reverse nor --tokens")
        judge_dates(run, translator, look, threshold, best=best)
        return
    backward = None if reverse is None else loaded(reverse, where, "translate", trust_code=trust_code)
    linker = Linker(translator, backward, look, threshold, "tokens" if tokens else "words", how)
    read = pairs_of(pairs, source, target)
    if gold is not None:
        from attent.cli.gold import judge_file

        judge_file(linker, read, gold, first=int(one_based), best=best)
        return
    _write(linker, read)


def look_of(layer: int | None, head: str | None, about: str | None) -> AttentionSelector:
    """What is looked at, of the options for it.

    Raises:
        ArgumentError: the head is neither a number nor the mean.
        UnknownNameError: a row is about nothing of that name.
    """
    from attent.errors import UnknownNameError
    from attent.evaluation.forced_decoding import ABOUT, About, AttentionSelector

    if head is not None and head != "mean" and not NUMBER.fullmatch(head):
        raise ArgumentError(f"--head must be a number from 0 or mean, got {head!r}")
    known: dict[str | None, About] = {None: ABOUT[0], **{name: name for name in ABOUT}}
    if about not in known:
        raise UnknownNameError("token that a row is about", str(about), ABOUT)
    return AttentionSelector(layer, None if head is None or head == "mean" else int(head), known[about])


@dataclass(frozen=True)
class Linker:
    """What makes links of pairs.

    Args:
        forward: the run that they are read from.
        backward: the one for the other direction, if their links are to be joined.
        look: which of their weights.
        threshold: as for `attent.evaluation.aligner.extract_links`.
        units: what is linked.
        how: in what way the two are joined.
    """

    forward: Translator
    backward: Translator | None
    look: AttentionSelector
    threshold: float | None
    units: Units
    how: str

    def sides(self, pair: tuple[str, str]) -> TokenizedPair:
        """A pair as the forward run reads it."""
        from attent.evaluation.aligner import tokenize_pair

        return tokenize_pair(*pair, (self.forward.source_tokenizer, self.forward.target_tokenizer), self.units)

    def links(self, pairs: Sequence[tuple[str, str]]) -> list[list[Link]]:
        """The links of each pair."""
        from attent.evaluation.aligner import align, tokenize_pair
        from attent.evaluation.symmetrization import symmetrize

        found = align(self.forward.model, [self.sides(pair) for pair in pairs], self.look, threshold=self.threshold)
        if self.backward is None:
            return found
        tokenizers = self.backward.source_tokenizer, self.backward.target_tokenizer
        turned = [tokenize_pair(target, source, tokenizers) for source, target in pairs]
        others = align(self.backward.model, turned, self.look, threshold=self.threshold)
        flipped = ([(source, target) for target, source in links] for links in others)
        return [symmetrize(one, other, self.how) for one, other in zip(found, flipped, strict=True)]

    def why_not(self, pair: tuple[str, str]) -> str | None:
        """Why a pair cannot be read; None if it can."""
        for translator, (read, given) in ((self.forward, pair), (self.backward, pair[::-1])):
            if translator is not None and (why := translator.length_error(read, given, translator.longest_source)):
                return why
        return None


def readable(linker: Linker, pairs: Sequence[tuple[str, str]], first: int) -> list[tuple[str, str]]:
    """The pairs, those that are too long for a model emptied, and said to be.

    Args:
        linker: whose models are to read them.
        pairs: sources and targets.
        first: the number of the first one's line.
    """
    fine: list[tuple[str, str]] = []
    for number, pair in enumerate(pairs, start=first):
        if why := linker.why_not(pair):
            say(f"line {number}: not aligned: {why}")
        fine.append(("", "") if why else pair)
    return fine


def _write(linker: Linker, read: Iterator[tuple[str, str]]) -> None:
    from attent.evaluation.pharaoh import pharaoh

    number, well = 1, True
    while some := list(itertools.islice(read, LINES)):
        fine = readable(linker, some, number)
        for links in linker.links(fine):
            print(pharaoh(links))
        sys.stdout.flush()
        number, well = number + len(some), well and fine == some
    if not well:
        raise typer.Exit(2)


def pairs_of(pairs: str | None, source: str | None, target: str | None) -> Iterator[tuple[str, str]]:
    """Pairs of one file, parted by tabs, or of two.

    Raises:
        ArgumentError: the files do not go together, or are not there.
    """
    if (source is None) != (target is None):
        raise ArgumentError("sources and their translations go together: --source FILE --target FILE")
    if pairs is not None and source is not None:
        raise ArgumentError("pairs come from one file, or from --source and --target, not from both")
    if source == target == "-":
        raise ArgumentError("standard input holds the sources or the targets, not both")
    for name in (pairs, source, target):
        if name is not None:
            must_be_file(name)
    if source is not None and target is not None:
        return _side_by_side(source, target)
    return _tabs(pairs or "-")


def _tabs(name: str) -> Iterator[tuple[str, str]]:
    from attent.cli.lines import where
    from attent.data.readers import read_lines

    for number, line in enumerate(read_lines(name), start=1):
        source, *targets = line.split("\t")
        if len(targets) != 1:
            raise DataError(f"{where(name)}, line {number}: must be source, tab, target, got {len(targets)} tabs")
        yield source, targets[0]


def _side_by_side(source: str, target: str) -> Iterator[tuple[str, str]]:
    from attent.cli.lines import where
    from attent.data.readers import read_lines

    for number, (left, right) in enumerate(itertools.zip_longest(read_lines(source), read_lines(target)), start=1):
        if left is None or right is None:
            ended, on = (source, target) if left is None else (target, source)
            raise DataError(f"{where(ended)} ends before line {number}, which {where(on)} has")
        yield left, right
