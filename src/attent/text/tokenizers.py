"""Kinds of tokenizers by name, learning a tokenizer from text, and subword tokenizers based on SentencePiece.

Subword pieces are learned from text or taken from a pretrained translator, which has its own list of ids for
SentencePiece's pieces and language tokens.
"""

import base64
import io
import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from random import Random
from typing import Any, ClassVar, Self

from attent.errors import ArgumentError, DataError, check_known
from attent.text.tokenizer import (
    BOS,
    EOS,
    PAD,
    SPECIALS,
    UNK,
    VERSION,
    CharTokenizer,
    Tokenizer,
    WordTokenizer,
    read_tokenizer,
    text_ids,
    write_tokenizer,
)

# Maximum number of lines to learn from: more lines hardly change the pieces, but cost time and memory.
SAMPLE_SIZE = 200_000
# The share of all characters covered by characters with their own piece; the rarest are written as bytes.
COVERAGE = 0.9995

# SentencePiece writes a space as "▁": to distinguish the two, a "▁" in the text is escaped with two code points to
# which Unicode assigns no characters, and so is the first of these.
ESCAPE, LOW_LINE = "\U0010ffff", "\U0010fffe"
ESCAPED = str.maketrans({"▁": ESCAPE + LOW_LINE, ESCAPE: ESCAPE + ESCAPE})
SPACE = "▁"
ESCAPES = re.compile(f"{ESCAPE}([{ESCAPE}{LOW_LINE}])")
# Number of byte ids; the number of pieces grows with the square root of the number of lines: about 5,000 for 29,000
# lines, and at most 16,000.
BYTES, PIECES_PER_ROOT, MAX_PIECES = 256, 30, 16_000
SENTENCEPIECE_FORMAT = "attent sentencepiece tokenizer"
EOS_PIECE, UNK_PIECE = "</s>", "<unk>"
# The token at the beginning of a source that selects the target language of some Marian models.
LANGUAGE = re.compile(r">>.*?<<", re.DOTALL)


class SubwordTokenizer:
    """Tokenizer with ids for frequent words, for pieces of rarer words and for the bytes of unknown characters.

    Tokenization is lossless. Text is used as is: no normalization or trimming of spaces. Base class of `BpeTokenizer`
    and `UnigramTokenizer`, which learn and choose pieces differently.

    Args:
        model: a serialized SentencePiece model.

    Raises:
        ArgumentError: the model is invalid, its first four ids are not PAD, UNK, BOS and EOS, or a piece is not text.
    """

    KIND: ClassVar[str]

    def __init__(self, model: bytes) -> None:
        self._processor = processor = processor_of(model)
        if (processor.pad_id(), processor.unk_id(), processor.bos_id(), processor.eos_id()) != (PAD, UNK, BOS, EOS):
            raise ArgumentError(
                f"the ids of PAD, UNK, BOS and EOS must be {PAD}, {UNK}, {BOS} and {EOS} in the SentencePiece model"
            )
        self._model = model

    @classmethod
    def learn(cls, lines: Iterable[str], size: int) -> Self:
        """Learn from all lines, or from a fixed random sample of 200,000 if there are more.

        Args:
            lines: the text to learn from.
            size: the number of ids, including special ids and 256 bytes; a small text yields fewer.

        Raises:
            ArgumentError: the size is too small for the characters of the text.
            DataError: there is no text, or none that pieces can be learned from.
        """
        import sentencepiece

        sample = [line.translate(ESCAPED) for line in _reservoir_sample(lines) if line.strip()]
        if not sample:
            raise DataError("there is no text to learn a tokenizer from")
        model = io.BytesIO()
        try:
            sentencepiece.SentencePieceTrainer.Train(
                sentence_iterator=iter(sample),
                model_writer=model,
                model_type=cls.KIND,
                vocab_size=size,
                hard_vocab_limit=False,
                normalization_rule_name="identity",
                remove_extra_whitespaces=False,
                byte_fallback=True,
                character_coverage=COVERAGE,
                pad_id=PAD,
                unk_id=UNK,
                bos_id=BOS,
                eos_id=EOS,
                num_threads=1,
                minloglevel=3,
            )
        except RuntimeError as error:
            if minimum := re.search(r"required_chars\. \d+ vs (\d+)", str(error)):
                raise ArgumentError(
                    f"a vocabulary for the characters of this text must be at least {minimum[1]}, got {size}"
                ) from error
            raise DataError(f"no {cls.KIND} tokenizer can be learned from this text: {error}") from error
        return cls(model.getvalue())

    @property
    def size(self) -> int:
        """The number of ids, with the four special ones."""
        return self._processor.GetPieceSize()

    @property
    def model(self) -> bytes:
        """The SentencePiece model, serialized."""
        return self._model

    def name(self, token: int) -> str:
        """Return SentencePiece's name for an id, such as `<0x0A>` for a byte."""
        return self._processor.IdToPiece(token)

    def encode(self, text: str) -> list[int]:
        """Return the ids of the most probable pieces, without BOS and EOS."""
        return self._processor.EncodeAsIds(text.translate(ESCAPED))

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text up to the first EOS, without PAD, UNK and BOS.

        Raises:
            ArgumentError: an id is not below `size`.
        """
        text = self._processor.DecodeIds(list(text_ids(ids, self.size)))
        return ESCAPES.sub(lambda escape: ESCAPE if escape[1] == ESCAPE else "▁", text)

    def pieces(self, text: str, ids: Sequence[int] | None = None) -> list[str]:
        """Return the pieces, one per id of `encode(text)`, with "▁" for a space and `<0x0A>` for a byte."""
        # an unknown piece is spelled as in the text; its id does not tell
        if ids is None or UNK in ids:
            return self._processor.EncodeAsPieces(text.translate(ESCAPED))
        return self._processor.IdToPiece(list(ids))

    def piece(self, token: int) -> str:
        """Return the piece of an id, with "▁" for a space; empty for a special id or a byte."""
        processor = self._processor
        return "" if token <= EOS or processor.IsByte(token) else processor.IdToPiece(token)

    def word(self, token: int) -> str | None:
        """Return a piece that begins with a space, without it, or one that has neither letter nor digit."""
        return _word_of(self.piece(token))

    def save(self, path: Path) -> None:
        """Write the tokenizer as JSON with the version of the format and the model in base64."""
        write_tokenizer(path, self._format(), VERSION, {"sentencepiece": base64.b64encode(self._model).decode("ascii")})

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a file written by `save`.

        Raises:
            DataError: the file is missing, damaged or written by a newer version of attent.
        """
        model = read_tokenizer(path, cls._format(), VERSION).get("sentencepiece")
        try:
            return cls(base64.b64decode(model, validate=True) if isinstance(model, str) else b"-")
        # ArgumentError and binascii.Error are ValueErrors
        except ValueError as error:
            raise DataError(f"{path} is damaged: {error}") from error

    @classmethod
    def _format(cls) -> str:
        return f"attent {cls.KIND} tokenizer"


