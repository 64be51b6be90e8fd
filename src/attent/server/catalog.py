"""The runs that a server uses, by pair of languages: loaded when first needed, reloaded when they change on disk."""

import threading
import time
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path

from attent import devices
from attent.errors import ArgumentError, AttentError, RunError
from attent.ops.mapped import give_back, is_mapped
from attent.runs.config import CONFIG, read_config
from attent.runs.snapshot import (
    Stamp,
    UnsettledError,
    forget_pages,
    is_bound,
    named_as,
    snapshot,
    stamp_of,
    weight_sizes,
)
from attent.tasks.translation.glossary import Glossary
from attent.tasks.translation.term_search import check_terms
from attent.tasks.translation.translator import Translator, load_ensemble

Stamps = tuple[Stamp, ...]
# Seconds without changes after which a run without digests is considered complete.
QUIET = 2.5
# Seconds until the next attempt to load a run that failed and has not changed: the first delay, doubled after each
# failure up to the last.
FIRST_DELAY, LAST_DELAY = 1.0, 30.0
# Attempts to load a run that is being replaced, and the seconds between them.
ATTEMPTS, PAUSE = 20, 0.25
# Seconds to wait for requests to release a run that leaves the memory.
RELEASE = 0.5
# The language to translate through if several are possible.
PIVOT = "en"


@dataclass(frozen=True, eq=False)
class ServedRun:
    """A loaded run, or an ensemble of runs.

    Args:
        name: the paths of its folders.
        source: the code of its source language.
        target: the code of its target language.
        translator: the translator loaded from it.
        stamps: the stamps of each folder's files, taken before it was loaded.
    """

    name: str
    source: str
    target: str
    translator: Translator
    stamps: Stamps


@dataclass
class _Attempt:
    """The attempts to load a run that has changed.

    Args:
        stamps: the stamps of its files.
        begin: the time when the stamps were first seen, in seconds on the monotonic clock.
        due: the time of the next attempt, on the same clock.
        delay: the seconds to wait after the next failure.
        problems: the problems that were already logged.
    """

    stamps: Stamps
    begin: float
    due: float
    delay: float
    problems: set[str]


@dataclass(eq=False)
class RunEntry:
    """A run folder of a catalog, or the run folders of an ensemble.

    Args:
        paths: the folders.
        source: the code of its source language.
        target: the code of its target language.
        is_named: whether their configs name these languages; after a change they must still do so.
        glossary: terms with fixed translations; None without any.
        run: the loaded run; None if it is not in memory.
        used: the time when a request last used it, in seconds on the monotonic clock.
        attempt: the attempts to load a changed run; None if it has not changed.
        is_settled: whether the weights that loading has read, and searches do not need, have left the memory.
        copy: the copies of the folders from which the run is loaded, and their stamps; None if there are none.
        files: keeps the copies.
    """

    paths: list[Path]
    source: str
    target: str
    is_named: bool
    glossary: Glossary | None = None
    run: ServedRun | None = None
    used: float = 0.0
    attempt: _Attempt | None = None
    is_settled: bool = False
    copy: tuple[Stamps, list[Path]] | None = None
    files: ExitStack = field(default_factory=ExitStack)

    def __str__(self) -> str:
        return f"{self.source} → {self.target}"

    @property
    def name(self) -> str:
        """The paths of its folders."""
        return ", ".join(map(str, self.paths))

    def stamps(self) -> Stamps:
        """Return the stamps of the folders' files now."""
        return tuple(map(stamp_of, self.paths))


class ColdRunError(Exception):
    """Raised when a request needs a run that is not in memory.

    Args:
        entry: the run.
    """

    def __init__(self, entry: RunEntry) -> None:
        super().__init__(str(entry))
        self.entry = entry


