"""attent translate: translate lines, texts and documents."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from attent.cli.options import Given, RunFolder, Search, TargetLanguage, TypedLoading, is_run, known_language
from attent.cli.output import say
from attent.errors import ArgumentError, refuse
from attent.setting import Bound, Help
from attent.text.readers import chunks, display_name
from attent.text.sources import check_utf8, decode_lines, open_source

if TYPE_CHECKING:
    from attent.runs.config import RunConfig
    from attent.runs.results import Results
    from attent.search.search import SourceText, Translation
    from attent.search.settings import SearchSettings
    from attent.tasks.translation.glossary import Glossary
    from attent.tasks.translation.translation_lines import LineTranslator
    from attent.tasks.translation.translator import Translator
    from attent.text.units import Detokenizer

    # Returns the translations of each text, best first.
    SearchTexts = Callable[[Sequence[str | SourceText]], list[list[Translation]]]

# Lines translated at a time: enough to sort by length, and few enough for early results.
LINES = 512
# Endings of document files. A .txt is a file of lines.
ENDINGS = (".html", ".md", ".srt", ".docx", ".odt")
# Maximum characters of a sentence shown in a message.
NAMED = 60
Format = StrEnum("Format", ("text", "jsonl"))
More = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[RUN]… [TEXT|FILE|-]",
        help="Runs with the same vocabularies, for an ensemble; then a text, a file of lines, or - for standard input.",
    ),
]


@dataclass(frozen=True)
class Output:
    """Options for the format of the output."""

    format: Annotated[Format, Help("Lines of text, or JSON objects with scores in nats.")] = Format.text
    alignments: Annotated[bool, Help("Print word alignments, source-target, such as 0-0 1-2.")] = False
    replace_unknown: Annotated[bool, Help("Replace unknown pieces by the aligned source words.")] = False
    detokenize: Annotated[bool, Help("Detokenize, and capitalize sentences.")] = False
    target_language: TargetLanguage = None
    confidence: Annotated[bool, Help("Add confidences from 0 to 1, and warnings, to --format jsonl.")] = False
    minimum_confidence: Annotated[
        float | None, Bound(0, 1), Help("Confidence below which a line stays untranslated.")
    ] = None

    def detokenizer(self, config: RunConfig) -> Detokenizer | None:
        """Return the detokenizer for the target language of the command or the run; None without --detokenize."""
        from attent.text.units import Detokenizer

        if not self.detokenize:
            return None
        language = known_language(self.target_language) or config.target_language
        if language is None:
            raise ArgumentError(
                "--detokenize needs the target language, which this run does not name: --target-language CODE"
            )
        if self.alignments:
            raise ArgumentError("--alignments refers to words before --detokenize joins them: give one of the two")
        return Detokenizer(language)


@dataclass(frozen=True)
class Wording:
    """Options for words that translations must contain."""

    prefix: Annotated[str, Help("Text that every translation must begin with.")] = ""
    glossary: Annotated[Path | None, Help("Glossary: lines of term, tab, translation.")] = None


@dataclass(frozen=True)
class OutputFile:
    """Options for the output file."""

    out: Annotated[Path | None, Help("Output file, which must not exist.")] = None
    resume: Annotated[bool, Help("Resume an interrupted --out, or start it.")] = False

    def is_finished(self) -> bool:
        """Return whether --resume has nothing left to do, which is reported."""
        from attent.runs.results import is_there

        if not self.resume or self.out is None or not is_there(self.out):
            return False
        say(f"{self.out} already exists: nothing is left to do")
        return True

    def results(self, runs: Sequence[Path], options: dict[str, object]) -> Results:
        """Return the results on standard output or in the file, which stores the options for --resume."""
        from attent.runs.results import ResultFile, Results

        if self.out is None:
            return Results()
        settings = {name: str(value) for name, value in options.items()}
        for run in runs:
            settings |= _fingerprint(run)
        return ResultFile(self.out, settings, resume=self.resume, say=say)


def translate(
    run: RunFolder,
    search: Search,
    output: Output,
    loading: TypedLoading,
    *,
    more: More = None,
    wording: Wording,
    file: OutputFile,
    batch: Annotated[int, Bound(1), Help("Lines per batch.")] = 128,
) -> None:
    """Translate a text, a file of lines, or a document.

    Each input line gives one output line, in order; an argument that is not a file is translated as text. Unknown
    characters are replaced with equivalents if possible (a space for a no-break space, 3 for ３). Other unknown
    characters, lines that are too long, spacing unlike the training text's, and translations that repeat themselves are
    reported on standard error. A run on dates leaves a line without a year untranslated. The exit code is 2, after all
    lines, if a line has no usable translation.

    With --n-best, each translation has a line: line number from 0 ||| text ||| partial scores ||| score. With
    --alignments, the links follow the text; they are those of attent align.

    A file that ends in .docx, .odt, .srt, .html or .md is translated as a document into --out, with the same ending.
    Every tag and format is kept once, nested as before, around the aligned words. Sentences that the run refuses, and
    markup that cannot be parsed, stay unchanged.

    Several runs with the same vocabularies are an ensemble: the probabilities of each next token are averaged.

    A --glossary matches only the exact form of a term, in any case unless the run distinguishes cases; the longest
    matching term is used.

    With --confidence, JSON has the probability that the best translation is usable, and that each of its words is right
    (as the model wrote it), for a run that attent calibrate has calibrated.

    --out FILE is written as FILE.part until it is complete. After an interruption, the same command with --resume
    continues, unless the run, an option or the lines differ.
    """
    settings, (runs, source) = search.settings(), _runs_and_source(run, more or [])
    ending = _document_ending(source, file.out)
    _check(search, output, wording, file, ending)
    if file.is_finished():
        return
    translator, search_texts, terms = _load(runs, loading, wording, settings, batch)
    options: dict[str, object] = {"search": search, "output": output, "loading": loading}
    options |= {"prefix": wording.prefix, "glossary": terms.entries if terms else ""}
    if ending and file.out is not None:
        is_complete = _translate_document(translator, search_texts, source, file.out)
    else:
        line_translator = _line_translator(run, translator, search_texts, output, scores="n_best" in search.values)
        with open_source(source) as stream, file.results(runs, options) as results:
            texts, size = decode_lines(stream, source), 1 if stream.isatty() else LINES
            is_complete = _write(line_translator, texts, results, size)
            results.finish()
            if line_translator.is_empty:
                say(f"{display_name(source) or 'the text'} is empty: nothing to translate")
    if not is_complete:
        raise typer.Exit(2)


def _check(
    search: Given[SearchSettings],
    output: Output,
    wording: Wording,
    file: OutputFile,
    ending: str,
) -> None:
    """Check that the options go together."""
    check_utf8(wording.prefix, "--prefix")
    changes_lines = output.alignments or output.replace_unknown or output.detokenize or "n_best" in search.values
    is_json = output.format is Format.jsonl
    refuse(
        (output.target_language is not None and not output.detokenize, "--target-language goes with --detokenize"),
        (
            ending and (changes_lines or is_json),
            f"{ending} is a document: omit --alignments, --replace-unknown, --detokenize, --n-best and --format jsonl",
        ),
        (output.confidence and not is_json, "--confidence goes with --format jsonl"),
        (ending and output.minimum_confidence is not None, f"{ending} is a document: omit --minimum-confidence"),
        (file.resume and file.out is None, "--resume needs the file to resume: --out FILE"),
        (
            wording.glossary is not None and "sample" in search.values,
            "give --glossary or --sample, not both",
        ),
    )


def _runs_and_source(run: Path, more: Sequence[str]) -> tuple[list[Path], str]:
    """Return the runs that come before the text, and the text; standard input if there is none."""
    count = len(more) - (bool(more) and not is_run(more[-1]))
    for path in more[:count]:
        if not is_run(path):
            raise ArgumentError(f"{path!r} is not a run folder: quote a text of several words")
    return [run, *map(Path, more[:count])], "-" if count == len(more) else more[-1]


def _document_ending(source: str, out: Path | None) -> str:
    """Return the ending of a document file, or "" for anything else; raise `ArgumentError` if `out` does not fit."""
    ending = Path(source).suffix.lower()
    # a long text is not a file name
    if ending not in ENDINGS or len(source) > 4_096 or not Path(source).is_file():
        return ""
    refuse(
        (
            out is None,
            f"{source} is a document: name its translation with --out FILE{ending}",
        ),
        (
            out is not None and out.suffix.lower() != ending,
            f"{source} is a document: --out must end in {ending} too, got {out}",
        ),
    )
    return ending


def _load(
    runs: Sequence[Path], loading: TypedLoading, wording: Wording, settings: SearchSettings, batch: int
) -> tuple[Translator, SearchTexts, Glossary | None]:
    """Return the translator of a run or an ensemble, a function that searches with it, and the glossary, if any."""
    from attent.tasks.translation.term_search import TermSearch, read_terms
    from attent.tasks.translation.translator import load_ensemble

    translator = loading.tool(runs, load_ensemble)
    terms = None if wording.glossary is None else read_terms(wording.glossary, translator.target_tokenizer)
    search = translator.search if terms is None else TermSearch(translator, terms)

    def search_texts(texts: Sequence[str | SourceText]) -> list[list[Translation]]:
        return search(texts, settings, prefixes=[wording.prefix] * len(texts), batch=batch)

    return translator, search_texts, terms


def _translate_document(translator: Translator, search: SearchTexts, source: str, out: Path) -> bool:
    """Write the translation of a document file; return whether every sentence was translated."""
    from attent.documents import translate as translate_document
    from attent.runs.durable import new_file

    if out.exists():
        raise ArgumentError(f"{out} already exists: name another file, or remove it")
    is_complete = True

    def refuse(document: int, sentence: str, reason: str) -> None:
        nonlocal is_complete
        say(f"{sentence[:NAMED]!r}: {reason}")
        is_complete = False

    with new_file(out) as draft:
        # fails here, not after the translation, if it cannot be written
        draft.touch()
        draft.write_bytes(translate_document(source, translator, search=search, refuse=refuse))
    say(f"{out}: the translation of {source}")
    return is_complete


def _line_translator(
    run: Path, translator: Translator, search_texts: SearchTexts, output: Output, *, scores: bool
) -> LineTranslator:
    """Return the translator of lines for these options."""
    from attent.runs.config import read_config
    from attent.tasks.translation.confidence import calibration_of
    from attent.tasks.translation.translation_lines import LineFormat, LineTranslator

    config = read_config(run)
    minimum = 0.0 if output.confidence and output.minimum_confidence is None else output.minimum_confidence
    if minimum is not None:
        # fails here, before the output file is made
        calibration_of(translator)
    line_format = LineFormat(
        as_json=output.format is Format.jsonl,
        scores=scores,
        alignments=output.alignments,
        replace_unknown=output.replace_unknown,
        detokenizer=output.detokenizer(config),
        minimum_confidence=minimum,
    )
    return LineTranslator(translator, search_texts, say, config, line_format)


def _write(translator: LineTranslator, texts: Iterator[str], results: Results, size: int) -> bool:
    """Write the translations of lines; return whether all of them are usable."""
    is_complete = results.is_complete
    for chunk in chunks(results.remaining(texts), size):
        translations, is_usable = translator.translate(chunk)
        for translation in translations:
            results.write(translation)
        is_complete &= is_usable
        results.commit([text for _, text in chunk], is_complete=is_complete)
    if translator.warning:
        say(translator.warning)
    return is_complete


def _fingerprint(run: Path) -> dict[str, str]:
    """Return the SHA-256 of each file that a run's translations depend on, and the version of attent."""
    from attent.runs.config import CONFIG, read_config, version_of
    from attent.runs.folder import MODEL, tokenizer_file
    from attent.runs.weights import digest
    from attent.tasks.translation.calibration import CONFIDENCE

    files = [run / name for name in (CONFIG, MODEL, *map(tokenizer_file, read_config(run).tokenizers))]
    files += [file] if (file := run / CONFIDENCE).is_file() else []
    return {str(file): digest(file) for file in files} | {"attent": version_of("attent")}