class BpeTokenizer(SubwordTokenizer):
    """Subword tokenizer based on byte-pair encoding.

    Repeatedly merges the most frequent pair of pieces (Sennrich et al. 2016, arXiv:1508.07909).
    """

    KIND = "bpe"


class UnigramTokenizer(SubwordTokenizer):
    """Subword tokenizer based on a unigram model: chooses the most probable pieces (Kudo 2018, arXiv:1804.10959)."""

    KIND = "unigram"


# both tokenizers of a translator often have the same model
@lru_cache(maxsize=1)
def processor_of(model: bytes) -> Any:
    """Return a SentencePiece processor for a serialized model; it must not be changed.

    Raises:
        ArgumentError: the model is invalid, or a piece is not text.
    """
    import sentencepiece

    processor = sentencepiece.SentencePieceProcessor()
    try:
        processor.LoadFromSerializedProto(model)
    # UnicodeDecodeError if SentencePiece's own message is not UTF-8
    except (RuntimeError, UnicodeDecodeError) as error:
        raise ArgumentError(f"not a SentencePiece model ({len(model):,} bytes)") from error
    try:
        processor.IdToPiece(list(range(processor.GetPieceSize())))
    except UnicodeDecodeError as error:
        raise ArgumentError(f"a piece of the SentencePiece model is not UTF-8: {error}") from error
    return processor


def _reservoir_sample(lines: Iterable[str]) -> list[str]:
    """Sample up to 200,000 lines uniformly (reservoir sampling: Vitter 1985, algorithm R)."""
    random, sample = Random(0), []
    for number, line in enumerate(lines):
        if number < SAMPLE_SIZE:
            sample.append(line)
        elif (index := int(random.random() * (number + 1))) < SAMPLE_SIZE:
            sample[index] = line
    return sample


