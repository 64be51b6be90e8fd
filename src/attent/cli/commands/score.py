"""attent score: the probabilities of given translations or texts."""

from typing import Annotated

import typer

from attent.cli.options import RunFolder, TypedLoading
from attent.text.readers import display_name
from attent.text.sources import check_file, decode_lines, open_source


def score(
    run: RunFolder,
    loading: TypedLoading,
    pairs: Annotated[
        str,
        typer.Argument(metavar="[FILE|-]", help="Lines of source, tab, target, or of text; - for standard input."),
    ] = "-",
) -> None:
    """Score given translations or texts: one pair or text in, one line out, in order.

    A line has three fields separated by tabs: the log-probability of the target given the source in nats, the number of
    target tokens including the end token, and the log-probability per token. A language model scores lines of text,
    including their ends.
    """
    check_file(pairs)
    stored = loading.stored_run(run)
    with open_source(pairs) as stream:
        for scores in stored.task.scores(stored, decode_lines(stream, pairs), display_name(pairs)):
            per_token = scores.log_probability / scores.tokens
            print(f"{scores.log_probability:.6f}\t{scores.tokens}\t{per_token:.6f}", flush=True)
