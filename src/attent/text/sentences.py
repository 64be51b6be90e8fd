"""Sentences of a text, with everything between them kept, so that translations stand in their places; its language.

Sentences are by sentencex, and languages by py3langid, among those that the server translates from.
"""

from __future__ import annotations

import copy
import re
import threading
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

from attent.errors import needs

# A line's end is an end of a sentence too.
LINES = re.compile(r"(\r\n|\r|\n)")
# Characters that sentencex reads at a time: its time is quadratic in the quotation marks of a text.
BLOCK = 4_000


@dataclass(frozen=True, slots=True)
class SplitText:
    """A text as sentences and what stands before, between and after them.

    Args:
        between: N + 1 texts, copied as they are: spaces, line ends, and what has no letter or digit.
        sentences: N texts to translate.
    """

    between: tuple[str, ...]
    sentences: tuple[str, ...]

    def join(self, translations: Sequence[str]) -> str:
        """Return the text with each sentence's translation in its place."""
        parts = [self.between[0]]
        for translation, after in zip(translations, self.between[1:], strict=True):
            parts += translation, after
        return "".join(parts)


def split_sentences(text: str, language: str, *, whole: bool = False) -> SplitText:
    """Cut a text into sentences, by the rules of sentencex for its language.

    Args:
        text: any text; `join` of its own sentences is the same text.
        language: its code, such as en.
        whole: whether each line is taken as a single sentence.
    """
    between, sentences = [list[str]()], list[str]()
    for line in LINES.split(text):
        for piece in (
            [line]
            if whole or not line.strip()
            else _sentences(line, language.partition("-")[0].partition("_")[0].lower())
        ):
            if any(map(str.isalnum, piece)):
                begin, end = len(piece) - len(piece.lstrip()), len(piece.rstrip())
                between[-1].append(piece[:begin])
                sentences.append(piece[begin:end])
                between.append([piece[end:]])
            else:
                between[-1].append(piece)
    return SplitText(tuple(map("".join, between)), tuple(sentences))


def _sentences(line: str, language: str) -> list[str]:
    """Return the sentences of a line, which together are the line."""
    with needs("to cut a text into sentences needs sentencex", "documents"):
        from sentencex import segment  # pyright: ignore[reportAttributeAccessIssue]

    sentences, begin = list[str](), 0
    while begin < len(line):
        block = line[begin : begin + BLOCK]
        pieces = [*segment(language, block)]
        # a library that lost a character must not lose it here
        if "".join(pieces) != block:
            pieces = [block]
        if begin + len(block) < len(line):
            # the last one may go on in the next block; a block without an end is cut between words
            pieces = pieces[:-1] or [block[: block.rfind(" ") + 1] or block]
        sentences += pieces
        begin += sum(map(len, pieces))
    return sentences


class Detection(NamedTuple):
    """A language and how sure it is, 0 to 100."""

    language: str
    confidence: float


class LanguageDetector:
    """Detects languages, among those of a server.

    Args:
        languages: the codes to choose from, such as en or zh-Hans; those that py3langid does not know cannot be
            detected.
    """

    def __init__(self, languages: Collection[str]) -> None:
        # a copy may choose languages of its own; the model, which takes most of a second to read, is shared
        self._identifier = copy.copy(_identifier())
        supported = {*self._identifier.nb_classes}
        # several codes of one language are told apart by nothing here: the first in order is meant
        self._codes = {base: code for code in sorted(languages, reverse=True) if (base := _base(code)) in supported}
        self._only = sorted(languages)[0] if languages else "en"
        if len(self._codes) > 1:
            self._identifier.set_languages([*self._codes])
        self._lock = threading.Lock()

    def detect(self, text: str) -> list[Detection]:
        """Return the languages of a text, the most probable first.

        The confidence is 0 where the text has no letters.
        """
        if not any(map(str.isalpha, text)):
            return [Detection(self._only, 0.0)]
        with self._lock:
            ranked = self._identifier.rank(text)
        detections = [
            Detection(self._codes[code], round(100 * float(share), 1)) for code, share in ranked if code in self._codes
        ]
        return [best for best in detections if best.confidence >= 1] or detections[:1] or [Detection(self._only, 0.0)]


@cache
def _identifier() -> Any:
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)


def _base(code: str) -> str:
    return code.replace("_", "-").partition("-")[0].lower()
