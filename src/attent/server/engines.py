"""The translation of a server's batches, by a run or by two runs through a third language."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeVar

from attent.documents.inline import untranslated
from attent.search.search import SourceText, Translation
from attent.search.settings import SearchSettings
from attent.server.catalog import ServedRun
from attent.server.errors import RequestError, invalid
from attent.tasks.translation.alignment import Alignment
from attent.tasks.translation.confidence import DECIMALS, NOT_CALIBRATED, Confidence
from attent.tasks.translation.glossary import Glossary
from attent.tasks.translation.term_search import TermSearch
from attent.text.text import Link
from attent.text.units import Span

# Maximum tokens of a sentence to align: the weights take memory proportional to the product of both lengths.
MAX_ALIGNED = 2_048
# A word or a character span.
Side = TypeVar("Side", int, Span)


class TranslatedSentence(NamedTuple):
    """A sentence's translations.

    Args:
        texts: the translations, best first.
        links: links between the words of the sentence and of the best translation; empty unless requested.
        spans: for each translation, the corresponding character spans of the sentence and the translation; empty unless
            requested.
        confidence: the confidence in the best translation; None unless requested.
        is_translated: False if that was too low, so that the only translation is the sentence itself.
    """

    texts: tuple[str, ...]
    links: Sequence[Link] = ()
    spans: Sequence[Sequence[tuple[Span, Span]]] = ()
    confidence: Confidence | None = None
    is_translated: bool = True

    @property
    def confidence_values(self) -> dict[str, Any]:
        """The best translation with the confidence in it, for JSON; empty unless requested."""
        if self.confidence is None:
            return {}
        return {"text": self.texts[0], **vars(self.confidence), "translated": self.is_translated}


@dataclass(frozen=True)
class TranslationWork:
    """A request to a run; sentences with equal work may share a batch.

    Args:
        run: the run that translates.
        settings: the search settings.
        unit: the unit of the links between sentences and translations: words, or characters for markup; None for no
            links.
        part: the part of a text that is streamed; 0 without streaming. Each part has its own batches, so that the first
            is sent early.
        glossary: terms with fixed translations; None without one.
        minimum_confidence: the confidence, 0 to 1, below which a sentence stays untranslated; None to compute none.
        then: the work that translates the results into another language; None if they are in the target language.
    """

    run: ServedRun
    settings: SearchSettings
    unit: Literal["words", "characters"] | None = None
    part: int = 0
    glossary: Glossary | None = None
    minimum_confidence: float | None = None
    then: TranslationWork | None = None

    def __call__(self, texts: Sequence[str | SourceText]) -> list[TranslatedSentence | RequestError]:
        """Translate sentences; an error is the result of a sentence that `then` cannot translate."""
        translator = self.run.translator
        search = translator.search if self.glossary is None else TermSearch(translator, self.glossary)
        n_best_lists = search(texts, self.settings)
        sentences = self.judged(n_best_lists, self.linked(n_best_lists))
        return [*sentences] if self.then is None else self.then.continued(sentences, texts)

    def continued(
        self, sentences: Sequence[TranslatedSentence], originals: Sequence[str | SourceText]
    ) -> list[TranslatedSentence | RequestError]:
        """Translate translations further, and join the links and the confidence of both."""
        sources: list[SourceText | TranslatedSentence | RequestError] = []
        for sentence in sentences:
            try:
                sources.append(self.read(sentence.texts[0]) if sentence.is_translated else sentence)
            except RequestError as error:
                sources.append(error)
        further = iter(self([source for source in sources if isinstance(source, SourceText)]))
        return [
            self._joined(first, next(further), original) if isinstance(source, SourceText) else source
            for first, source, original in zip(sentences, sources, originals, strict=True)
        ]

    def _joined(
        self, first: TranslatedSentence, second: TranslatedSentence | RequestError, original: str | SourceText
    ) -> TranslatedSentence | RequestError:
        """Return a translation of a translation, with the links from the original sentence."""
        if isinstance(second, RequestError):
            return second
        confidence = second.confidence
        if confidence and first.confidence:
            both = round(first.confidence.confidence * confidence.confidence, DECIMALS)
            confidence = Confidence(both, confidence.words, first.confidence.warnings + confidence.warnings)
            if not second.is_translated or confidence.problem(self.minimum_confidence):
                return _untranslated(original if isinstance(original, str) else original.original, confidence)
        spans = [_through(first.spans[0], of_text) for of_text in second.spans]
        return second._replace(links=_through(first.links, second.links), spans=spans, confidence=confidence)

    def __hash__(self) -> int:
        """Return a hash that equal works share.

        Only the settings that a request can choose are hashed, as hashing all of them is slow.
        """
        own = self.run, self.settings.beam, self.settings.n_best, self.unit, self.part
        return hash((*own, self.glossary, self.then))

    def linked(self, n_best_lists: Sequence[Sequence[Translation]]) -> list[TranslatedSentence]:
        """Return translations with links: between words for the best ones only, between characters for all."""
        texts = [tuple(item.text for item in n_best) for n_best in n_best_lists]
        if self.unit is None:
            return list(map(TranslatedSentence, texts))
        items = [item for n_best in n_best_lists for item in n_best[: 1 if self.unit == "words" else None]]
        alignments = iter(Alignment.of(self.run.translator, items, self.unit))
        if self.unit == "words":
            return [TranslatedSentence(n_best, next(alignments).links) for n_best in texts]
        return [TranslatedSentence(n_best, spans=[next(alignments).spans for _ in n_best]) for n_best in texts]

    def judged(
        self, n_best_lists: Sequence[Sequence[Translation]], sentences: list[TranslatedSentence]
    ) -> list[TranslatedSentence]:
        """Return sentences with the confidence in them, and those with too little as they were."""
        if self.minimum_confidence is None:
            return sentences
        confidences = Confidence.of(self.run.translator, [n_best[0] for n_best in n_best_lists])
        return [
            sentence._replace(confidence=confidence)
            if confidence is None or confidence.confidence >= self.minimum_confidence
            else _untranslated(n_best[0].source.original, confidence)
            for n_best, sentence, confidence in zip(n_best_lists, sentences, confidences, strict=True)
        ]

    def read(self, text: str) -> SourceText:
        """Return a sentence as the run reads it, before it is queued.

        Raises:
            RequestError: the run cannot translate it.
        """
        source = self.run.translator.read(text)
        if source.refusal is not None:
            raise invalid(source.refusal)
        has_confidence = self.minimum_confidence is not None
        if has_confidence and self.run.translator.calibration is None:
            raise invalid(f"confidence needs {NOT_CALIBRATED}")
        if (self.unit or self.glossary or has_confidence) and len(source.ids) > MAX_ALIGNED:
            raise invalid(
                f"a sentence of {len(source.ids):,} tokens is too long to align: the limit is {MAX_ALIGNED:,}"
            )
        return source


def languages_of(work: TranslationWork) -> tuple[str, str]:
    """Return the languages of a work's first run; requests of different languages take turns."""
    return work.run.source, work.run.target


def _through(first: Sequence[tuple[Side, Side]], second: Sequence[tuple[Side, Side]]) -> list[tuple[Side, Side]]:
    """Join links (a, b) and (b, c) to links (a, c), in the order of c and then of a."""
    begins: dict[Side, list[Side]] = {}
    for source, middle in first:
        begins.setdefault(middle, []).append(source)
    links = {(source, target) for middle, target in second for source in begins.get(middle, ())}
    return sorted(links, key=lambda link: (link[1], link[0]))


def _untranslated(text: str, confidence: Confidence) -> TranslatedSentence:
    """Return a sentence as its own translation, with each word linked to itself."""
    links = [(word, word) for word in range(len(text.split()))]
    return TranslatedSentence((text,), links, [untranslated(text).links], confidence, is_translated=False)
