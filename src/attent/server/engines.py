"""The runs that a server uses, by language pair; a run that changes on disk is reloaded."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from attent.documents.inline import untranslated
from attent.errors import ArgumentError, AttentError, RunError
from attent.runs.config import read_config
from attent.runs.snapshot import Stamp, UnsettledError, is_bound, snapshot, stamp_of
from attent.search.search import SourceText, Translation
from attent.search.settings import SearchSettings
from attent.server.errors import invalid
from attent.tasks.translation.alignment import Alignment
from attent.tasks.translation.confidence import NOT_CALIBRATED, Confidence
from attent.tasks.translation.glossary import Glossary
from attent.tasks.translation.term_search import TermSearch, check_terms
from attent.tasks.translation.translator import Translator, load
from attent.text.text import Link
from attent.text.units import Span

# Seconds without changes after which a run without digests is considered complete.
QUIET = 2.5
# Seconds until the next attempt to load a run that failed and has not changed: the first delay, doubled after each
# failure up to the last.
FIRST_DELAY, LAST_DELAY = 1.0, 30.0
# Maximum tokens of a sentence to align: the weights take memory proportional to the product of both lengths.
MAX_ALIGNED = 2_048


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


@dataclass(frozen=True, eq=False)
class ServedRun:
    """A loaded run.

    Args:
        path: its folder.
        source: the code of its source language.
        target: the code of its target language.
        translator: the translator loaded from it.
        stamp: the stamp of its files, taken before it was loaded.
    """

    path: Path
    source: str
    target: str
    translator: Translator
    stamp: Stamp


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
    """

    run: ServedRun
    settings: SearchSettings
    unit: Literal["words", "characters"] | None = None
    part: int = 0
    glossary: Glossary | None = None
    minimum_confidence: float | None = None

    def __call__(self, texts: Sequence[str | SourceText]) -> list[TranslatedSentence]:
        """Translate sentences."""
        translator = self.run.translator
        search = translator.search if self.glossary is None else TermSearch(translator, self.glossary)
        n_best_lists = search(texts, self.settings)
        return self.judged(n_best_lists, self.linked(n_best_lists))

    def __hash__(self) -> int:
        """Return a hash that equal works share.

        Only the settings that a request can choose are hashed, as hashing all of them is slow.
        """
        return hash((self.run, self.settings.beam, self.settings.n_best, self.unit, self.part, self.glossary))

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


@dataclass
class _Attempt:
    """The attempts to load a run that has changed.

    Args:
        stamp: the stamp of its files.
        begin: the time when the stamp was first seen, in seconds on the monotonic clock.
        due: the time of the next attempt, on the same clock.
        delay: the seconds to wait after the next failure.
        problems: the problems that were already logged.
    """

    stamp: Stamp
    begin: float
    due: float
    delay: float
    problems: set[str]


