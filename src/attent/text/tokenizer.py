"""Tokenizers, which convert text to token ids and back, with one id per character or per word."""

import json
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar, Protocol, Self

from attent.bounded import read_json
from attent.errors import ArgumentError, DataError, reraise

PAD, UNK, BOS, EOS = 0, 1, 2, 3
SPECIALS = 4
# Maximum size of a tokenizer's file in bytes: a million words of ten Cyrillic letters need half of it.
MAX_FILE = 2**27
# The version of the file format.
VERSION = 1
# Minimum count of the words in a vocabulary whose size is not given: a word that occurs once teaches no more than UNK.
MIN_COUNT = 2

# Punctuation and symbols, one piece each. Marks and joiners belong to words; otherwise the words of many scripts would
# be split.
SIGNS = (
    r"!-/:-@\[-^`{-~¡-©«-´¶-¹»-¿×÷"
    r"\u2010-\u2027\u2030-\u205e\u3001-\u3020\uff01-\uff0f\uff1a-\uff20\uff3b-\uff40\uff5b-\uff65"
)
# A word or a sign, with the space before it if there is one; each other white-space character is a separate piece.
PIECE = re.compile(rf" ?[^\s{SIGNS}]+| ?[{SIGNS}]|\s")
# Texts of at least this many characters are split lazily: a list of words takes about twenty times the text's bytes.
LONG_TEXT = 2**16
# Signs that keyboards and texts use interchangeably.
VARIANTS = (" \u00a0\u202f\u2009", "-‐‑–—", "'’ʼ‘", ".。．", ",，、،")
SENTENCE_ENDS = (".", "!", "?", "…", "。", "！", "？", "।", "؟")
SPACES, FIRST_WORD = re.compile(" {2,}"), re.compile(r"\w+")


class Tokenizer(Protocol):
    """Interface of tokenizers; the ids 0 to 3 are PAD, UNK, BOS and EOS."""

    @property
    def size(self) -> int:
        """The number of ids, including special ids."""
        ...

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text, without BOS and EOS."""
        ...

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of the ids up to the first EOS, without special ids."""
        ...

    def pieces(self, text: str, ids: Sequence[int] | None = None) -> list[str]:
        """Return a label for each id of `encode(text)`, for example for the axes of a figure.

        Args:
            text: any text.
            ids: the ids of the text if known, so that it is not encoded again.
        """
        ...

    def piece(self, token: int) -> str:
        """Return the label of an id; empty for a special id or a byte."""
        ...

    def word(self, token: int) -> str | None:
        """Return the word or sign of an id; None for part of a word, white space or a special id."""
        ...

    def save(self, path: Path) -> None:
        """Write the tokenizer to a file."""
        ...

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a file written by `save`."""
        ...


class VocabularyTokenizer:
    """Tokenizer that splits a text into entries of a list, one id each.

    Text is used as is: no normalization, case folding or trimming of spaces.

    Args:
        entries: distinct texts; the first has the id 4.

    Raises:
        ArgumentError: an entry is invalid or occurs twice.
    """

    FORMAT: ClassVar[str]
    # The key of the entries in a file, and the name of an entry in messages.
    KEY: ClassVar[str]
    NAME: ClassVar[str]

    def __init__(self, entries: Sequence[str]) -> None:
        for entry in entries:
            self._check(entry)
        self.entries = tuple(entries)
        self._ids = {entry: index + SPECIALS for index, entry in enumerate(self.entries)}
        if len(self._ids) != len(self.entries):
            duplicate = next(entry for entry, count in Counter(self.entries).items() if count > 1)
            raise ArgumentError(f"known {self.KEY} must be distinct, got {duplicate!r} twice")

    @property
    def size(self) -> int:
        """The number of ids, including the four special ids."""
        return SPECIALS + len(self.entries)

    def encode(self, text: str) -> list[int]:
        """Return the ids of the entries, UNK for unknown ones, without BOS and EOS."""
        return [self._ids.get(entry, UNK) for entry in self._split(text)]

    def decode(self, ids: Iterable[int]) -> str:
        """Join the entries up to the first EOS, without PAD, UNK and BOS.

        Raises:
            ArgumentError: an id is not below `size`.
        """
        return "".join(self.entries[token - SPECIALS] for token in text_ids(ids, self.size))

    def pieces(self, text: str, ids: Sequence[int] | None = None) -> list[str]:
        """Return the entries, including unknown ones, one per id of `encode(text)`."""
        return list(self._split(text)) if ids is None or UNK in ids else list(map(self.piece, ids))

    def piece(self, token: int) -> str:
        """Return the entry of an id."""
        return self.entries[token - SPECIALS] if token >= SPECIALS else ""

    def word(self, token: int) -> str | None:
        """Return the entry of an id without surrounding spaces; None if nothing is left."""
        return self.piece(token).strip() or None

    def save(self, path: Path) -> None:
        """Write the tokenizer as JSON with the version of the format."""
        write_tokenizer(path, self.FORMAT, VERSION, {self.KEY: self.entries})

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a file written by `save`.

        Raises:
            DataError: the file is missing, damaged or written by a newer version of attent.
        """
        entries = read_tokenizer(path, cls.FORMAT, VERSION).get(cls.KEY)
        if not isinstance(entries, list):
            raise DataError(f"{path} is damaged: its {cls.KEY} must be a list")
        with reraise(DataError, f"{path} is damaged", ArgumentError):
            return cls(entries)

    @classmethod
    def _check(cls, entry: str) -> None:
        if not isinstance(entry, str) or not entry:
            raise ArgumentError(f"a known {cls.NAME} must be a non-empty text, got {entry!r}")

    def _split(self, text: str) -> Iterable[str]:
        return text


