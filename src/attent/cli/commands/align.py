"""attent align: word alignments, read from a run's attention while it is given both texts."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from attent.cli.inputs import display_name, read_text_pairs
from attent.cli.options import Loading, RunFolder, head_number
from attent.cli.output import say
from attent.errors import ArgumentError, UnknownNameError, refuse
from attent.setting import Bound, Flag, Help

if TYPE_CHECKING:
    from attent.alignment.forced_decoding import AttentionSelector

SYMMETRIZATION = "grow-diag"
# Seconds between two lines about the progress.
INTERVAL = 10.0


@dataclass(frozen=True)
class Selection:
    """Attention to extract links from."""

    layer: Annotated[int | None, Bound(0), Help("Layer of cross-attention, from 0; the last unless given.")] = None
    head: Annotated[str | None, Help("Head, from 0; or mean for the mean of all heads.")] = None
    about: Annotated[
        str | None, Help("Token that a row of weights belongs to: produced or read; produced unless given.")
    ] = None
    choose: Annotated[
        bool, Flag("--best-head"), Help("Choose layer, head and --about, by --gold or by the pairs alone.")
    ] = False
    best: Annotated[bool, Help("Choose them in the same way, and save the choice with the run.")] = False

    @property
    def is_given(self) -> bool:
        """Return whether the command names the attention."""
        return any(value is not None for value in (self.layer, self.head, self.about))


@dataclass(frozen=True)
class Links:
    """Links to extract from the weights, and gold links to compare them with."""

    threshold: Annotated[float | None, Bound(0, 1), Help("Link all words above this weight, not only the largest.")] = (
        None
    )
    tokens: Annotated[bool, Help("Link the run's tokens instead of words.")] = False
    reverse: Annotated[Path | None, Help("Run for the opposite direction, whose links are combined with these.")] = None
    symmetrization: Annotated[
        str | None,
        Help(
            "How links are combined: intersection, union, grow-diag (the default), grow-diag-final or "
            "grow-diag-final-and.",
            "WAY",
        ),
    ] = None
    gold: Annotated[str | None, Help("Evaluate against the links of this file, or, for a run on dates, dates.")] = None
    one_based: Annotated[bool, Help("Words in the file of --gold are counted from 1.")] = False


def align(
    run: RunFolder,
    selection: Selection,
    links: Links,
    loading: Loading,
    pairs: Annotated[
        str | None, typer.Argument(metavar="[FILE.tsv|-]", help="Lines of source, tab, target; - for standard input.")
    ] = None,
    source: Annotated[str | None, Help("Sources, one per line, also .gz; with --target.")] = None,
    target: Annotated[str | None, Help("Targets of --source, line by line.")] = None,
) -> None:
    """Align given translations: for each pair a line of links, such as 0-0 1-2, source-target, counted from 0.

    The run reads each target, and each of its words is linked to the source word that it attends to most. Words are
    separated by spaces; weights of a word's pieces are summed on the source side and averaged on the target side. The
    weights of a step may belong to the token produced or to the token read: see --about.

    With --gold, alignment error rate, precision and recall are printed instead of links. A gold file has a line per
    pair, with 0-0 for sure links and 0?2 or 0p2 for possible ones. --gold dates evaluates a run on dates on its
    held-out sets, whose links are known character by character. --best-head chooses on a random half of the pairs (of
    dates, on the validation set) and evaluates its choice on the others. Without --gold it chooses on the first 200
    pairs: the head whose links name the source words that translations depend on most; with --reverse, on 1,000 pairs:
    in each run the head whose links agree best with the other run's. --best chooses in the same way, for a run on dates
    without a file too, and saves the choice with each run: its alignments and the tags of markup use it from then on,
    unless --layer, --head or --about is given.
    """
    from attent.alignment.pharaoh import pharaoh
    from attent.alignment.symmetrization import symmetrize
    from attent.runs.config import read_config
    from attent.tasks.dates.generated import GENERATED, generated_name

    gold, reverse, threshold, best = links.gold, links.reverse, links.threshold, selection.best
    if best and gold is pairs is source is target is None:
        gold = generated_name(read_config(run).corpus)
        if gold is None:
            raise ArgumentError(
                "--best chooses by known links, which the corpus of this run has not: --gold FILE names some; or by "
                "pairs: name a file of them"
            )
    option, choose = "--best" if best else "--best-head", selection.choose or best
    is_generated = gold in GENERATED
    inputs = (source, target) if source is not None else (pairs or "-",)
    refuse(
        (
            choose and selection.is_given,
            f"{option} chooses layer, head and what rows are about: give none of them",
        ),
        (
            choose and gold is not None and reverse is not None,
            f"{option} chooses by --gold or by --reverse, not by both",
        ),
        (
            choose and gold is None and threshold is not None,
            f"{option} without --gold chooses by the largest weights: give no --threshold",
        ),
        (
            links.symmetrization is not None and reverse is None,
            "--symmetrization joins the links of two runs: --reverse names the other one",
        ),
        (links.tokens and reverse is not None, "--tokens are each run's own, and --reverse joins links between words"),
        (
            links.one_based and (gold is None or is_generated),
            "--one-based says how a file of links is written: give it by --gold",
        ),
        (gold == "-" and "-" in inputs, "standard input holds the pairs or their links, not both"),
    )
    method = links.symmetrization or SYMMETRIZATION
    # refuses an unknown method before anything is read
    symmetrize((), (), method)
    from attent.cli.links import PairLinker, choose_unlabelled, judge_file, judge_generated, keep_choice
    from attent.tasks.translation.translator import load

    selector = parse_selector(selection.layer, selection.head, selection.about) if selection.is_given else None
    translator = loading.tool(run, load)
    if is_generated:
        if any(value is not None for value in (pairs, source, target, reverse)) or links.tokens:
            raise ArgumentError(
                f"--gold {gold} judges the held-out {gold} by character: it takes neither pairs, --reverse nor --tokens"
            )
        selector = judge_generated(run, translator, selector, threshold, choose=choose)
        if best:
            keep_choice(run, selector)
        return
    backward = None if reverse is None else loading.tool(reverse, load)
    linker = PairLinker(translator, backward, selector, threshold, "tokens" if links.tokens else "words", method)
    read = read_text_pairs(pairs, source, target)
    if gold is not None:
        selector, is_complete = judge_file(linker, read, gold, first=int(links.one_based), choose=choose)
        if best:
            keep_choice(run, selector)
        if not is_complete:
            raise typer.Exit(2)
        return
    if choose:
        selectors, is_complete = choose_unlabelled(linker, read)
        for folder, choice in zip((run, reverse), selectors, strict=False):
            if best and folder is not None:
                keep_choice(folder, choice)
        if not is_complete:
            raise typer.Exit(2)
        return
    number, is_complete = 0, True
    begin = reported = time.monotonic()
    for chunk, is_readable in linker.stream(read):
        print("\n".join(map(pharaoh, chunk)), flush=True)
        number, is_complete, now = number + len(chunk), is_complete and is_readable, time.monotonic()
        if now - reported >= INTERVAL:
            say(f"{number:,} pairs aligned, {number / (now - begin):,.0f} a second")
            reported = now
    if not number:
        names = [display_name(name) for name in inputs if name is not None]
        say(f"{' and '.join(names)} {'is' if len(names) == 1 else 'are'} empty: nothing is aligned")
    if not is_complete:
        raise typer.Exit(2)


def parse_selector(layer: int | None, head: str | None, about: str | None) -> AttentionSelector:
    """Return the attention that the options select.

    Raises:
        ArgumentError: the head is neither a number nor the mean.
        UnknownNameError: `about` is neither of the known names.
    """
    from attent.alignment.forced_decoding import ABOUT, AttentionSelector

    number = head_number(head, " or mean")
    if about not in (None, *ABOUT):
        raise UnknownNameError("token that a row is about", about, ABOUT)
    return AttentionSelector(layer, number, about or ABOUT[0])
