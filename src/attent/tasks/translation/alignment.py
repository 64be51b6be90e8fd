"""Alignment of texts with their translations, and replacement of unknown tokens by source pieces."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Literal

from attent.alignment.aligner import TokenizedPair, align, piece_starts, text_pieces, word_indices
from attent.alignment.forced_decoding import AttentionSelector
from attent.search.search import Translation
from attent.tasks.translation.translator import Translator
from attent.text.text import Link
from attent.text.tokenizer import SPECIALS, UNK, Tokenizer
from attent.text.units import Span, units

Unit = Literal["words", "characters", "tokens"]


@dataclass(frozen=True)
class Alignment:
    """Links between units of a text and units of its translation.

    Args:
        links: zero-based (unit of the text, unit of the translation) pairs, in the order of the translation.
        spans: the links as (character span of the original text, character span of the translation), only for the unit
            "characters"; empty if the text as read by the model has a different number of units.
    """

    links: Sequence[Link]
    spans: Sequence[tuple[Span, Span]] = ()

    @classmethod
    def of(
        cls,
        translator: Translator,
        translations: Sequence[Translation],
        unit: Unit = "words",
        selector: AttentionSelector | None = None,
        *,
        pieces: Sequence[Sequence[str]] | None = None,
    ) -> list[Alignment]:
        """Align translations with their sources.

        The model is watched only if it cannot compute the attention separately.

        Args:
            translator: the translator that wrote the translations.
            translations: the translations, with their sources.
            unit: unit of the links: space-separated words; words and punctuation marks, as character spans; or tokens.
            selector: layer, head and meaning of the rows; by default the run's own choice, see
                `AttentionSelector.of_run`.
            pieces: the text of each translation's tokens; by default as written by the tokenizer.

        Raises:
            ArgumentError: the model has no attention to the source, or no such layer or head.
        """
        texts = pieces or [token_texts(item.tokens, translator.target_tokenizer) for item in translations]
        pairs: list[TokenizedPair] = []
        for item, target_texts in zip(translations, texts, strict=True):
            source = item.source
            if unit == "tokens":
                pairs.append(TokenizedPair(source.ids, item.tokens, range(len(source.ids)), range(len(item.tokens))))
                continue
            indices = word_indices if unit == "words" else _unit_indices
            source_units = indices(source.text, text_pieces(source.text, source.ids, translator.source_tokenizer))
            pairs.append(TokenizedPair(source.ids, item.tokens, source_units, indices(item.text, target_texts)))
        alignments = align(translator.model, pairs, selector or AttentionSelector.of_run(translator.config))
        return [
            cls(links, _spans(links, item) if unit == "characters" else ())
            for links, item in zip(alignments, translations, strict=True)
        ]


def replace_unknown(translator: Translator, translations: Sequence[Translation]) -> list[tuple[str, list[str]]]:
    """Return the text of each translation and of its tokens, with source pieces in place of unknown tokens."""
    tokenizer = translator.target_tokenizer
    results = [(item.text, token_texts(item.tokens, tokenizer)) for item in translations]
    rows = [row for row, item in enumerate(translations) if UNK in item.tokens]
    alignments = Alignment.of(translator, [translations[row] for row in rows], "tokens")
    for row, alignment in zip(rows, alignments, strict=True):
        item = translations[row]
        pieces = translator.source_tokenizer.pieces(item.source.text, item.source.ids)
        results[row] = copy_unknown(item.tokens, tokenizer, alignment.links, pieces)
    return results


def _spans(links: Sequence[Link], translation: Translation) -> list[tuple[Span, Span]]:
    source, target = units(translation.source.original), units(translation.text)
    has_all = translation.source.original == translation.source.text or len(source) == len(
        units(translation.source.text)
    )
    return [(source[first], target[second]) for first, second in links] if has_all else []


def _unit_indices(text: str, pieces: Sequence[str]) -> list[int | None]:
    """Return the index of the unit in which each piece begins; None for a piece outside units."""
    spans = units(text)
    begins = [span.begin for span in spans]
    indices = ((start, bisect_right(begins, start or 0) - 1) for start in piece_starts(text, pieces))
    return [None if start is None or index < 0 or start >= spans[index].end else index for start, index in indices]


def token_texts(tokens: Sequence[int], target: Tokenizer) -> list[str]:
    """Return the text that each token adds, including its leading space, if any; empty for UNK."""
    context = _context(target)
    texts = {token: _text_after(context, [token], target) for token in set(tokens)}
    return [texts[token] for token in tokens]


def copy_unknown(
    tokens: Sequence[int], target: Tokenizer, links: Sequence[Link], source: Sequence[str]
) -> tuple[str, list[str]]:
    """Replace each unknown token of a translation with the source piece that it is linked to.

    Source: Luong et al. (2015), §4.2, arXiv 1508.04025, who copy source words.

    Args:
        tokens: the tokens of the translation.
        target: the target tokenizer.
        links: (source token, target token) pairs.
        source: the pieces of the source tokens.

    Returns:
        The text, and the text of each token in it.
    """
    texts = token_texts(tokens, target)
    for piece, position in ((source[first], second) for first, second in links if tokens[second] == UNK):
        # SentencePiece writes a space as "▁"
        texts[position] = piece.replace("▁", " ") if len(piece) > 1 else piece
    result = ""
    for is_unknown, run in groupby(zip(tokens, texts, strict=True), key=lambda item: item[0] == UNK):
        ids, copies = zip(*run, strict=True)
        if is_unknown:
            # at the beginning a word needs no space before it
            result += "".join(copies) if result or len(copies[0]) == 1 else "".join(copies).removeprefix(" ")
        else:
            result += _text_after(_context(target), ids, target) if result else target.decode(ids)
    return result, texts


def _context(target: Tokenizer) -> list[int]:
    """Return a token to decode before others, so that their leading spaces are kept."""
    return next(([token] for token in range(SPECIALS, target.size) if target.decode([token]).strip()), [])


def _text_after(context: list[int], tokens: Sequence[int], target: Tokenizer) -> str:
    """Return the text that tokens add after a context."""
    return target.decode([*context, *tokens]).removeprefix(target.decode(context))
