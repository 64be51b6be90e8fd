"""Documents translated by a run; their tags follow its attention."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from attent.alignment.forced_decoding import AttentionSelector
from attent.documents.inline import AlignedText
from attent.documents.pipeline import DocumentSentence, Refusal, Translate, cut_sentence, join_aligned
from attent.errors import DataError
from attent.search.search import SourceText, Translation
from attent.search.settings import GREEDY, SearchSettings
from attent.tasks.translation.alignment import Alignment
from attent.tasks.translation.translator import Translator
from attent.text.sentences import SplitText

# Translations of texts, the best first.
Search = Callable[[Sequence[SourceText]], list[list[Translation]]]
# Sentences translated at once, whose attention is in memory together.
SENTENCES = 512


def by_run(
    translator: Translator,
    settings: SearchSettings = GREEDY,
    *,
    selector: AttentionSelector | None = None,
    search: Search | None = None,
) -> Translate:
    """Return a function that translates sentences of documents by a run.

    Args:
        translator: with attention to the source.
        settings: of the search.
        selector: the attention to read; the run's own choice unless given, see `AttentionSelector.of_run`.
        search: translates texts; the translator's own, by the settings, unless given.

    Raises (the function):
        ArgumentError: the model has no attention to the source.
    """
    search = search or partial(translator.search, settings=settings)

    def translate(sentences: Sequence[DocumentSentence]) -> Iterator[AlignedText | Refusal]:
        for begin in range(0, len(sentences), SENTENCES):
            yield from _translated(translator, sentences[begin : begin + SENTENCES], search, selector)

    return translate


def language_of(translator: Translator) -> str | None:
    """Return the code of the language that a run reads, by whose rules lines are cut; None if it is not known."""
    return None if translator.config is None else translator.config.source_language


def _translated(
    translator: Translator, sentences: Sequence[DocumentSentence], search: Search, selector: AttentionSelector | None
) -> Iterator[AlignedText | Refusal]:
    """Yield the translation of each sentence; pieces that the model reads alike are translated once."""
    sources: dict[str, SourceText] = {}

    def check(text: str) -> None:
        source = sources[text] = sources.get(text) or translator.read(text)
        if source.refusal is not None:
            raise DataError(source.refusal)

    cuts: list[SplitText | Refusal] = []
    for sentence in sentences:
        try:
            cuts.append(cut_sentence(sentence.text, check))
        except DataError as error:
            cuts.append(Refusal(str(error)))
    has_tags: dict[str, bool] = {}
    for sentence, cut in zip(sentences, cuts, strict=True):
        for text in cut.sentences if isinstance(cut, SplitText) else ():
            has_tags[text] = has_tags.get(text, False) or sentence.has_tags
    n_best_lists = search([sources[text] for text in has_tags])
    translations = {text: n_best[0] for text, n_best in zip(has_tags, n_best_lists, strict=True)}
    linked = [text for text in translations if has_tags[text]]
    alignments = Alignment.of(translator, [translations[text] for text in linked], "characters", selector)
    spans = {text: alignment.spans for text, alignment in zip(linked, alignments, strict=True)}
    for cut in cuts:
        if isinstance(cut, Refusal):
            yield cut
        else:
            yield join_aligned(
                cut, [AlignedText(translations[text].text, spans.get(text, ())) for text in cut.sentences]
            )
