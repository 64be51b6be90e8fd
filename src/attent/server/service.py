"""The steps of a request: detect the language, split the text into sentences, queue them, and assemble the answer."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Literal, NamedTuple, TypeVar

from attent.documents.html import MarkedText, parse_html
from attent.documents.inline import AlignedText
from attent.documents.pipeline import render
from attent.errors import ArgumentError
from attent.search.search import SourceText
from attent.search.settings import SearchSettings
from attent.server.batcher import LOADER, Batcher, prepare
from attent.server.catalog import ColdRunError, RunCatalog
from attent.server.document_processes import DocumentProcesses
from attent.server.engines import TranslatedSentence, TranslationWork
from attent.server.errors import RequestError, invalid
from attent.server.settings import ServerSettings
from attent.tasks.translation.confidence import NOT_CALIBRATED
from attent.tasks.translation.glossary import Glossary
from attent.tasks.translation.term_search import check_terms
from attent.text.sentences import Detection, LanguageDetector, SplitText, split_sentences
from attent.text.text import Link

AUTO = "auto"
Value = TypeVar("Value")
Format = Literal["text", "html"]


class TranslatedText(NamedTuple):
    """The answer for one text.

    Args:
        text: the best translation.
        alternatives: further translations.
        links: links between the space-separated words of both texts, counted from 0; empty unless requested, and for
            HTML.
        detection: its language, if that was to be detected.
        pivot: the language through which it was translated, if there is no run for the pair.
        confidences: its translated sentences with the confidence in each, for JSON; empty unless requested.
    """

    text: str
    alternatives: tuple[str, ...] = ()
    links: tuple[Link, ...] = ()
    detection: Detection | None = None
    pivot: str | None = None
    confidences: tuple[dict[str, Any], ...] = ()


@dataclass(frozen=True)
class TranslationOptions:
    """Options of a translation.

    Args:
        alternatives: the number of further translations.
        has_links: whether to link words.
        format: the format of the texts.
        glossary: terms with fixed translations, in addition to the server's; None without any.
        has_confidence: whether to compute the confidence in each sentence.
        minimum_confidence: the confidence below which a sentence stays untranslated; None for the server's.
    """

    alternatives: int = 0
    has_links: bool = False
    format: Format = "text"
    glossary: Glossary | None = None
    has_confidence: bool = False
    minimum_confidence: float | None = None


class TextPiece(NamedTuple):
    """The next part of a streamed translation; the pieces of a text, joined, are its translation.

    Args:
        text: the index of the text.
        sentence: the index of the sentence in it; 0 for HTML, which is sent as a whole.
        piece: the translated sentence with the surrounding whitespace.
    """

    text: int
    sentence: int
    piece: str


class PreparedText(NamedTuple):
    """A text before its translation.

    Args:
        splits: its sentences; for HTML, those of each line.
        sources: all sentences, as the run reads them.
        marked: the HTML around its lines; None for a plain text.
        work: the computation to run on them; None for a text already in the target language.
        detection: its language, if that was to be detected.
    """

    splits: Sequence[SplitText]
    sources: Sequence[SourceText]
    marked: MarkedText | None
    work: TranslationWork | None
    detection: Detection | None


class TranslationService:
    """Translates texts with the runs of a catalog.

    Args:
        settings: the server's settings.
        catalog: the runs.
        batcher: the queue that translates sentences in batches.
        say: writes a line to the log.

    Raises:
        ArgumentError: the settings have a minimum confidence, and a loaded run is not calibrated.
    """

    def __init__(
        self,
        settings: ServerSettings,
        catalog: RunCatalog,
        batcher: Batcher,
        say: Callable[[str], None] = lambda line: None,
    ) -> None:
        for run in catalog.runs if settings.minimum_confidence else ():
            if run.translator.calibration is None:
                raise ArgumentError(f"--minimum-confidence needs {NOT_CALIBRATED.replace('RUN', run.name)}")
        self.settings, self.catalog, self.batcher, self._say = settings, catalog, batcher, say
        self.detect = LanguageDetector(catalog.sources).detect
        self.documents = DocumentProcesses()

    def close(self) -> None:
        """End the processes of documents, including those that are being translated."""
        self.documents.close()

    def detect_source(self, text: str, target: str) -> Detection:
        """Return the language of a text; if it cannot be told, as for digits, one that has a run to the target."""
        detection = self.detect(text)[0]
        if detection.confidence:
            return detection
        return Detection(
            next((source for source, targets in self.catalog.sources.items() if target in targets), detection.language),
            0.0,
        )

    def check_languages(self, source: str, target: str) -> None:
        """Check that a text can be translated from one language to another; source may be "auto".

        Raises:
            RequestError: a language is unknown, or there is no run between them.
        """
        sources = self.catalog.sources
        if source not in (AUTO, *sources):
            raise RequestError(400, f"{source} is not supported")
        if not any(target in targets for targets in sources.values()):
            raise RequestError(400, f"{target} is not supported")
        if source not in (AUTO, target) and not self.catalog.route(source, target):
            names = f"{language_name(target)} ({target})", f"{language_name(source)} ({source})"
            raise RequestError(400, f"{names[0]} is not available as a target language from {names[1]}")

    async def find_works(self, source: str, target: str) -> tuple[TranslationWork, TranslationWork]:
        """Return the work for a document's sentences without and with markup (the latter aligned), for the same runs.

        Raises:
            RequestError: there is no run from one language to the other, or it cannot be loaded.
        """
        return await self._with_runs(
            0,
            lambda: (
                self._work(source, target, TranslationOptions()),
                self._work(source, target, TranslationOptions(format="html")),
            ),
        )

    async def _with_runs(self, size: int, function: Callable[..., Value], *arguments: object) -> Value:
        """Return the result of `prepare`, after loading the runs that the function needs.

        Raises:
            RequestError: a run cannot be loaded now.
        """
        while True:
            try:
                return await prepare(size, function, *arguments)
            except ColdRunError as cold:
                loading = asyncio.get_running_loop().run_in_executor(LOADER, self.catalog.load, cold.entry)
                try:
                    await loading
                except Exception as error:
                    self._say(f"{cold.entry.name} cannot be loaded: {error}")
                    raise RequestError(503, f"{cold.entry} cannot be loaded now") from error

    async def translate(
        self, texts: Sequence[str], source: str, target: str, options: TranslationOptions | None = None
    ) -> list[TranslatedText]:
        """Translate texts; the sentences of all texts are queued together.

        Args:
            texts: the texts, each of any number of sentences.
            source: the code of their language, or "auto".
            target: the code of the language to translate to.
            options: further options.

        Raises:
            RequestError: a language is not served, a sentence is refused, or the queue is full.
        """
        self.check_languages(source, target)
        self.batcher.check_room()
        options = options or TranslationOptions()
        size = sum(map(len, texts))
        prepared = await self._with_runs(size, self._prepare, texts, source, target, options)
        # all sentences of the same run are queued together: a request is accepted or refused as a whole
        groups: dict[TranslationWork, list[SourceText]] = {}
        for text in prepared:
            if text.work is not None:
                groups.setdefault(text.work, []).extend(text.sources)
        translated = dict(zip(groups, map(iter, await self._submit(groups)), strict=True))
        return await prepare(size, _assemble_all, prepared, translated, options)

    async def _submit(
        self, groups: Mapping[TranslationWork, Sequence[SourceText]]
    ) -> Sequence[Sequence[TranslatedSentence]]:
        """Return the translations of each group's sentences; the groups are translated concurrently."""
        if len(groups) == 1:
            return [await self.batcher.submit(sentences, work) for work, sentences in groups.items()]
        waiting = [asyncio.ensure_future(self.batcher.submit(sentences, work)) for work, sentences in groups.items()]
        try:
            return await asyncio.gather(*waiting)
        finally:
            for task in waiting:
                task.cancel()

    async def stream(
        self,
        texts: Sequence[str],
        source: str,
        target: str,
        options: TranslationOptions | None = None,
    ) -> AsyncGenerator[TextPiece | list[TranslatedText], None]:
        """Translate texts, and yield each sentence as soon as it and those before it are translated.

        The last item is the result of `translate`, whose arguments and errors are the same.

        Args:
            texts: see `translate`.
            source: see `translate`.
            target: see `translate`.
            options: see `translate`.
        """
        self.check_languages(source, target)
        self.batcher.check_room()
        options = options or TranslationOptions()
        size = sum(map(len, texts))
        prepared = await self._with_runs(size, self._prepare, texts, source, target, options)
        sources = [(source, text.work) for text in prepared if text.work for source in text.sources]
        # the first sentence is ready early, and the others share batches: more parts took twice as long as one
        waiting = [(source, replace(work, part=1 if index == 0 else 2)) for index, (source, work) in enumerate(sources)]
        is_plain = options.format == "text"
        answers: list[TranslatedText] = []
        async with aclosing(self.batcher.stream(waiting)) as results:
            for index, text in enumerate(prepared):
                translated: list[TranslatedSentence] = []
                for split in text.splits:
                    for number, after in enumerate(split.between[1:]):
                        before = "" if number else split.between[0]
                        translated.append(await anext(results))
                        if is_plain:
                            yield TextPiece(index, number, before + translated[-1].texts[0] + after)
                answers.append(await prepare(len(texts[index]), _assemble, text, iter(translated), options))
                # the tags of HTML are known only at its end
                if not is_plain or not translated:
                    yield TextPiece(index, 0, answers[-1].text)
        yield answers

    def _prepare(
        self, texts: Sequence[str], source: str, target: str, options: TranslationOptions
    ) -> list[PreparedText]:
        # once per language: the glossary is checked only once, and all texts use the same run even if it is replaced
        # meanwhile
        find_work = cache(lambda language: self._work(language, target, options))
        return [self._prepare_text(text, source, target, options, find_work) for text in texts]

    def _prepare_text(
        self,
        text: str,
        source: str,
        target: str,
        options: TranslationOptions,
        find_work: Callable[[str], TranslationWork],
    ) -> PreparedText:
        """Cut a text into sentences that its run accepts."""
        marked = parse_html(text) if options.format == "html" else None
        texts = [text] if marked is None else marked.texts
        detection = self.detect_source("\n".join(texts), target) if source == AUTO else None
        language = source if detection is None else detection.language
        if language == target:
            return PreparedText([SplitText((text,), ())], (), None, None, detection)
        splits = [split_sentences(line, language) for line in texts]
        work = find_work(language)
        sources = [work.read(sentence) for split in splits for sentence in split.sentences]
        return PreparedText(splits, sources, marked, work, detection)

    def _work(self, source: str, target: str, options: TranslationOptions) -> TranslationWork:
        """Return the work of the runs between two languages.

        Raises:
            ColdRunError: a run is not in memory.
            RequestError: there is no run, or a glossary is given for two runs.
        """
        self.check_languages(source, target)
        unit = "characters" if options.format == "html" else "words" if options.has_links else None
        own, work = options.glossary, None
        own_minimum = options.minimum_confidence
        minimum = self.settings.minimum_confidence if own_minimum is None else own_minimum
        judged_from = minimum if options.has_confidence or minimum > 0 else None
        route = self.catalog.route(source, target)
        if own is not None and len(route) > 1:
            raise invalid(f"{source} is translated to {target} through {route[0].target}, without a glossary")
        for entry in reversed(route):
            run, glossary = self.catalog.use(entry), entry.glossary
            if own is not None:
                check_terms(own, run.translator.target_tokenizer)
                glossary = own if glossary is None else glossary.updated(own)
            # a text is translated further from its best translation
            count = options.alternatives + 1 if work is None else 1
            settings = _search_settings(max(self.settings.beam, count), count)
            work = TranslationWork(run, settings, unit, 0, glossary, judged_from, work)
        assert work is not None
        return work


