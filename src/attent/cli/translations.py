"""Translations as `attent translate` prints them, and what it tells of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from attent.cli.output import say

if TYPE_CHECKING:
    from attent.search.search import Translation
    from attent.tasks.translation.translator import Engine, Translator

SEPARATOR = " ||| "


@dataclass(frozen=True)
class AlignedTranslation:
    """A translation as it is printed.

    Its text, perhaps with unknown pieces replaced, and its alignment if that was asked for.
    """

    text: str
    alignment: str | None
    translation: Translation


def align_translations(
    own: Translator | None,
    texts: Sequence[str],
    n_best_lists: Sequence[Sequence[Translation]],
    *,
    alignments: bool,
    replace_unknown: bool,
) -> list[list[AlignedTranslation]]:
    """Return the translations of each text as they are printed; only our own engine has attention to read."""
    from attent.alignment.aligner import word_indices
    from attent.alignment.forced_decoding import AttentionSelector, source_attention
    from attent.alignment.pharaoh import pharaoh
    from attent.alignment.unk_replacement import copy_unknown, token_texts
    from attent.alignment.word_links import extract_links, merge_to_words

    if own is None or not (alignments or replace_unknown):
        return [
            [AlignedTranslation(translation.text, None, translation) for translation in n_best]
            for n_best in n_best_lists
        ]
    source_tokenizer, target_tokenizer = own.source_tokenizer, own.target_tokenizer
    encoded = [source_tokenizer.encode(text) for text in texts]
    rows = [(row, translation.tokens) for row, n_best in enumerate(n_best_lists) for translation in n_best]
    selector = AttentionSelector.of_run(own.config)
    maps = iter(
        source_attention(own.model, [encoded[row] for row, _ in rows], [tokens for _, tokens in rows], selector)
    )
    aligned: list[list[AlignedTranslation]] = []
    for source, n_best in zip(texts, n_best_lists, strict=True):
        source_pieces = source_tokenizer.pieces(source)
        source_words = word_indices(source, source_pieces)
        aligned.append([])
        for translation, weights in zip(n_best, maps, strict=False):
            text, pieces = translation.text, token_texts(translation.tokens, target_tokenizer)
            if replace_unknown:
                text, pieces = copy_unknown(translation.tokens, target_tokenizer, weights, source_pieces)
            links = (
                extract_links(merge_to_words(weights, source_words, word_indices(text, pieces))) if alignments else None
            )
            aligned[-1].append(AlignedTranslation(text, None if links is None else pharaoh(links), translation))
    return aligned


def text_line(number: int, aligned: AlignedTranslation, *, has_scores: bool) -> str:
    """Return a translation as it is printed: alone, or with the number of its source, from 0, and scores."""
    cells = [aligned.text] if aligned.alignment is None else [aligned.text, aligned.alignment]
    if has_scores:
        scores = aligned.translation
        parts = f"log_probability={scores.log_probability:.6f} length_penalty={scores.length_penalty:.6f}"
        cells = [str(number), *cells, parts, f"{scores.score:.6f}"]
    return SEPARATOR.join(cells)


def json_line(line: str, translations: Sequence[AlignedTranslation], refusal: str | None) -> str:
    """Return the translations of a line as JSON, in nats."""
    # a text that was not read has no probability
    is_read = bool(line) and refusal is None
    values = [
        {"text": aligned.text}
        | {
            name: getattr(aligned.translation, name) if is_read else None
            for name in ("score", "log_probability", "length_penalty")
        }
        | ({} if aligned.alignment is None else {"alignment": aligned.alignment})
        for aligned in translations
    ]
    return json.dumps(
        {"source": line, "translations": values} | ({} if refusal is None else {"error": refusal}), ensure_ascii=False
    )


def report(
    number: int,
    text: str,
    translation: str,
    refusal: str | None,
    translator: Engine,
    check: Callable[[str], str | None] | None,
) -> bool:
    """Report a line that was refused, unknown pieces, or a malformed translation.

    Return whether the translation is usable.
    """
    from attent.text.tokenizer import unicode_names, unknown_pieces

    if refusal is None and (pieces := unknown_pieces(text, translator.source_tokenizer)):
        say(f"line {number}: unknown to this model: {', '.join(map(unicode_names, pieces))}")
    problem = refusal or (check(translation) if check is not None and text else None)
    if problem is not None:
        say(f"line {number}: {problem}")
    return problem is None
