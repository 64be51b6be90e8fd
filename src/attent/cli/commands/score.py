"""attent score: probabilities of given translations."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from attent.cli.inputs import TextPair, check_file, chunks, decode_lines, open_source, split_pair
from attent.cli.options import AUTO, Device, RunFolder, TrustCode, device_of, loaded
from attent.data.readers import display_name
from attent.errors import DataError

if TYPE_CHECKING:
    from attent.decoding.translator import Translator

# Pairs scored at once: enough to sort them by length, few enough to see results soon.
LINES = 2048


def score(
    run: RunFolder,
    pairs: Annotated[str, typer.Argument(metavar="[FILE.tsv|-]", help="Lines of source, tab, target; or - for standard input.")] = "-",
    device: Device = AUTO,
    trust_code: TrustCode = False,
) -> None:
    """Score translations that are there: one pair in, one line out, in order.

    A line holds, parted by tabs, the log-probability of the target given the source in nats, the number of target tokens
    (the one that ends it included), and the log-probability per token.
    """
    check_file(pairs)

    translator: Translator = loaded(run, device_of(device), "translate", trust_code=trust_code)
    with open_source(pairs) as stream:
        lines = enumerate(decode_lines(stream, pairs), start=1)
        read = (_read_pair(line, f"{display_name(pairs)}, line {number}", translator) for number, line in lines)
        for chunk in chunks(read, LINES):
            for scores in translator.score(chunk):
                print(f"{scores.log_probability:.6f}\t{scores.tokens}\t{scores.per_token:.6f}")
            sys.stdout.flush()


def _read_pair(line: str, location: str, translator: Translator) -> TextPair:
    pair = split_pair(line, location)
    if error := translator.length_error(*pair, translator.model.longest):
        raise DataError(f"{location}: {error}")
    return pair
