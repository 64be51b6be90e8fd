"""attent translate: a filter, one line in and one line out."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO

import typer

from attent.cli.output import say
from attent.errors import DataError

if TYPE_CHECKING:
    from attent.decoding.translator import Translator

# Lines translated together: enough to sort them by length, few enough to see results soon.
LINES = 512


def translate(
    run: Annotated[Path, typer.Argument(help="The run folder.")],
    source: Annotated[str, typer.Argument(metavar="[TEXT|FILE|-]", help="A text, a file of lines, or - for standard input.")] = "-",
) -> None:
    """Translate line by line: one line in, one line out, in order.

    What is no file is a text. Characters that the model has never seen are written in a way that it knows where there is
    one (a space for a space, 3 for ３), else reported on standard error; so are, for a model of dates, a line without a
    year and a translation that is no date. The translation is printed all the same.
    """
    from attent.decoding.translator import Translator
    from attent.runs.folder import read

    found = read(run)
    translator = Translator(found.model, found.source_tokenizer, found.target_tokenizer)
    with _opened(source) as stream:
        lines = enumerate(_lines(stream, source), start=1)
        # somebody who types wants each answer at once
        together = 1 if stream.isatty() else LINES
        while some := list(islice(lines, together)):
            _translate(translator, some, dates="dates" in found.config.corpus)


def _translate(translator: Translator, lines: list[tuple[int, str]], *, dates: bool) -> None:
    from attent.cli.typed import as_known, named, unknown
    from attent.data.dates.checks import is_date, why_no_date

    tokenizer = translator.source_tokenizer
    texts = [as_known(line, tokenizer) for _, line in lines]
    for (number, _), text, translation in zip(lines, texts, translator.translate(texts), strict=True):
        print(translation)
        if strange := unknown(text, tokenizer):
            say(f"line {number}: unknown to this model: {', '.join(map(named, strange))}")
        elif dates and text and (why := why_no_date(text)):
            say(f"line {number}: {why}")
        elif dates and text and not is_date(translation):
            say(f"line {number}: the answer {translation!r} is no date")
    sys.stdout.flush()


def _opened(source: str) -> BinaryIO:
    if source == "-":
        return sys.stdin.buffer
    try:
        if Path(source).is_file():
            return Path(source).open("rb")
    except (OSError, ValueError):
        pass  # too long for a name, or with a character that no name may have
    return io.BytesIO(source.encode())


def _lines(stream: BinaryIO, name: str) -> Iterator[str]:
    """The lines of UTF-8 text; only a line feed ends one, with or without a carriage return before it."""
    for number, line in enumerate(stream, start=1):
        try:
            yield line.decode("utf-8-sig" if number == 1 else "utf-8").removesuffix("\n").removesuffix("\r")
        except UnicodeDecodeError as error:
            where = "standard input" if name == "-" else name
            raise DataError(f"{where}, line {number}: not UTF-8 ({error.reason})") from error
