"""Documents translated by a run; their tags follow its attention."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from attent.alignment.forced_decoding import AttentionSelector
from attent.documents.inline import AlignedText
from attent.documents.pipeline import DocumentSentence, Refusal, Translate, cut_sentence, join_aligned
from attent.errors import DataError
from attent.search.search import Translation
from attent.search.settings import GREEDY, SearchSettings
from attent.tasks.translation.links import translation_spans
from attent.tasks.translation.translator import Translator
from attent.text.sentences import SplitText
from attent.text.tokenizer import respell
from attent.text.units import Span, units

# Translations of texts, the best first.
Search = Callable[[Sequence[str]], list[list[Translation]]]
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

    def check(text: str) -> None:
        if reason := translator.refusal(respell(text, translator.source_tokenizer)):
            raise DataError(reason)

    def cut(sentence: DocumentSentence) -> SplitText | Refusal:
        try:
            return cut_sentence(sentence.text, check)
        except DataError as error:
            return Refusal(str(error))

    def translate(sentences: Sequence[DocumentSentence]) -> Iterator[AlignedText | Refusal]:
        for begin in range(0, len(sentences), SENTENCES):
            batch = sentences[begin : begin + SENTENCES]
            cuts = [cut(sentence) for sentence in batch]
            pieces = [
                DocumentSentence(text, sentence.has_tags)
                for sentence, split in zip(batch, cuts, strict=True)
                if isinstance(split, SplitText)
                for text in split.sentences
            ]
            aligned = _translated(translator, pieces, search, selector)
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
    translator: Translator, sentences: Sequence[DocumentSentence], search: Search, selector: AttentionSelector | None
) -> dict[DocumentSentence, AlignedText]:
    """Return the translation of each sentence; sentences that the model reads alike are translated once."""
    read = {sentence: respell(sentence.text, translator.source_tokenizer) for sentence in sentences}
    texts = list(dict.fromkeys(read.values()))
    translations = dict(zip(texts, (n_best[0] for n_best in search(texts)), strict=True))
    linked = list(dict.fromkeys(text for sentence, text in read.items() if sentence.has_tags))
    spans = translation_spans(translator, linked, [translations[text] for text in linked], selector)
    links = dict(zip(linked, spans, strict=True))
    return {
        sentence: AlignedText(
            translations[text].text, _links_of(sentence.text, text, links[text]) if sentence.has_tags else ()
        )
        for sentence, text in read.items()
    }


def _links_of(text: str, read: str, links: Sequence[tuple[Span, Span]]) -> Sequence[tuple[Span, Span]]:
    """Return the links of a text, given those of how the model reads it; none where words were joined or cut."""
    if text == read:
        return links
    spans, known = units(text), units(read)
    own = dict(zip(known, spans, strict=True)) if len(known) == len(spans) else {}
    return [(own[source], target) for source, target in links if source in own]
