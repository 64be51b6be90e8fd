"""attent align: word alignments, read from a run's attention to given pairs."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from attent.cli.options import Loading, RunFolder, head_number
from attent.cli.output import say
from attent.errors import UnknownNameError, refuse
from attent.setting import Bound, Flag, Help
from attent.text.readers import display_name
from attent.text.sources import read_text_pairs

if TYPE_CHECKING:
    from attent.alignment.forced_decoding import AttentionSelector
    from attent.tasks.translation.pair_linker import PairLinker

SYMMETRIZATION = "grow-diag"
# Seconds between progress messages.
INTERVAL = 10.0


@dataclass(frozen=True)
class Selection:
    """Options for the attention to extract links from."""

    layer: Annotated[int | None, Bound(0), Help("Layer of cross-attention, from 0; the last unless given.")] = None
    head: Annotated[str | None, Help("Head, from 0; or mean for the mean of all heads.")] = None
    about: Annotated[str | None, Help("Token that a row of weights is about: produced (the default) or read.")] = None
    choose: Annotated[bool, Flag("--best-head"), Help("Choose layer, head and --about by --gold or the pairs.")] = False
    best: Annotated[bool, Help("Choose them in the same way, and save the choice with the run.")] = False

    @property
    def chooses(self) -> bool:
        """Return True if the command chooses the attention."""
        return self.choose or self.best

    def selector(self) -> AttentionSelector | None:
        """Return the attention that the options name; None if they name none."""
        from attent.alignment.forced_decoding import ABOUT, AttentionSelector

        if all(value is None for value in (self.layer, self.head, self.about)):
            return None
        number = head_number(self.head, " or mean")
        if self.about not in (None, *ABOUT):
            raise UnknownNameError("token that a row is about", self.about, ABOUT)
        return AttentionSelector(self.layer, number, self.about or ABOUT[0])


@dataclass(frozen=True)
class Links:
    """Options for the links to extract, and for the gold links to compare them with."""

    threshold: Annotated[float | None, Bound(0, 1), Help("Link all words above this weight, not only one.")] = None
    tokens: Annotated[bool, Help("Link the run's tokens instead of words.")] = False
    reverse: Annotated[Path | None, Help("Run for the opposite direction, to combine its links with these.")] = None
    symmetrization: Annotated[
        str | None,
        Help("intersection, union, grow-diag (the default), grow-diag-final or grow-diag-final-and.", "METHOD"),
    ] = None
    gold: Annotated[str | None, Help("File of links to evaluate against.")] = None
    one_based: Annotated[bool, Help("Count the words in the --gold file from 1.")] = False


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
    """Align given translations, printing a line of links for each pair: 0-0 1-2, source-target, counted from 0.

    The run reads each target, and each target word is linked to the source word that it attends to most. Words are
    separated by spaces; the weights of a word's pieces are summed on the source side and averaged on the target side.

    With --gold, alignment error rate, precision and recall are printed instead of links. A gold file has a line per
    pair, with 0-0 for sure links and 0?2 or 0p2 for possible ones.

    --best-head chooses on a random half of the pairs and evaluates its choice on the others. Without --gold, it uses
    the first 200 pairs and chooses the head whose links name the source words that translations depend on most. After
    --best, alignments and the tags of documents use the saved choice, unless --layer, --head or --about is given.
    """
    from attent.alignment.symmetrization import symmetrize

    inputs = [pairs or "-"] if source is None or target is None else [source, target]
    refuse(
        (links.gold == "-" and "-" in inputs, "standard input can contain the pairs or their links, not both"),
        ((source is None) != (target is None), "--source FILE and --target FILE go together"),
        (pairs is not None and source is not None, "give one file of pairs, or --source and --target, not both"),
        (source == target == "-", "standard input can contain the sources or the targets, not both"),
    )
    _check(selection, links)
    method = links.symmetrization or SYMMETRIZATION
    # rejects an unknown method before anything is read
    symmetrize((), (), method)
    from attent.tasks.translation.pair_linker import PairLinker
    from attent.tasks.translation.translator import load

    translator = loading.tool(run, load)
    backward = None if links.reverse is None else loading.tool(links.reverse, load)
    units = "tokens" if links.tokens else "words"
    linker = PairLinker(translator, backward, selection.selector(), links.threshold, units, method, say)
    if links.gold is None and not selection.chooses:
        is_complete = _write_links(linker, inputs)
    else:
        is_complete = _judge(run, linker, inputs, selection, links)
    if not is_complete:
        raise typer.Exit(2)


def _check(selection: Selection, links: Links) -> None:
    """Check that the options go together."""
    option = "--best" if selection.best else "--best-head"
    is_named = any(value is not None for value in (selection.layer, selection.head, selection.about))
    has_reverse = links.reverse is not None
    refuse(
        (selection.chooses and is_named, f"{option} chooses the layer and the head: omit --layer, --head and --about"),
        (selection.chooses and has_reverse, f"{option} chooses for one run: omit --reverse"),
        (
            selection.chooses and links.gold is None and links.threshold is not None,
            f"{option} without --gold chooses by the largest weights: omit --threshold",
        ),
        (
            links.symmetrization is not None and not has_reverse,
            "--symmetrization combines the links of two runs: name the other with --reverse",
        ),
        (links.tokens and has_reverse, "--tokens cannot be used with --reverse, which combines links between words"),
        (links.one_based and links.gold is None, "--one-based needs a file of links: --gold FILE"),
    )


def _judge(run: Path, linker: PairLinker, inputs: Sequence[str], selection: Selection, links: Links) -> bool:
    """Print the choice or the evaluation, and save a choice; return whether every pair was read."""
    from attent.tasks.translation import pair_linker

    read = read_text_pairs(*inputs)
    if links.gold is None:
        report = pair_linker.choose_unlabelled(linker, read)
    else:
        first = int(links.one_based)
        report = pair_linker.judge_file(linker, read, links.gold, first_word=first, choose=selection.chooses)
    print("\n".join(report.lines))
    if selection.best:
        pair_linker.keep_choice(run, report.selector)
        say(f"{run} now aligns by {report.selector}")
    return report.is_complete


def _write_links(linker: PairLinker, inputs: Sequence[str]) -> bool:
    """Print the links of each pair, and report the speed; return whether every pair was read."""
    from attent.alignment.pharaoh import pharaoh

    number, is_complete = 0, True
    begin = reported = time.monotonic()
    for chunk, is_readable in linker.stream(read_text_pairs(*inputs)):
        print("\n".join(map(pharaoh, chunk)), flush=True)
        number, is_complete, now = number + len(chunk), is_complete and is_readable, time.monotonic()
        if now - reported >= INTERVAL:
            say(f"{number:,} pairs aligned, {number / (now - begin):,.0f} a second")
            reported = now
    if not number:
        say(f"{' and '.join(map(display_name, inputs))} {'is' if len(inputs) == 1 else 'are'} empty: nothing to align")
    return is_complete