class RunCatalog:
    """The runs of a server, loaded from copies of their folders, so that writing to a folder does not change answers.

    Args:
        paths: run folders that are loaded now; those of the same languages are an ensemble.
        languages: the (source, target) of each of them; None to use those of its config.
        load_runs: loads the translator of a folder, or of an ensemble's folders.
        folder: a folder of run folders, each loaded when it is first needed; None without one.
        memory: the memory of this process, in bytes, above which the least recently used runs of `folder` leave the
            memory; None for no limit.
        say: writes a line to the log.

    Raises:
        ArgumentError: a run has no languages, one of `folder` has those of another, the runs of an ensemble have
            different vocabularies, or the memory is too small for a run.
        RunError: a run cannot be loaded.
    """

    def __init__(
        self,
        paths: Sequence[Path],
        languages: Sequence[tuple[str, str] | None],
        load_runs: Callable[[Sequence[Path]], Translator] = load_ensemble,
        *,
        folder: Path | None = None,
        memory: int | None = None,
        say: Callable[[str], None] = lambda line: None,
    ) -> None:
        self._load, self._memory, self._say, self._lock = load_runs, memory, say, threading.Lock()
        self._entries, self._cold = dict[tuple[str, str], RunEntry](), list[RunEntry]()
        self.loads = 0
        for path, pair in zip(paths, languages, strict=True):
            self._add(path, pair)
        for entry in self.entries:
            self.load(entry)
        translators = translators_in(folder, say) if folder is not None else []
        self._cold = [self._add(path, None, is_single=True) for path in translators]
        largest = max(map(_memory_of, self._cold), default=0)
        if memory is not None and (used := devices.resident_memory()) + largest > memory:
            raise ArgumentError(
                f"--memory is too small: the program takes {used / 2**20:,.0f} MiB, and the largest run "
                f"{largest / 2**20:,.0f} MiB more"
            )
        targets: dict[str, set[str]] = {}
        for source, target in sorted(self._entries):
            further = {end for begin, end in self._entries if begin == target and end != source}
            targets.setdefault(source, set()).update({target}, further)
        self._sources: Mapping[str, list[str]] = {source: sorted(of_source) for source, of_source in targets.items()}

    def _add(self, path: Path, pair: tuple[str, str] | None, *, is_single: bool = False) -> RunEntry:
        source, target = pair or _languages_of(path)
        entry = self._entries.setdefault((source, target), RunEntry([], source, target, is_named=pair is None))
        if entry.paths and is_single:
            raise ArgumentError(f"{entry.name} and {path} both translate {source} to {target}: serve one of them")
        entry.paths.append(path)
        return entry

    @property
    def entries(self) -> list[RunEntry]:
        """All runs: those given by their paths in their order, then those of the folder, by name."""
        return list(self._entries.values())

    @property
    def runs(self) -> list[ServedRun]:
        """The loaded runs, in the same order."""
        return [entry.run for entry in self.entries if entry.run is not None]

    @property
    def sources(self) -> Mapping[str, list[str]]:
        """The source languages in alphabetical order, each with its target languages, pivots included."""
        return self._sources

    def route(self, source: str, target: str) -> list[RunEntry]:
        """Return the run from one language to another, or two runs through a third language; empty without any."""
        entries = self._entries
        if entry := entries.get((source, target)):
            return [entry]
        middles = [middle for begin, middle in entries if begin == source and (middle, target) in entries]
        if source == target or not middles:
            return []
        middle = PIVOT if PIVOT in middles else min(middles)
        return [entries[source, middle], entries[middle, target]]

    def use(self, entry: RunEntry) -> ServedRun:
        """Return a loaded run for a request.

        Raises:
            ColdRunError: it is not in memory; `load` loads it.
        """
        entry.used, run = time.monotonic(), entry.run
        if run is None:
            raise ColdRunError(entry)
        return run

    def load(self, entry: RunEntry) -> None:
        """Load a run unless it is in memory; others leave the memory first if it is short.

        A run that is being replaced is waited for; if it cannot be loaded, an earlier copy is.

        Raises:
            ArgumentError: it cannot generate a term of the glossary.
            RunError: it cannot be loaded, or its languages have changed.
        """
        with self._lock:
            for attempt in range(ATTEMPTS):
                if entry.run is not None:
                    return
                self._make_room(_memory_of(entry))
                stamps = entry.stamps()
                try:
                    self._replace(entry, stamps)
                except AttentError as error:
                    if isinstance(error, UnsettledError) and attempt < ATTEMPTS - 1:
                        time.sleep(PAUSE)
                    elif entry.copy is None or entry.copy[0] == stamps:
                        raise
                    else:
                        self._replace(entry, entry.copy[0])

    def close(self) -> None:
        """Delete the copies of runs."""
        for entry in self.entries:
            entry.files.close()

    def reload(self) -> None:
        """Reload runs that have changed on disk; if one cannot be loaded, the loaded one stays in use.

        Pending requests keep the run that they started with. A failed load is retried when the folder changes, and
        otherwise at increasing intervals. Each distinct problem is logged once. Runs leave the memory if it is short.
        """
        for entry in self.entries:
            with self._lock:
                if entry.run is not None:
                    self._reload(entry, entry.run, entry.stamps())
        for entry in self._cold:
            if entry.copy is not None:
                is_new, entry.is_settled = not entry.is_settled, True
                # OSError: a load has replaced the copy
                with suppress(OSError):
                    forget_pages(entry.copy[1][0], is_new=is_new)
                if is_new and entry.run is not None:
                    for parameter in filter(is_mapped, entry.run.translator.model.parameters()):
                        give_back(parameter)
        with self._lock:
            self._make_room(0)

    def _reload(self, entry: RunEntry, run: ServedRun, stamps: Stamps) -> None:
        attempt, now = entry.attempt, time.monotonic()
        if stamps == run.stamps:
            entry.attempt = None
            return
        if attempt is None or attempt.stamps != stamps:
            attempt = _Attempt(stamps, now, now, FIRST_DELAY, attempt.problems if attempt else set())
            entry.attempt = attempt
        if now < attempt.due:
            return
        try:
            self._replace(entry, stamps, attempt)
        except UnsettledError:
            # retried at the next round, with its new stamp or once it has been quiet
            pass
        # anything that a library raises, such as an out-of-memory error
        except Exception as error:
            attempt.due, attempt.delay = time.monotonic() + attempt.delay, min(2 * attempt.delay, LAST_DELAY)
            line = _problem(error)
            if line not in attempt.problems:
                attempt.problems.add(line)
                self._say(f"{run.name} has changed, and cannot be loaded: {line}; the run loaded before stays in use")
        else:
            entry.attempt = None
            self._say(f"{run.name} has changed, and was loaded again")

    def _replace(self, entry: RunEntry, stamps: Stamps, attempt: _Attempt | None = None) -> None:
        """Load the run of an entry from the copies with these stamps, which are made if needed.

        Raises:
            ArgumentError: it cannot generate a term of the glossary.
            RunError: it cannot be loaded, or its languages have changed.
            UnsettledError: it may be incomplete.
        """
        with ExitStack() as files:
            copies = entry.copy[1] if entry.copy and entry.copy[0] == stamps else None
            is_new = copies is None
            if copies is None:
                copies = [files.enter_context(snapshot(*pair)) for pair in zip(entry.paths, stamps, strict=True)]
            if attempt and time.monotonic() < (quiet := attempt.begin + QUIET) and any(map(_has_no_digests, copies)):
                attempt.due = quiet
                raise UnsettledError(f"{entry.name} has no digests and may still be changing")
            pair = entry.source, entry.target
            for path, copy in zip(entry.paths, copies, strict=True):
                files.enter_context(named_as(path, copy))
                if entry.is_named and (languages := _languages_of(copy)) != pair:
                    now = " to ".join(languages)
                    raise RunError(f"{path} now translates {now}, not {entry.source} to {entry.target}")
            translator = self._load(copies)
            if entry.glossary:
                check_terms(entry.glossary, translator.target_tokenizer)
            entry.run = ServedRun(entry.name, *pair, translator, stamps)
            self.loads += 1
            # a run of the folder may leave the memory, and is then loaded from this copy again
            if entry in self._cold and is_new:
                entry.files.close()
                entry.files, entry.copy = files.pop_all(), (stamps, copies)
            entry.is_settled = False

    def _make_room(self, size: int) -> None:
        """Remove the least recently used runs of the folder from memory until `size` bytes fit the limit."""
        while self._memory is not None and devices.resident_memory() + size > self._memory:
            loaded = [entry for entry in self._cold if entry.run is not None]
            if len(loaded) < (1 if size else 2):
                return
            oldest = min(loaded, key=lambda entry: entry.used)
            is_held, oldest.run = weakref.ref(oldest.run), None
            end = time.monotonic() + RELEASE
            while is_held() is not None and time.monotonic() < end:
                time.sleep(0.01)
            if oldest.copy is not None:
                forget_pages(oldest.copy[1][0])
            devices.trim_memory()


def translators_in(folder: Path, say: Callable[[str], None]) -> list[Path]:
    """Return the run folders of translators in a folder, by name; others are logged.

    Raises:
        ArgumentError: the folder cannot be read, or has no translator.
    """
    try:
        candidates = sorted(path for path in folder.iterdir() if (path / CONFIG).is_file())
    except OSError as error:
        raise ArgumentError(f"{folder} cannot be read: {error.strerror}") from error
    result: list[Path] = []
    for path in candidates:
        try:
            _languages_of(path)
            result.append(path)
        except AttentError as error:
            say(f"{path} is not served: {_problem(error)}")
    if not result:
        raise ArgumentError(f"{folder} has no run folder of a translator that names its languages")
    return result


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


def _problem(error: Exception) -> str:
    is_known = isinstance(error, AttentError | OSError)
    return " ".join((str(error) if is_known else f"unexpected {type(error).__name__}: {error}").split())


def _memory_of(entry: RunEntry) -> int:
    """Return about how many bytes of memory a run takes: its packed weights, or its weights and packed ones."""
    return sum(min(sizes) if len(sizes) > 1 else 2 * sum(sizes) for sizes in map(weight_sizes, entry.paths))


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