class CharTokenizer(VocabularyTokenizer):
    """Tokenizer with one id per character, that is, per Unicode code point.

    Decoding restores the text if every character is known.

    Args:
        entries: the known characters; the first has the id 4.

    Raises:
        ArgumentError: an entry is not a single character, or occurs twice.
    """

    FORMAT, KEY, NAME = "attent character tokenizer", "characters", "character"

    @classmethod
    def learn(cls, lines: Iterable[str]) -> Self:
        """Learn every character of the lines, most frequent first, with ties in order of code points."""
        return cls(_by_frequency(Counter(chain.from_iterable(lines))))

    @classmethod
    def _check(cls, entry: str) -> None:
        if not isinstance(entry, str) or len(entry) != 1:
            raise ArgumentError(f"a known character must be one code point, got {entry!r}")


class WordTokenizer(VocabularyTokenizer):
    """Tokenizer with one id per word or sign and the space before it, so that joining pieces restores the text.

    The first word of a text is encoded as if it followed a space, so that it has the same id as elsewhere.

    Args:
        entries: the known words and signs, most of them preceded by a space; the first has the id 4.

    Raises:
        ArgumentError: an entry is empty or not a text, or occurs twice.
    """

    FORMAT, KEY, NAME = "attent word tokenizer", "words", "word"

    @classmethod
    def learn(cls, lines: Iterable[str], size: int | None = None) -> Self:
        """Learn the most frequent words of the lines, with ties in order of code points.

        Args:
            lines: the text to learn from.
            size: the number of ids, including special ids; by default every word that occurs at least twice gets one.

        Raises:
            ArgumentError: the size leaves no room for words.
        """
        if size is not None and size <= SPECIALS:
            raise ArgumentError(f"a vocabulary must have more than its {SPECIALS} special ids, got {size}")
        counts = Counter(chain.from_iterable(map(split_words, lines)))
        words = _by_frequency(counts)
        return cls([word for word in words if counts[word] >= MIN_COUNT] if size is None else words[: size - SPECIALS])

    def decode(self, ids: Iterable[int]) -> str:
        """Join the words up to the first EOS, without PAD, UNK and BOS, and without the space before the first word.

        Raises:
            ArgumentError: an id is not below `size`.
        """
        return super().decode(ids).removeprefix(" ")

    def _split(self, text: str) -> Iterable[str]:
        return split_words(text) if text else ()


def text_ids(ids: Iterable[int], size: int) -> Iterator[int]:
    """Iterate over ids up to the first EOS, without PAD, UNK and BOS.

    Args:
        ids: the output of a model.
        size: the vocabulary size.

    Raises:
        ArgumentError: an id is not below `size`.
    """
    for token in ids:
        if token == EOS:
            return
        if not 0 <= token < size:
            raise ArgumentError(f"a token id must be from 0 to {size - 1}, got {token}")
        if token >= SPECIALS:
            yield int(token)


