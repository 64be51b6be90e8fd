"""Aligned translations of sentences, joined into that of their text.

Without PyTorch, for processes that read and write documents alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from attent.documents.inline import AlignedText
from attent.text.sentences import SplitText
from attent.text.units import Span, units


def join_aligned(split: SplitText, translations: Sequence[AlignedText]) -> AlignedText:
    """Join the translations of a text's sentences, with links between the whole texts."""
    links = list[tuple[Span, Span]]()
    before = [len(split.between[0])] * 2
    for sentence, translation, between in zip(split.sentences, translations, split.between[1:], strict=True):
        links += [(_shifted(source, before[0]), _shifted(target, before[1])) for source, target in translation.links]
        before = [before[0] + len(sentence) + len(between), before[1] + len(translation.text) + len(between)]
    return AlignedText(split.join([translation.text for translation in translations]), links)


def untranslated(text: str) -> AlignedText:
    """Return a text as its own translation, each unit linked to itself."""
    return AlignedText(text, [(span, span) for span in units(text)])


def _shifted(span: Span, offset: int) -> Span:
    return Span(span.begin + offset, span.end + offset)