class SentencePieceTokenizer:
    """Tokenizer of a pretrained model: yields the pieces of the model's own tokenizer, with attent's ids.

    SentencePiece normalizes and splits a text; a piece that is not in the list becomes UNK. Marks are tokens that do
    not stand for text: language tokens and other entries of the vocabulary that are not pieces.

    Args:
        model: a serialized SentencePiece model; its own ids do not matter.
        pieces: distinct texts; the first has the id 4.
        before: the marks that precede every text.
        after: the marks that follow every text; "</s>" means EOS. With such marks, a text without pieces has no tokens.
        marks: those of the pieces that are marks.
        has_language: whether a text may begin with a single token such as ">>fra<<".
        has_last_space: whether space at the end of a text is a piece, "▁", even though SentencePiece drops it.

    Raises:
        ArgumentError: the model is invalid, a piece is not a text or occurs twice, or a mark is not one of the pieces.
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
        self._names, ids = _ids_of(tuple(pieces))
        if unknown := [mark for mark in (*before, *after, *marks) if mark not in ids and mark != EOS_PIECE]:
            raise ArgumentError(f"a mark must be one of the pieces, got {unknown[0]!r}")
        self._before, self._after, self._marks = tuple(before), tuple(after), tuple(marks)
        self._has_language, self._has_last_space = has_language, has_last_space
        self.prompt, self._end = (tuple(ids.get(mark, EOS) for mark in side) for side in (self._before, self._after))
        self.marks = frozenset((EOS, *(ids[mark] for mark in (*marks, *before, *after) if mark in ids)))
        own = self.marks - {EOS}
        self._ids = {piece: token for piece, token in ids.items() if token not in own} if own else ids

    @property
    def size(self) -> int:
        """The number of ids, with the four special ones."""
        return SPECIALS + len(self._names)

    @property
    def model(self) -> bytes:
        """The SentencePiece model, serialized."""
        return self._model

    def name(self, token: int) -> str:
        """Return the piece of an id other than the four special ids."""
        return self._names[token - SPECIALS]

    def encode(self, text: str) -> list[int]:
        """Return the ids of the pieces, UNK for unknown ones, and of the marks before and after them."""
        pieces = self._split(text)
        if not pieces and self._end:
            return []
        return [*self.prompt, *(self._ids.get(piece, UNK) for piece in pieces), *self._end]

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text up to the first EOS, without marks, PAD, UNK, BOS and surrounding spaces.

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
        """Return the piece of an id, with "▁" for a space; empty for a special id."""
        return self._names[token - SPECIALS] if token >= SPECIALS else ""

    def word(self, token: int) -> str | None:
        """Return a piece that begins with a space, without it, or one that has neither letter nor digit."""
        return None if token in self.marks else _word_of(self.piece(token))

    def save(self, path: Path) -> None:
        """Write the tokenizer as JSON with the version of the format and the model in base64."""
        content = {
            "sentencepiece": base64.b64encode(self._model).decode("ascii"),
            "pieces": self._names,
            "before": self._before,
            "after": self._after,
            "marks": self._marks,
            "has_language": self._has_language,
            "has_last_space": self._has_last_space,
        }
        write_tokenizer(path, SENTENCEPIECE_FORMAT, VERSION, content)

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a file written by `save`.

        Raises:
            DataError: the file is missing, damaged or written by a newer version of attent.
        """
        content = read_tokenizer(path, SENTENCEPIECE_FORMAT, VERSION)
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
        # appending a letter shows whether the end of the text is a space after normalization
        if self._has_last_space and pieces and self._processor.Normalize(text + "b").endswith((f"{SPACE}b", " b")):
            pieces.append(SPACE)
        return pieces


# both tokenizers of a translator often have the same pieces
@lru_cache(maxsize=1)
def _ids_of(pieces: tuple[str, ...]) -> tuple[tuple[str, ...], dict[str, int]]:
    """Return distinct pieces and their ids; neither must be changed."""
    if not all(isinstance(piece, str) and piece for piece in pieces):
        raise ArgumentError("a piece must be a non-empty text")
    ids = {piece: index + SPECIALS for index, piece in enumerate(pieces)}
    if len(ids) != len(pieces):
        raise ArgumentError(f"pieces must be distinct, got {Counter(pieces).most_common(1)[0][0]!r} twice")
    return pieces, ids


def _word_of(piece: str) -> str | None:
    is_word = piece.startswith(SPACE) or not any(map(str.isalnum, piece))
    return piece.removeprefix(SPACE) or None if is_word else None


def _texts(content: dict[str, Any], name: str) -> list[str]:
    values = content[name]
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise ArgumentError(f"its {name} must be a list of texts")
    return values


LEARNT: dict[str, type[Tokenizer]] = {
    "char": CharTokenizer,
    "word": WordTokenizer,
    "bpe": BpeTokenizer,
    "unigram": UnigramTokenizer,
}
# The kinds of tokenizers in runs, including imported runs.
KINDS = LEARNT | {"sentencepiece": SentencePieceTokenizer}


def learn(kind: str, lines: Iterable[str], size: int | None = None) -> Tokenizer:
    """Learn a tokenizer from text.

    Args:
        kind: char, word, bpe or unigram.
        lines: the text; may be iterated over twice, so it must not be an iterator.
        size: the number of ids; `suitable_size` of the text by default for bpe and unigram. A char tokenizer takes no
            size, since it has an id for every character.

    Raises:
        ArgumentError: the size is not possible for this text, or is given for a char tokenizer.
        UnknownNameError: the kind is unknown.
        DataError: there is no text.
    """
    check_known("tokenizer", kind, LEARNT)
    if kind == "char" and size is not None:
        raise ArgumentError(f"a char tokenizer has an id for every character and takes no vocabulary size, got {size}")
    if kind == "char":
        return CharTokenizer.learn(lines)
    if kind == "word":
        return WordTokenizer.learn(lines, size)
    return (BpeTokenizer if kind == "bpe" else UnigramTokenizer).learn(lines, size or suitable_size(lines))


def suitable_size(lines: Iterable[str]) -> int:
    """Return a suitable vocabulary size for subword pieces of a text.

    It counts special ids, bytes, the distinct characters, and a number of pieces that depends on the number of lines.
    """
    characters: set[str] = set()
    count = 0
    for line in lines:
        characters.update(line)
        count += 1
    return SPECIALS + BYTES + len(characters) + min(math.ceil(PIECES_PER_ROOT * math.sqrt(count)), MAX_PIECES)
