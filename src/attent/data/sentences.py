"""Texts cut into sentences, with everything between them kept, so that translations stand where the sentences stood."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

# A line's end is an end of a sentence too.
LINES = re.compile(r"(\r\n|\r|\n)")
EDGES = re.compile(r"\A(\s*)(.*?)(\s*)\Z", re.DOTALL)


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
    from sentencex import segment  # pyright: ignore[reportAttributeAccessIssue]

    between, sentences = [""], list[str]()
    for line in LINES.split(text):
        pieces = [line] if whole or not line.strip() else [*segment(language.partition("-")[0].partition("_")[0].lower(), line)]
        # a library that lost a character must not lose it here
        for piece in pieces if "".join(pieces) == line else [line]:
            match = EDGES.match(piece)
            assert match is not None
            before, sentence, after = match.groups()
            if any(map(str.isalnum, sentence)):
                between[-1] += before
                sentences.append(sentence)
                between.append(after)
            else:
                between[-1] += piece
    return SplitText(tuple(between), tuple(sentences))
