"""Documents translated by a run; their tags follow its attention."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
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

    def cut(sentence: DocumentSentence, sources: dict[str, SourceText]) -> SplitText | Refusal:
        def read(text: str) -> None:
            if text not in sources:
                sources[text] = translator.read(text)
            if (refusal := sources[text].refusal) is not None:
                raise DataError(refusal)

        try:
            return cut_sentence(sentence.text, read)
        except DataError as error:
            return Refusal(str(error))

    def translate(sentences: Sequence[DocumentSentence]) -> Iterator[AlignedText | Refusal]:
        for begin in range(0, len(sentences), SENTENCES):
            batch = sentences[begin : begin + SENTENCES]
            sources = dict[str, SourceText]()
            cuts = [cut(sentence, sources) for sentence in batch]
            pieces = [
                DocumentSentence(text, sentence.has_tags)
                for sentence, split in zip(batch, cuts, strict=True)
                if isinstance(split, SplitText)
                for text in split.sentences
            ]
            aligned = _translated(translator, pieces, sources, search, selector)
            for sentence, split in zip(batch, cuts, strict=True):
                if isinstance(split, Refusal):
                    yield split
                else:
                    yield join_aligned(
                        split, [aligned[DocumentSentence(text, sentence.has_tags)] for text in split.sentences]
                    )

    return translate


def language_of(translator: Translator) -> str | None:
    """Return the code of the language that a run reads, by whose rules lines are cut; None if it is not known."""
    return None if translator.config is None else translator.config.source_language


def _translated(
    translator: Translator,
    sentences: Sequence[DocumentSentence],
    sources: Mapping[str, SourceText],
    search: Search,
    selector: AttentionSelector | None,
) -> dict[DocumentSentence, AlignedText]:
    """Return the translation of each sentence; sentences that the model reads alike are translated once."""
    read = {sentence: sources[sentence.text] for sentence in sentences}
    distinct = {source.text: source for source in read.values()}
    translations = dict(zip(distinct, (n_best[0] for n_best in search([*distinct.values()])), strict=True))
    items = {sentence: replace(translations[source.text], source=source) for sentence, source in read.items()}
    marked = [sentence for sentence in items if sentence.has_tags]
    alignments = Alignment.of(translator, [items[sentence] for sentence in marked], "characters", selector)
    spans = {sentence: alignment.spans for sentence, alignment in zip(marked, alignments, strict=True)}
    return {sentence: AlignedText(item.text, spans.get(sentence, ())) for sentence, item in items.items()}
