"""attent score: how probable given translations are."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from attent.cli.lines import lines_of, must_be_file, opened, some_at_a_time, where
from attent.cli.options import Device, TrustCode, device_of, loaded
from attent.devices import AUTO
from attent.errors import DataError

if TYPE_CHECKING:
    from attent.decoding.translator import Translator

# Pairs scored together: enough to sort them by length, few enough to see results soon.
LINES = 2048


def score(
    run: Annotated[Path, typer.Argument(help="The run folder.")],
    pairs: Annotated[str, typer.Argument(metavar="[FILE.tsv|-]", help="Lines of source, tab, target; or - for standard input.")] = "-",
    device: Device = AUTO,
    trust_code: TrustCode = False,
) -> None:
    """Score translations that are there: one pair in, one line out, in order.

    A line holds, parted by tabs, the log-probability of the target given the source in nats, the number of target tokens
    (the one that ends it included), and the log-probability per token.
    """
    must_be_file(pairs)

    translator: Translator = loaded(run, device_of(device), "translate", trust_code=trust_code)
    with opened(pairs) as stream:
        lines = enumerate(lines_of(stream, pairs), start=1)
        read = (_pair(line, f"{where(pairs)}, line {number}", translator) for number, line in lines)
        for some in some_at_a_time(read, LINES):
            for found in translator.score(some):
                print(f"{found.log_probability:.6f}\t{found.tokens}\t{found.per_token:.6f}")
            sys.stdout.flush()


def _pair(line: str, place: str, translator: Translator) -> tuple[str, str]:
    source, *targets = line.split("\t")
    if len(targets) != 1:
        raise DataError(f"{place}: must be source, tab, target, got {len(targets)} tabs")
    if why := translator.length_error(source, targets[0], translator.model.longest):
        raise DataError(f"{place}: {why}")
    return source, targets[0]
