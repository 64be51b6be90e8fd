"""Texts with a label each, from a file."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from attent.data.readers import EMPTY_LINE, MANY_TABS, STANDARD_INPUT, ReadReport, read_lines
from attent.errors import DataError

# What is done with a line, as a report says it.
EMPTY_TEXT, EMPTY_LABEL, NO_TAB = "empty text", "empty label", "no tab between text and label"
TWICE, OTHERWISE = "the same text and label as before", "the text has other labels on other lines"
SHARED = "the text is also in validation"


class LabelledText(NamedTuple):
    """A text and the name of its class."""

    text: str
    label: str


def read_labelled(path: str, report: ReadReport) -> list[tuple[int, LabelledText]]:
    """The texts and labels of a file, with the numbers of their lines: text, tab and label in each line.

    Spaces around a label are dropped. A text that comes with several labels says nothing about which is right, and one that comes
    twice counts once: both are dropped and reported, as are lines without text or label.

    Args:
        path: the file, gzipped if its name ends in .gz; `-` is standard input.
        report: takes up what was done with the lines.

    Raises:
        DataError: the file cannot be read, is empty, has a line that is not UTF-8, or none with a text and a label.
    """
    found: list[tuple[int, LabelledText]] = []
    labels: dict[str, set[str]] = {}
    for number, line in enumerate(read_lines(path), start=1):
        report.lines = number
        example = _of_line(line)
        if isinstance(example, str):
            report.drop(example, number)
            continue
        found.append((number, example))
        labels.setdefault(example.text, set()).add(example.label)
    if not report.lines:
        raise DataError(f"{named(path)}: empty")
    kept, seen = [], set[str]()
    for number, example in found:
        if len(labels[example.text]) > 1:
            report.drop(OTHERWISE, number)
        elif example.text in seen:
            report.drop(TWICE, number)
        else:
            seen.add(example.text)
            kept.append((number, example))
    if not kept:
        raise DataError(f"no line holds a text and a label; {'; '.join(line.strip() for line in report.summary())}")
    return kept


def without(
    examples: Sequence[tuple[int, LabelledText]], held_out: Iterable[LabelledText], report: ReadReport
) -> list[tuple[int, LabelledText]]:
    """The examples whose text is not held out as well.

    Args:
        examples: what is to be trained on, with the numbers of their lines.
        held_out: what is to be validated on.
        report: takes up the examples left out.

    Raises:
        DataError: nothing is left.
    """
    seen = {example.text for example in held_out}
    for number, example in examples:
        if example.text in seen:
            report.drop(SHARED, number)
    kept = [(number, example) for number, example in examples if example.text not in seen]
    if not kept:
        raise DataError(f"no text is left to train on; {'; '.join(line.strip() for line in report.summary())}")
    return kept


def named(path: str) -> str:
    """What a message calls the file."""
    return "standard input" if path == STANDARD_INPUT else path


def _of_line(line: str) -> LabelledText | str:
    """The example of a line, or the reason why it is none."""
    match line.split("\t"):
        case [text, label]:
            text_there, label = bool(text.strip()), label.strip()
            if text_there and label:
                return LabelledText(text, label)
            return EMPTY_LABEL if text_there else EMPTY_TEXT if label else EMPTY_LINE
        case [text]:
            return NO_TAB if text.strip() else EMPTY_LINE
        case _:
            return MANY_TABS
