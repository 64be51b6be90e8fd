"""attent score: probabilities of given translations and texts."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from attent.cli.inputs import TextPair, check_file, chunks, decode_lines, open_source, split_pair
from attent.cli.options import RunFolder, TypedLoading
from attent.errors import DataError
from attent.text.readers import display_name

if TYPE_CHECKING:
    from attent.tasks.text_generation.text_generator import TextGenerator
    from attent.tasks.translation.translator import Translator

# Pairs scored at once: enough to sort them by length, few enough to see results soon.
LINES = 2048


def score(
    run: RunFolder,
    loading: TypedLoading,
    pairs: Annotated[
        str,
        typer.Argument(metavar="[FILE|-]", help="Lines of source, tab, target, or of text; or - for standard input."),
    ] = "-",
) -> None:
    """Score given translations or texts: one pair or text in, one line out, in order.

    A line has three fields separated by tabs: the log-probability of the target given the source in nats, the number of
    target tokens including the one that ends it, and the log-probability per token. A run that generates text scores
    lines of text, including their end.
    """
    check_file(pairs)
    loading.torch_device()
    from attent.runs.config import read_config

    if read_config(run).task == "text-generation":
        _score_texts(loading.tool(run, "text-generation"), pairs)
        return
    translator: Translator = loading.tool(run, "translate")
    with open_source(pairs) as stream:
        lines = enumerate(decode_lines(stream, pairs), start=1)
        read = (_read_pair(line, f"{display_name(pairs)}, line {number}", translator) for number, line in lines)
        for chunk in chunks(read, LINES):
            for scores in translator.score(chunk):
                print(f"{scores.log_probability:.6f}\t{scores.tokens}\t{scores.per_token:.6f}")
            sys.stdout.flush()


def _score_texts(generator: TextGenerator, file: str) -> None:
    from attent.text.tokenizer import EOS

    with open_source(file) as stream:
        for number, line in enumerate(decode_lines(stream, file), start=1):
            try:
                tokens = [*generator.encode(line), EOS]
            except DataError as error:
                raise DataError(f"{display_name(file)}, line {number}: {error}") from error
            log_prob = float(generator.log_probs(tokens).sum())
            print(f"{log_prob:.6f}\t{len(tokens)}\t{log_prob / len(tokens):.6f}", flush=True)


def _read_pair(line: str, location: str, translator: Translator) -> TextPair:
    pair = split_pair(line, location)
    if error := translator.length_error(*pair, translator.model.longest):
        raise DataError(f"{location}: {error}")
    return pair
