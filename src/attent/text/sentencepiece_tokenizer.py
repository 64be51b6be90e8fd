"""The tokenizer of a pretrained translator.

SentencePiece's pieces under ids of a list of its own, and tokens that mark a language.
"""

from __future__ import annotations

import base64
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Self

from attent.errors import ArgumentError, DataError
from attent.text.subword_tokenizer import SPACE, processor_of
from attent.text.tokenizer import EOS, SPECIALS, UNK, read_tokenizer, text_ids, write_tokenizer

FORMAT, VERSION = "attent sentencepiece tokenizer", 1
EOS_PIECE = "</s>"
# The language that some of Marian's models are told to write, at the beginning of a source.
LANGUAGE = re.compile(r">>.*?<<", re.DOTALL)


class SentencePieceTokenizer:
    """Tokenizer of a pretrained model: what its own tokenizer makes of a text, under our ids.

    SentencePiece normalizes and splits a text; a piece that the list lacks is UNK. Marks are tokens that no text spells
    and that add no text: the tokens of languages, and what else a vocabulary has beside pieces.

    Args:
        model: a SentencePiece model, serialized; its own ids do not matter.
        pieces: distinct texts; the first has the id 4.
        before: the marks that precede every text.
        after: the marks that follow every text, "</s>" among them being EOS. A text without pieces then has no tokens
            at all.
        marks: those of the pieces that are marks.
        has_language: whether a text may begin with a piece such as ">>fra<<", which is one token.
        has_last_space: whether space at the end of a text is a piece, "▁", though SentencePiece drops it.

    Raises:
        ArgumentError: the model is invalid, a piece is no text or occurs twice, or a mark is no piece.
    """

    def __init__(
        self,
        model: bytes,
        pieces: Sequence[str],
        *,
        before: Sequence[str] = (),
        after: Sequence[str] = (),
        marks: Sequence[str] = (),
        has_language: bool = False,
        has_last_space: bool = False,
    ) -> None:
        self._processor, self._model = processor_of(model), model
        if any(not isinstance(piece, str) or not piece for piece in pieces):
            raise ArgumentError("a piece must be a text")
        self._names = tuple(pieces)
        ids = {piece: index + SPECIALS for index, piece in enumerate(self._names)}
        if len(ids) != len(self._names):
            raise ArgumentError(f"pieces must be distinct, got {Counter(self._names).most_common(1)[0][0]!r} twice")
        if unknown := [mark for mark in (*before, *after, *marks) if mark not in ids and mark != EOS_PIECE]:
            raise ArgumentError(f"a mark must be one of the pieces, got {unknown[0]!r}")
        self._before, self._after, self._marks = tuple(before), tuple(after), tuple(marks)
        self._has_language, self._has_last_space = has_language, has_last_space
        self.prompt, self._end = (tuple(ids.get(mark, EOS) for mark in side) for side in (self._before, self._after))
        self.marks = frozenset((EOS, *(ids[mark] for mark in (*marks, *before, *after) if mark in ids)))
        self._ids = {piece: token for piece, token in ids.items() if token not in self.marks}

    @property
    def size(self) -> int:
        """The number of ids, with the four special ones."""
        return SPECIALS + len(self._names)

    @property
    def model(self) -> bytes:
        """The SentencePiece model, serialized."""
        return self._model

    def name(self, token: int) -> str:
        """Return the piece of an id that is none of the four special ones."""
        return self._names[token - SPECIALS]

    def encode(self, text: str) -> list[int]:
        """Return the ids of the pieces and of the marks around them, UNK for unknown pieces."""
        pieces = self._split(text)
        if not pieces and self._end:
            return []
        return [*self.prompt, *(self._ids.get(piece, UNK) for piece in pieces), *self._end]

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text up to the first EOS, without marks, PAD, UNK and BOS, and without spaces around it.

        Raises:
            ArgumentError: an id is not below `size`.
        """
        pieces = [self._names[token - SPECIALS] for token in text_ids(ids, self.size) if token not in self.marks]
        return self._processor.DecodePieces(pieces).replace(SPACE, " ").strip()

    def pieces(self, text: str, ids: Sequence[int] | None = None) -> list[str]:
        """Return the pieces and marks, one per id of `encode(text)`, with "▁" for a space."""
        if ids is not None and UNK not in ids:
            return [EOS_PIECE if token == EOS else self._names[token - SPECIALS] for token in ids]
        pieces = self._split(text)
        return [*self._before, *pieces, *self._after] if pieces or not self._end else []

    def piece(self, token: int) -> str:
        """Return the piece of an id, with "▁" for a space."""
        return self._names[token - SPECIALS] if token >= SPECIALS else ""

    def word(self, token: int) -> str | None:
        """Return a piece that begins with a space, without it, or one that has neither letter nor digit."""
        piece = "" if token in self.marks else self.piece(token)
        is_word = piece.startswith(SPACE) or not any(map(str.isalnum, piece))
        return piece.removeprefix(SPACE) or None if is_word else None

    def save(self, path: Path) -> None:
        """Write the tokenizer as JSON, with the version of its format and the model in base64."""
        content = {
            "sentencepiece": base64.b64encode(self._model).decode("ascii"),
            "pieces": self._names,
            "before": self._before,
            "after": self._after,
            "marks": self._marks,
            "has_language": self._has_language,
            "has_last_space": self._has_last_space,
        }
        write_tokenizer(path, FORMAT, VERSION, content)

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a file of `save`.

        Raises:
            DataError: the file is missing or damaged, or a newer attent wrote it.
        """
        content = read_tokenizer(path, FORMAT, VERSION)
        try:
            model = base64.b64decode(content["sentencepiece"], validate=True)
            pieces, *sides = (_texts(content, name) for name in ("pieces", "before", "after", "marks"))
            before, after, marks = sides
            options = {name: content.get(name) is True for name in ("has_language", "has_last_space")}
            return cls(model, pieces, before=before, after=after, marks=marks, **options)
        # ArgumentError and binascii.Error are ValueErrors
        except (ValueError, TypeError, KeyError) as error:
            raise DataError(f"{path} is damaged: {error}") from error

    def _split(self, text: str) -> list[str]:
        language = LANGUAGE.match(text) if self._has_language else None
        rest = text[language.end() :] if language else text
        pieces = [*([language[0]] if language else ()), *self._processor.EncodeAsPieces(rest)]
        # a letter shows whether what precedes it is space once normalized
        if self._has_last_space and pieces and self._processor.Normalize(text + "b").endswith((f"{SPACE}b", " b")):
            pieces.append(SPACE)
        return pieces


def _texts(content: dict[str, Any], name: str) -> list[str]:
    values = content[name]
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise ArgumentError(f"its {name} must be a list of texts")
    return values
