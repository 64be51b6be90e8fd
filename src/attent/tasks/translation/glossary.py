"""Glossaries: source terms and their required translations."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import NamedTuple

from attent import bounded
from attent.errors import ArgumentError, DataError, reraise
from attent.text.tokenizer import Tokenizer
from attent.text.units import units

# Maximum number of entries, and of characters of either side of an entry.
MAX_ENTRIES, MAX_LENGTH = 20_000, 200
# Maximum bytes of a file.
LARGEST = 2**24

# The words of a source, and its target.
Entry = tuple[tuple[str, ...], str]
# Entries by their first word, the longest first.
Index = dict[str, list[Entry]]


class Term(NamedTuple):
    """A term in a text.

    Args:
        begin: position of the first character.
        end: position after the last character.
        target: its translation.
    """

    begin: int
    end: int
    target: str


@dataclass(frozen=True)
class Glossary:
    """Terms and their translations.

    Only the exact form of a term is matched, with composed or decomposed accents; inflected forms are not.

    Args:
        entries: (source, target) pairs with distinct sources.
        fallback: further terms; of two terms of equal length, those of `entries` take precedence.

    Raises:
        ArgumentError: there are too many terms, or one is empty, too long, on several lines, or repeats a source.
    """

    entries: tuple[tuple[str, str], ...]
    fallback: Glossary | None = None

    def __post_init__(self) -> None:
        if len(self.entries) > MAX_ENTRIES:
            raise ArgumentError(f"a glossary has at most {MAX_ENTRIES:,} terms, got {len(self.entries):,}")
        numbers: dict[tuple[str, ...], int] = {}
        for number, (source, target) in enumerate(self.entries, start=1):
            if problem := _problem(source, target):
                raise ArgumentError(f"term {number}: {problem}")
            if (first := numbers.setdefault(_words(source), number)) != number:
                raise ArgumentError(f"term {number}: {source!r} is term {first} already")

    def __hash__(self) -> int:
        # used to compare requests, so it must be fast for glossaries with many terms
        return hash((len(self.entries), self.entries[:8]))

    def updated(self, terms: Glossary) -> Glossary:
        """Return the terms of another glossary, with those of this one as a fallback; its index is reused."""
        return replace(terms, fallback=self if terms.fallback is None else self.updated(terms.fallback))

    def find(self, text: str, *, keeps_case: bool = False) -> list[Term]:
        """Return the terms found in a text, in order: the longest at each word, without overlaps.

        Args:
            text: any text.
            keeps_case: whether case matters, except for the first letter of the text.
        """
        layers, index, spans = self._layers(keeps_case=keeps_case), 0, units(text)
        words = [compose(text[span.begin : span.end]) for span in spans]
        words = words if keeps_case else [word.casefold() for word in words]
        result = list[Term]()
        while index < len(words):
            match = _longest(layers, words, index)
            if match is None and keeps_case and not index and words[0][:1].isupper():
                match = _longest(layers, [words[0][:1].lower() + words[0][1:], *words[1:]], index)
            if match is not None:
                last = spans[index + len(match[0]) - 1]
                result.append(Term(spans[index].begin, last.end, match[1]))
            index += 1 if match is None else len(match[0])
        return result

    def _layers(self, *, keeps_case: bool) -> list[Index]:
        own = self._by_case if keeps_case else self._by_letters
        return [own, *(self.fallback._layers(keeps_case=keeps_case) if self.fallback else ())]

    @cached_property
    def _by_case(self) -> Index:
        return _index((_words(source), target) for source, target in self.entries)

    @cached_property
    def _by_letters(self) -> Index:
        return _index((tuple(word.casefold() for word in _words(source)), target) for source, target in self.entries)


@lru_cache(maxsize=8)
def keeps_case(tokenizer: Tokenizer) -> bool:
    """Return whether a tokenizer has a piece with a capital; one learned from lowercase text has none."""
    return any(piece != piece.lower() for piece in map(tokenizer.piece, range(tokenizer.size)))


def read_glossary(path: Path | str) -> Glossary:
    """Read a glossary with lines of source, tab, target; blank lines and lines that begin with # are ignored.

    Raises:
        DataError: the file cannot be read, or a line is not a term, is too long, or repeats a source; the message names
            the line.
    """
    with reraise(DataError, f"{path} cannot be read", OSError), reraise(DataError, path, DataError):
        lines = bounded.read_text(path, LARGEST).removeprefix("\ufeff").split("\n")
    entries, numbers = list[tuple[str, str]](), dict[tuple[str, ...], int]()
    for number, line in enumerate(lines, start=1):
        if not line.strip() or line.startswith("#"):
            continue
        source, *targets = (cell.strip() for cell in line.split("\t"))
        if len(targets) != 1:
            raise DataError(f"{path}, line {number}: must be source, tab, target, got {len(targets)} tabs")
        if problem := _problem(source, targets[0]):
            raise DataError(f"{path}, line {number}: {problem}")
        if (first := numbers.setdefault(_words(source), number)) != number:
            raise DataError(f"{path}, line {number}: {source!r} is in line {first} already")
        entries.append((source, targets[0]))
        if len(entries) > MAX_ENTRIES:
            raise DataError(f"{path} has more than {MAX_ENTRIES:,} terms")
    return Glossary(tuple(entries))


def missing(text: str, targets: Iterable[str]) -> list[str]:
    """Return the targets that a text lacks or contains too few times; longer targets are matched first."""
    spans, absent = units(text), list[str]()
    words: list[str | None] = [compose(text[span.begin : span.end]) for span in spans]
    for target in sorted(targets, key=len, reverse=True):
        term = compose(target.strip())
        first, *others = _words(term)
        for index in range(len(words) - len(others)):
            end = index + len(others)
            if (
                words[index] == first
                and None not in words[index : end + 1]
                and compose(text[spans[index].begin : spans[end].end]) == term
            ):
                words[index : end + 1] = [None] * (len(others) + 1)
                break
        else:
            absent.append(target)
    return absent


def compose(text: str) -> str:
    """Normalize a text to Unicode NFC, which composes accents with their letters."""
    return unicodedata.normalize("NFC", text)


def _problem(source: str, target: str) -> str | None:
    for side, text in (("source", source), ("target", target)):
        if len(text) > MAX_LENGTH:
            return f"its {side} has {len(text):,} characters, more than {MAX_LENGTH}"
        if not text.strip() or any(map(str.isspace, text.replace(" ", ""))) or "\0" in text:
            return f"its {side} must be a text of one line, got {text!r}"
    return None if _words(source) else f"its source has no word, got {source!r}"


def _words(text: str) -> tuple[str, ...]:
    return tuple(compose(text[span.begin : span.end]) for span in units(text))


def _index(entries: Iterable[Entry]) -> Index:
    """Return the entries by their first word, longest first; entries that differ only in case stay in order."""
    result: Index = {}
    for words, target in entries:
        result.setdefault(words[0], []).append((words, target))
    return {word: sorted(group, key=lambda entry: -len(entry[0])) for word, group in result.items()}


def _longest(layers: Sequence[Index], words: Sequence[str], index: int) -> Entry | None:
    """Return the longest entry that begins at a word; of equally long ones, that of the first layer."""
    entries = (
        next((entry for entry in layer.get(words[index], ()) if _stands_at(words, index, entry[0])), None)
        for layer in layers
    )
    return max((entry for entry in entries if entry), key=lambda entry: len(entry[0]), default=None)


def _stands_at(words: Sequence[str], index: int, term: Sequence[str]) -> bool:
    return len(words) - index >= len(term) and all(words[index + number] == word for number, word in enumerate(term))
