"""The way of a request: its language, its sentences, their place in the queue, and its answer put together."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from attent.data.language_detection import Detection, LanguageDetector
from attent.data.sentences import SplitText, split_sentences
from attent.data.text import Link
from attent.decoding.settings import SearchSettings
from attent.markup.html import MarkedText, parse_html
from attent.markup.inline import AlignedText
from attent.markup.translate import join_aligned
from attent.serve.translation.batcher import Batcher
from attent.serve.translation.engines import RunCatalog, ServedRun, TranslatedSentence, TranslationWork
from attent.serve.translation.errors import RequestError, invalid
from attent.serve.translation.settings import ServerSettings

AUTO = "auto"
Format = Literal["text", "html"]
FORMATS: tuple[Format, ...] = ("text", "html")


class TranslatedText(NamedTuple):
    """The answer for one text.

    Args:
        text: its best translation.
        alternatives: further ones.
        links: between the words of both, parted by spaces, from 0; none unless they were asked for, and of HTML.
        detection: its language, if that was to be detected.
    """

    text: str
    alternatives: tuple[str, ...] = ()
    links: tuple[Link, ...] = ()
    detection: Detection | None = None


@dataclass(frozen=True)
class TranslationOptions:
    """Wishes besides the translation.

    Args:
        alternatives: further translations.
        has_links: whether words are linked.
        format: of the texts.
        whole: whether each line is a single sentence.
    """

    alternatives: int = 0
    has_links: bool = False
    format: Format = "text"
    whole: bool = False


class PreparedText(NamedTuple):
    """A text before its translation.

    Args:
        splits: its sentences; of HTML, those of each line.
        marked: the HTML around its lines; None for a plain text.
        work: what to do with them; None for a text that is in the target's language already.
        detection: its language, if that was to be detected.
    """

    splits: Sequence[SplitText]
    marked: MarkedText | None
    work: TranslationWork | None
    detection: Detection | None


class TranslationService:
    """Translates texts with the runs of a catalog.

    Args:
        settings: of the server.
        catalog: the runs.
        batcher: translates their sentences.
    """

    def __init__(self, settings: ServerSettings, catalog: RunCatalog, batcher: Batcher) -> None:
        self.settings, self.catalog, self.batcher = settings, catalog, batcher
        self.detect = LanguageDetector(catalog.sources).detect

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
        if source != AUTO:
            self._run(source, target)

    async def translate(
        self, texts: Sequence[str], source: str, target: str, options: TranslationOptions | None = None
    ) -> list[TranslatedText]:
        """Translate texts; the sentences of all of them wait together.

        Args:
            texts: each of any number of sentences.
            source: the code of their language, or "auto".
            target: the code of the language to translate to.
            options: what else is wanted.

        Raises:
            RequestError: a language is not served, a sentence is refused, or the queue is full.
        """
        self.check_languages(source, target)
        options = options or TranslationOptions()
        prepared = [self._prepare(text, source, target, options) for text in texts]
        # one place in the queue for all sentences of the same run: a request is taken whole, or refused whole
        groups: dict[TranslationWork, list[str]] = {}
        for text in prepared:
            if text.work is not None:
                groups.setdefault(text.work, []).extend(sentence for split in text.splits for sentence in split.sentences)
        waiting = [asyncio.ensure_future(self.batcher.submit(sentences, work)) for work, sentences in groups.items()]
        try:
            translated = dict(zip(groups, map(iter, await asyncio.gather(*waiting)), strict=True))
        finally:
            for task in waiting:
                task.cancel()
        return [_assemble(text, iter(()) if text.work is None else translated[text.work], options) for text in prepared]

    def _prepare(self, text: str, source: str, target: str, options: TranslationOptions) -> PreparedText:
        """Cut a text into sentences that its run accepts."""
        marked = parse_html(text) if options.format == "html" else None
        texts = [text] if marked is None else marked.texts
        detection = self.detect("\n".join(texts))[0] if source == AUTO else None
        language = source if detection is None else detection.language
        if language == target:
            return PreparedText([SplitText((text,), ())], None, None, detection)
        splits = [split_sentences(line, language, whole=options.whole) for line in texts]
        work = self._work(self._run(language, target), options)
        for split in splits:
            for sentence in split.sentences:
                work.check(sentence)
        return PreparedText(splits, marked, work, detection)

    def _run(self, source: str, target: str) -> ServedRun:
        run = self.catalog.find(source, target)
        if run is None and source != target:
            names = f"{language_name(target)} ({target})", f"{language_name(source)} ({source})"
            raise RequestError(400, f"{names[0]} is not available as a target language from {names[1]}")
        return run or self.catalog.runs[0]

    def _work(self, run: ServedRun, options: TranslationOptions) -> TranslationWork:
        count = options.alternatives + 1
        links = "spans" if options.format == "html" else "words" if options.has_links else None
        return TranslationWork(run, SearchSettings(beam=max(self.settings.beam, count), n_best=count), links)


def check_format(name: str) -> Format:
    """Return the format of a text.

    Raises:
        RequestError: it is none.
    """
    for text_format in FORMATS:
        if name == text_format:
            return text_format
    raise RequestError(400, f"{name} format is not supported")


def check_size(settings: ServerSettings, texts: Sequence[str], *, is_list: bool) -> None:
    """Check the number of texts and of their characters.

    Raises:
        RequestError: there are too many.
    """
    sizes = ((len(texts), settings.batch_limit),) if is_list else ()
    for size, limit in (*sizes, (max(map(len, texts), default=0), settings.char_limit)):
        if 0 <= limit < size:
            raise invalid(f"request ({size}) exceeds text limit ({limit})")


def language_name(code: str) -> str:
    """Return a language's English name; its code where Babel knows none."""
    from babel import Locale, UnknownLocaleError

    try:
        return Locale.parse(code.replace("-", "_")).get_display_name("en") or code
    except (UnknownLocaleError, ValueError):
        return code


