"""Texts cut into sentences, with everything between them kept, so that translations stand where the sentences stood."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

# A line's end is an end of a sentence too.
LINES = re.compile(r"(\r\n|\r|\n)")
# Characters that sentencex reads at a time: its time is quadratic in the quotation marks of a text.
BLOCK = 4_000


@dataclass(frozen=True)
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