@cache
def _search_settings(beam: int, count: int) -> SearchSettings:
    """Return search settings, cached because a server uses few different ones.

    Validating them takes as long as splitting a text into sentences.
    """
    return SearchSettings(beam=beam, n_best=count)


def check_size(settings: ServerSettings, wish: str | list[str]) -> list[str]:
    """Check the number of texts, if they are a list, and their lengths; return the texts as a list.

    Raises:
        RequestError: there are too many texts or characters.
    """
    texts = [wish] if isinstance(wish, str) else wish
    sizes = ((len(wish), settings.batch_limit),) if isinstance(wish, list) else ()
    for size, limit in (*sizes, (max(map(len, texts), default=0), settings.char_limit)):
        if 0 <= limit < size:
            raise invalid(f"request ({size}) exceeds text limit ({limit})")
    return texts


def language_name(code: str) -> str:
    """Return a language's English name, or its code if Babel has no name for it."""
    from babel import Locale, UnknownLocaleError

    try:
        return Locale.parse(code.replace("-", "_")).get_display_name("en") or code
    except (UnknownLocaleError, ValueError):
        return code


def _assemble_all(
    prepared: Sequence[PreparedText],
    translated: Mapping[TranslationWork, Iterator[TranslatedSentence]],
    options: TranslationOptions,
) -> list[TranslatedText]:
    return [_assemble(text, iter(()) if text.work is None else translated[text.work], options) for text in prepared]