def prompt_of(tokenizer: Tokenizer) -> tuple[int, ...]:
    """Return the tokens that `encode` puts before every text, such as a language token.

    Every translation begins with these tokens.
    """
    return getattr(tokenizer, "prompt", ())


def marks_of(tokenizer: Tokenizer) -> frozenset[int]:
    """Return the ids of tokens that `encode` may add to those of a text but that stand for no text."""
    return getattr(tokenizer, "marks", frozenset())


def sentence_ends(tokenizer: Tokenizer) -> tuple[int, ...]:
    """Return the ids of the tokens that end a sentence: pieces of text that end with one of `SENTENCE_ENDS`."""
    return tuple(token for token in range(tokenizer.size) if tokenizer.piece(token).strip().endswith(SENTENCE_ENDS))


def respell(text: str, tokenizer: Tokenizer) -> tuple[str, list[int]]:
    """Adapt the spelling of a text to the tokenizer, and encode it.

    A text without unknown pieces is unchanged. Otherwise letters and accents are composed, and each character that is
    still unknown is replaced by its compatibility form (Unicode's NFKC, such as `３` → `3`) or by a similar sign (such
    as another kind of space) if the tokenizer knows it. If this leaves fewer unknown pieces, spaces around the text are
    removed, repeated spaces are merged, and the first word is written in lower case, since its capital may only mark
    the beginning of a sentence.
    """
    ids = tokenizer.encode(text)
    if UNK not in ids:
        return text, ids
    composed = unicodedata.normalize("NFC", text)
    text = "".join(next(_known_variants(character, tokenizer), character) for character in composed)
    forms = [text, SPACES.sub(" ", text.strip(" "))]
    forms += [FIRST_WORD.sub(lambda word: word[0].lower(), form, count=1) for form in forms]
    # of equal forms, the first, which changes the text least
    return min(((form, tokenizer.encode(form)) for form in forms), key=lambda spelling: spelling[1].count(UNK))


def unknown_pieces(text: str, tokenizer: Tokenizer) -> list[str]:
    """Return the distinct pieces of a text that are unknown to the tokenizer, in order of occurrence."""
    pieces = zip(tokenizer.pieces(text), tokenizer.encode(text), strict=True)
    return list(dict.fromkeys(piece for piece, token in pieces if token == UNK))


def unicode_names(piece: str) -> str:
    """Return a piece of text followed by the Unicode names of its characters, which may be invisible."""
    names = " + ".join(unicodedata.name(character, f"U+{ord(character):04X}") for character in piece)
    return f"{piece!r} ({names})"


def write_tokenizer(path: Path, form: str, version: int, content: Mapping[str, Any]) -> None:
    """Write a tokenizer file: JSON that includes the name and version of its format.

    Args:
        path: the file.
        form: the name of the format, such as "attent word tokenizer".
        version: the version of the format.
        content: the other keys and their values.
    """
    Path(path).write_text(
        json.dumps({"format": form, "version": version, **content}) + "\n", encoding="utf-8", newline=""
    )


def read_tokenizer(path: Path, form: str, version: int) -> dict[str, Any]:
    """Read a file written by `write_tokenizer`.

    Raises:
        DataError: the file is missing, damaged, in a different format or written by a newer version of attent.
    """
    kind = form.removeprefix("attent ")
    with reraise(DataError, f"{path} cannot be read as a {kind}", OSError, DataError):
        content = read_json(path, MAX_FILE)
    if not isinstance(content, dict) or content.get("format") != form:
        raise DataError(f"{path} is not a {kind} (its format must be {form!r})")
    if content.get("version") != version:
        raise DataError(f"{path} has format version {content.get('version')!r}; this attent reads version {version}")
    return content


def _by_frequency(counts: Counter[str]) -> list[str]:
    return sorted(counts, key=lambda entry: (-counts[entry], entry))


def split_words(text: str) -> Iterable[str]:
    """Split a text into words and signs, with the space before each, and white space."""
    text = f" {text}"
    return PIECE.findall(text) if len(text) < LONG_TEXT else (match[0] for match in PIECE.finditer(text))


def _known_variants(character: str, tokenizer: Tokenizer) -> Iterator[str]:
    """Iterate over the variants of a character that the tokenizer knows, beginning with the character itself."""
    signs = [sign for group in VARIANTS if character in group for sign in group]
    for variant in (character, unicodedata.normalize("NFKC", character), *signs):
        if not unknown_pieces(variant, tokenizer):
            yield variant
