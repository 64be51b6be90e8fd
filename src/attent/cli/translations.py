"""Translations as `attent translate` prints them, and what it tells of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from attent.cli.output import say

if TYPE_CHECKING:
    from attent.search.search import Translation
    from attent.tasks.translation.engine import Engine
    from attent.tasks.translation.translator import Translator

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
    n_best_lists: Sequence[Sequence[Translation]],
    *,
    alignments: bool,
    replace_unknown: bool,
) -> list[list[AlignedTranslation]]:
    """Return the translations of each text as they are printed; only our own engine has attention to read."""
    from attent.alignment.pharaoh import pharaoh
    from attent.tasks.translation import alignment

    translations, pieces = [translation for n_best in n_best_lists for translation in n_best], None
    if own is not None and replace_unknown:
        texts = alignment.replace_unknown(own, translations)
        pieces = [of_tokens for _, of_tokens in texts]
        translations = [replace(item, text=text) for item, (text, _) in zip(translations, texts, strict=True)]
    links: list[str | None] = [None] * len(translations)
    if own is not None and alignments:
        links = [pharaoh(item.links) for item in alignment.Alignment.of(own, translations, pieces=pieces)]
    rows = (AlignedTranslation(item.text, of_item, item) for item, of_item in zip(translations, links, strict=True))
    return [[next(rows) for _ in n_best] for n_best in n_best_lists]


def text_line(number: int, aligned: AlignedTranslation, *, has_scores: bool) -> str:
    """Return a translation as it is printed: alone, or with the number of its source, from 0, and scores."""
    cells = [aligned.text] if aligned.alignment is None else [aligned.text, aligned.alignment]
    if has_scores:
        scores = aligned.translation
        parts = f"log_probability={scores.log_probability:.6f} length_penalty={scores.length_penalty:.6f}"
        cells = [str(number), *cells, parts, f"{scores.score:.6f}"]
    return SEPARATOR.join(cells)


def json_line(translations: Sequence[AlignedTranslation]) -> str:
    """Return the translations of a line as JSON, in nats."""
    source = translations[0].translation.source
    # a text that was not read has no probability
    is_read = bool(source.original) and source.refusal is None
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
        {"source": source.original, "translations": values}
        | ({} if source.refusal is None else {"error": source.refusal}),
        ensure_ascii=False,
    )


def report(
    number: int, aligned: AlignedTranslation, translator: Engine, check: Callable[[str], str | None] | None
) -> bool:
    """Report a line that was refused, unknown pieces, or a malformed translation.

    Return whether the translation is usable.
    """
    from attent.text.tokenizer import UNK, unicode_names, unknown_pieces

    source = aligned.translation.source
    if source.refusal is None and UNK in source.ids:
        pieces = unknown_pieces(source.text, translator.source_tokenizer)
        say(f"line {number}: unknown to this model: {', '.join(map(unicode_names, pieces))}")
    problem = source.refusal or (check(aligned.text) if check is not None and source else None)
    if problem is not None:
        say(f"line {number}: {problem}")
    return problem is None
