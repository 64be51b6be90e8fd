"""What a person types, brought nearer to what a model has read; and what of it the model has never seen."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator

from attent.data.tokenizer import UNK, Tokenizer

# Signs that keyboards and texts use one for the other.
ALIKE = (" \u00a0\u202f\u2009", "-‐‑–—", "'’ʼ‘", ".。．", ",，、،")


def as_known(text: str, tokenizer: Tokenizer) -> str:
    """The text, with characters that the tokenizer does not know written in another way that it knows.

    A text that the tokenizer knows whole stays as it is. Otherwise letters and accents are put together, and what is
    still unknown gives way to its plain form (Unicode's NFKC, as `３` → `3`) or to a sign like it (such as one space for
    another), if the tokenizer knows that.
    """
    if not unknown(text, tokenizer):
        return text
    composed = unicodedata.normalize("NFC", text)
    return "".join(next(_known(character, tokenizer), character) for character in composed)


def unknown(text: str, tokenizer: Tokenizer) -> list[str]:
    """The pieces of a text that the tokenizer does not know, each once, in order."""
    found = zip(tokenizer.pieces(text), tokenizer.encode(text), strict=True)
    return list(dict.fromkeys(piece for piece, token in found if token == UNK))


def named(piece: str) -> str:
    """A piece of text with the Unicode names of its characters, for those that cannot be seen."""
    names = " + ".join(unicodedata.name(character, f"U+{ord(character):04X}") for character in piece)
    return f"{piece!r} ({names})"


def _known(character: str, tokenizer: Tokenizer) -> Iterator[str]:
    """The ways to write a character that the tokenizer knows, itself first."""
    like = [sign for signs in ALIKE if character in signs for sign in signs]
    for other in (character, unicodedata.normalize("NFKC", character), *like):
        if not unknown(other, tokenizer):
            yield other