class RunCatalog:
    """The runs of a server, loaded from copies of their folders, so that writing to a folder does not change answers.

    Args:
        paths: the run folders.
        languages: the (source, target) of each run; None to use those of its config.
        load_run: loads the translator of a folder; the folder is deleted afterwards.

    Raises:
        ArgumentError: a run has no languages, or two runs have the same.
        RunError: a run cannot be loaded.
    """

    def __init__(
        self,
        paths: Sequence[Path],
        languages: Sequence[tuple[str, str] | None],
        load_run: Callable[[Path], Translator] = load,
    ) -> None:
        self._load, self._attempts = load_run, dict[tuple[str, str], _Attempt]()
        # pairs whose languages come from the run's config
        self._named = set[tuple[str, str]]()
        self._glossaries: dict[tuple[str, str], Glossary] = {}
        self._runs: dict[tuple[str, str], ServedRun] = {}
        for path, pair in zip(paths, languages, strict=True):
            stamp = stamp_of(path)
            with snapshot(path, stamp) as copy:
                source, target = pair or _languages_of(copy)
                if (source, target) in self._runs:
                    raise ArgumentError(
                        f"{self._runs[source, target].path} and {path} both translate {source} to {target}: serve one "
                        "of them"
                    )
                self._runs[source, target] = ServedRun(path, source, target, load_run(copy), stamp)
            if pair is None:
                self._named.add((source, target))
        targets: dict[str, list[str]] = {}
        for source, target in sorted(self._runs):
            targets.setdefault(source, []).append(target)
        self._sources: Mapping[str, list[str]] = targets

    @property
    def runs(self) -> list[ServedRun]:
        """The loaded runs, in the order given on the command line."""
        return list(self._runs.values())

    @property
    def sources(self) -> Mapping[str, list[str]]:
        """The source languages in alphabetical order, each with its target languages."""
        return self._sources

    def find(self, source: str, target: str) -> ServedRun | None:
        """Return the run from one language to another, if there is one."""
        return self._runs.get((source, target))

    def add_glossary(self, run: ServedRun, glossary: Glossary) -> None:
        """Use a glossary for a run and for the runs that replace it."""
        self._glossaries[run.source, run.target] = glossary

    def glossary(self, run: ServedRun) -> Glossary | None:
        """Return the glossary of a run, if it has one."""
        return self._glossaries.get((run.source, run.target))

    def reload(self, say: Callable[[str], None]) -> None:
        """Reload runs that have changed on disk; if one cannot be loaded, the loaded one stays in use.

        Pending requests keep the run that they started with. A failed load is retried when the folder changes, and
        otherwise at increasing intervals.

        Args:
            say: writes a line to the log; called once for each distinct problem.
        """
        for pair, run in list(self._runs.items()):
            stamp, attempt, now = stamp_of(run.path), self._attempts.get(pair), time.monotonic()
            if stamp == run.stamp:
                self._attempts.pop(pair, None)
                continue
            if attempt is None or attempt.stamp != stamp:
                attempt = _Attempt(stamp, now, now, FIRST_DELAY, attempt.problems if attempt else set())
                self._attempts[pair] = attempt
            if now < attempt.due:
                continue
            try:
                self._runs[pair] = self._replacement(pair, run, attempt)
            except UnsettledError:
                # retried at the next round, with its new stamp or once it has been quiet
                pass
            # anything that a library raises, such as an out-of-memory error
            except Exception as error:
                attempt.due, attempt.delay = time.monotonic() + attempt.delay, min(2 * attempt.delay, LAST_DELAY)
                problem = (
                    str(error)
                    if isinstance(error, AttentError | OSError)
                    else f"unexpected {type(error).__name__}: {error}"
                )
                line = " ".join(problem.split())
                if line not in attempt.problems:
                    attempt.problems.add(line)
                    say(f"{run.path} has changed, and cannot be loaded: {line}; the run loaded before stays in use")
            else:
                del self._attempts[pair]
                say(f"{run.path} has changed, and was loaded again")

    def _replacement(self, pair: tuple[str, str], run: ServedRun, attempt: _Attempt) -> ServedRun:
        """Load a run that has changed.

        Raises:
            ArgumentError: it cannot generate a term of the glossary.
            RunError: it cannot be loaded, or its languages have changed.
            UnsettledError: it may be incomplete.
        """
        with snapshot(run.path, attempt.stamp) as copy:
            if time.monotonic() < (quiet := attempt.begin + QUIET) and _has_no_digests(copy):
                attempt.due = quiet
                raise UnsettledError(f"{run.path} has no digests and may still be changing")
            if pair in self._named and (languages := _languages_of(copy)) != pair:
                raise RunError(
                    f"{run.path} now translates {languages[0]} to {languages[1]}, not {run.source} to {run.target}"
                )
            translator = self._load(copy)
            if glossary := self._glossaries.get(pair):
                check_terms(glossary, translator.target_tokenizer)
            return ServedRun(run.path, *pair, translator, attempt.stamp)


def parse_languages(pairs: Iterable[str]) -> list[tuple[str, str]]:
    """Parse pairs of languages, each written as en:de.

    Raises:
        ArgumentError: a pair has another form.
    """
    from attent.text.settings import check_language

    result = []
    for pair in pairs:
        source, colon, target = pair.partition(":")
        if not colon:
            raise ArgumentError(f"--languages must be SOURCE:TARGET for each run, such as en:de, got {pair!r}")
        result.append((check_language(source), check_language(target)))
    return result


def _untranslated(text: str, confidence: Confidence) -> TranslatedSentence:
    """Return a sentence as its own translation, with each word linked to itself."""
    links = [(word, word) for word in range(len(text.split()))]
    return TranslatedSentence((text,), links, [untranslated(text).links], confidence, is_translated=False)


def _has_no_digests(path: Path) -> bool:
    try:
        return not is_bound(path)
    # loading reports the problem
    except RunError:
        return False


def _languages_of(path: Path) -> tuple[str, str]:
    config = read_config(path)
    if config.source_language is None or config.target_language is None:
        raise ArgumentError(
            f"{path} does not name its languages: pass --languages, such as en:de, once for each run in order"
        )
    return config.source_language, config.target_language
