"""Sentence splitting that keeps the text between sentences, so that translations can replace them; language detection.

Sentences are split by sentencex. Languages are detected by py3langid, among those that the server translates from.
"""

import copy
import re
import threading
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

from attent.errors import needs

# The end of a line also ends a sentence.
LINES = re.compile(r"(\r\n|\r|\n)")
# Number of characters passed to sentencex at a time: its time is quadratic in the number of quotation marks.
BLOCK = 4_000


@dataclass(frozen=True, slots=True)
class SplitText:
    """A text as its sentences and the text before, between and after them.

    Args:
        between: N + 1 texts to copy unchanged: spaces, line ends, and pieces without letters or digits.
        sentences: N texts to translate.
    """

    between: tuple[str, ...]
    sentences: tuple[str, ...]

    def join(self, translations: Sequence[str]) -> str:
        """Return the text with each sentence replaced by its translation."""
        return self.between[0] + "".join(map("".join, zip(translations, self.between[1:], strict=True)))


def split_sentences(text: str, language: str, *, whole: bool = False) -> SplitText:
    """Split a text into sentences by sentencex's rules for its language.

    Args:
        text: any text; joining its own sentences restores it.
        language: the code of its language, such as en.
        whole: treat each line as a single sentence.
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
    """Return the sentences of a line; joined, they are the line."""
    with needs("splitting a text into sentences needs sentencex", "documents"):
        from sentencex import segment  # pyright: ignore[reportAttributeAccessIssue]

    sentences, begin = list[str](), 0
    while begin < len(line):
        block = line[begin : begin + BLOCK]
        pieces = [*segment(language, block)]
        # do not rely on the library to keep every character
        if "".join(pieces) != block:
            pieces = [block]
        if begin + len(block) < len(line):
            # the last sentence may continue in the next block; a block without a sentence end is split between words
            pieces = pieces[:-1] or [block[: block.rfind(" ") + 1] or block]
        sentences += pieces
        begin += sum(map(len, pieces))
    return sentences


class Detection(NamedTuple):
    """A detected language and the confidence in it, 0 to 100."""

    language: str
    confidence: float


class LanguageDetector:
    """Detects which of a server's languages a text is in.

    Args:
        languages: the codes to choose from, such as en or zh-Hans; languages that py3langid does not know cannot be
            detected.
    """

    def __init__(self, languages: Collection[str]) -> None:
        # the copy has its own set of languages; the model, which takes most of a second to load, is shared
        self._identifier = copy.copy(_identifier())
        supported = {*self._identifier.nb_classes}
        # several codes of one language cannot be distinguished: the first in order is used
        self._codes = {base: code for code in sorted(languages, reverse=True) if (base := _base(code)) in supported}
        self._only = sorted(languages)[0] if languages else "en"
        if len(self._codes) > 1:
            self._identifier.set_languages([*self._codes])
        self._lock = threading.Lock()

    def detect(self, text: str) -> list[Detection]:
        """Return the possible languages of a text, the most probable first.

        The confidence is 0 if the text has no letters.
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