def _assemble(text: PreparedText, sentences: Iterator[TranslatedSentence], options: TranslationOptions) -> TranslatedText:
    """Put the translations of sentences in their places; an alternative text has each sentence's, or its last one."""
    by_split = [[next(sentences) for _ in split.sentences] for split in text.splits]
    versions: list[str] = []
    for rank in range(options.alternatives + 1):
        lines = [
            join_aligned(split, [_version(sentence, rank) for sentence in of_split])
            for split, of_split in zip(text.splits, by_split, strict=True)
        ]
        versions.append(lines[0].text if text.marked is None else text.marked.render(lines))
    alternatives = tuple(dict.fromkeys(version for version in versions[1:] if version != versions[0]))
    links = _text_links(text.splits[0], by_split[0]) if options.has_links and text.marked is None else ()
    return TranslatedText(versions[0], alternatives, links, text.detection)


def _version(sentence: TranslatedSentence, rank: int) -> AlignedText:
    """Return the translation of this rank, or the last one."""
    rank = min(rank, len(sentence.texts) - 1)
    return AlignedText(sentence.texts[rank], sentence.spans[rank] if sentence.spans else ())


def _text_links(split: SplitText, sentences: Sequence[TranslatedSentence]) -> tuple[Link, ...]:
    """Return the links between words of whole texts, from those between words of sentences."""
    links: list[Link] = []
    before_source = before_target = ""
    for number, sentence in enumerate(sentences):
        before_source += split.between[number]
        before_target += split.between[number]
        # a sentence may follow the one before without a space, and then begins within a word
        first_source, first_target = len(f"{before_source}x".split()) - 1, len(f"{before_target}x".split()) - 1
        links += [(first_source + source, first_target + target) for source, target in sentence.links]
        before_source += split.sentences[number]
        before_target += sentence.texts[0]
    return tuple(links)