def _assemble(
    text: PreparedText, sentences: Iterator[TranslatedSentence], options: TranslationOptions
) -> TranslatedText:
    """Join translated sentences into texts; a sentence with too few alternatives contributes its last one."""
    translated = [next(sentences) for split in text.splits for _ in split.sentences]
    versions: list[str] = []
    for rank in range(options.alternatives + 1):
        of_rank = [_version(sentence, rank) for sentence in translated]
        if text.marked is None:
            versions.append(text.splits[0].join([version.text for version in of_rank]))
        else:
            versions.append(render(text.marked, text.splits, iter(of_rank)))
    alternatives = tuple(dict.fromkeys(version for version in versions[1:] if version != versions[0]))
    links = _text_links(text.splits[0], translated) if options.has_links and text.marked is None else ()
    confidences = tuple(values for sentence in translated if (values := sentence.confidence_values))
    pivot = text.work.run.target if text.work and text.work.then else None
    return TranslatedText(versions[0], alternatives, links, text.detection, pivot, confidences)


def _version(sentence: TranslatedSentence, rank: int) -> AlignedText:
    """Return the translation of this rank, or the last one."""
    rank = min(rank, len(sentence.texts) - 1)
    return AlignedText(sentence.texts[rank], sentence.spans[rank] if sentence.spans else ())


def _text_links(split: SplitText, sentences: Sequence[TranslatedSentence]) -> tuple[Link, ...]:
    """Return the links between words of whole texts, from those between words of sentences."""
    links: list[Link] = []
    # words so far; the last one may continue, since sentences can follow each other without a space
    source, target = WordCount(), WordCount()
    for number, sentence in enumerate(sentences):
        source.add(split.between[number])
        target.add(split.between[number])
        links += [(source.next_word + first, target.next_word + second) for first, second in sentence.links]
        source.add(split.sentences[number])
        target.add(sentence.texts[0])
    return tuple(links)


class WordCount:
    """Counts the words of a growing text."""

    def __init__(self) -> None:
        self._count, self._is_open = 0, False

    @property
    def next_word(self) -> int:
        """The index of the word to which the next character, unless it is a space, belongs."""
        return self._count - self._is_open

    def add(self, text: str) -> None:
        """Append a text."""
        if text:
            self._count += len(text.split()) - (self._is_open and not text[0].isspace())
            self._is_open = not text[-1].isspace()
