"""attent translate: a filter, one line in and one line out."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from attent.cli.glossaries import read_terms
from attent.cli.inputs import check_utf8, decode_lines, display_name, open_source
from attent.cli.options import RunFolder, Search, TargetLanguage, TypedLoading, known_language
from attent.cli.output import say
from attent.cli.translations import align_translations, json_line, report, text_line
from attent.errors import ArgumentError, refuse
from attent.setting import Bound, Help
from attent.text.readers import chunks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from attent.runs.config import RunConfig
    from attent.search.search import SourceText, Translation
    from attent.tasks.translation.engine import Engine
    from attent.tasks.translation.translator import Translator
    from attent.text.batches import BatchSize
    from attent.text.units import Detokenizer

# Line numbers named in a message.
NAMED = 5
# Lines translated at once: enough to sort them by length, few enough to see results soon.
LINES = 512
# Parameters that no translation depends on, and the run, whose files count.
IRRELEVANT = frozenset(("run", "source", "batching", "using", "out", "resume"))
Format = StrEnum("Format", ("text", "jsonl"))
Markup = StrEnum("Markup", ("html", "markdown"))
EngineName = StrEnum("EngineName", ("attent", "ctranslate2", "onnx"))


@dataclass(frozen=True)
class Batching:
    """The size of a batch."""

    batch: Annotated[int | None, Bound(1), Help("Lines per batch; 128 unless given.")] = None
    batch_tokens: Annotated[int | None, Bound(1), Help("Tokens per batch, padding included, instead of --batch.")] = (
        None
    )

    @property
    def size(self) -> BatchSize:
        """The size in lines or in tokens."""
        from attent.tasks.translation.engine import BATCH
        from attent.text.batches import BatchSize

        return (
            BatchSize(pairs=self.batch or BATCH) if self.batch_tokens is None else BatchSize(tokens=self.batch_tokens)
        )


@dataclass(frozen=True)
class Output:
    """Format of the output."""

    format: Annotated[Format, Help("Lines of text, or a JSON object per line with scores in nats.")] = Format.text
    alignments: Annotated[bool, Help("Print word alignments, source-target, such as 0-0 1-2.")] = False
    replace_unknown: Annotated[bool, Help("Replace unknown pieces by the aligned source words.")] = False
    detokenize: Annotated[bool, Help("Detokenize, and capitalize sentences.")] = False
    target_language: TargetLanguage = None


@dataclass(frozen=True)
class DocumentOptions:
    """Format of a document to translate."""

    markup: Annotated[Markup | None, Help("Translate a document, and keep its tags around the same words.")] = None
    each_line: Annotated[bool, Help("With --markup, each line is a document of its own.")] = False


@dataclass(frozen=True)
class EngineOptions:
    """Engine that translates."""

    engine: Annotated[EngineName, Help("Engine; others than attent read what attent export wrote.")] = EngineName.attent
    exported: Annotated[Path | None, Help("Folder that attent export wrote; RUN/export/ENGINE unless given.")] = None


def translate(
    run: RunFolder,
    search: Search,
    batching: Batching,
    output: Output,
    document: DocumentOptions,
    using: EngineOptions,
    loading: TypedLoading,
    source: Annotated[
        str, typer.Argument(metavar="[TEXT|FILE|-]", help="A text, a file of lines, or - for standard input.")
    ] = "-",
    prefix: Annotated[str, Help("Text that every translation must begin with.")] = "",
    glossary: Annotated[Path | None, Help("Glossary: a term, a tab and its translation in a line.")] = None,
    out: Annotated[Path | None, Help("Output file, which must not exist; progress is printed.")] = None,
    resume: Annotated[bool, Help("Resume an interrupted --out; start it if there is none.")] = False,
) -> None:
    """Translate a text, a file of lines, or a document.

    Each input line gives one output line, in order; an argument that is not a file is translated as text. Characters
    that the model does not know are replaced by equivalents if there are any (a space for a no-break space, 3 for ３);
    other unknown characters and lines that are too long for the model are reported on standard error. A run on dates
    leaves a line without a year untranslated, and reports it and every output that is not a date; the exit code is
    then 2, after all lines.

    With --n-best, each translation has a line: line number from 0 ||| text ||| partial scores ||| score. With
    --alignments, the links follow the text; words are separated by spaces, and the links are those of attent align.

    Text whose spacing differs from that of the training text, such as unsegmented Chinese for a run trained on words,
    and translations that repeat themselves are reported on standard error. --detokenize joins words and punctuation and
    restores capitals for the target language, with sacremoses.

    A file that ends in .docx, .odt, .srt, .html or .md is translated as a document, into --out with the same ending:
    every tag and format is kept once, nested as before, around the words that are aligned with its own. --markup html
    or markdown does the same for text from any source, as a whole, or with --each-line as one document per line.
    Sentences that the run refuses, and markup that cannot be parsed, stay unchanged.

    --glossary FILE lists terms and their translations, such as dog, a tab, Köter. Only the exact form of a term
    matches, in any case unless the run distinguishes cases; the longest of several matching terms is used. Lines
    without a term are translated as without a glossary.

    --out FILE is written as FILE.part until it is complete. After an interruption, the same command with --resume
    continues, and the result is the same as without the interruption. It refuses to continue if the run, an option or
    the lines differ.

    The engine ctranslate2 supports neither sampling nor prefixes; --alignments and --replace-unknown need the engine
    attent.
    """
    options = {name: str(value) for name, value in locals().items() if name not in IRRELEVANT}
    from attent.cli.documents import ENDINGS, ending_of, read_file, translate_file, translate_markup

    options["engine"] = using.engine.name
    settings, engine, exported, markup = search.settings(), using.engine, using.exported, document.markup
    has_scores = "n_best" in search.values
    check_utf8(prefix, "--prefix")
    ending = ending_of(source, out) if markup is None else ""
    if output.target_language is not None and not output.detokenize:
        raise ArgumentError("--target-language goes with --detokenize")
    refuse(
        (document.each_line and markup is None, "--each-line is for documents: --markup html or markdown"),
        (
            (markup is not None or ending)
            and (
                output.alignments
                or output.replace_unknown
                or output.detokenize
                or has_scores
                or output.format is Format.jsonl
            ),
            (
                f"{'--markup' if markup else ending} gives documents back: none of --alignments, --replace-unknown, "
                "--detokenize, --n-best, --format jsonl goes with it"
            ),
        ),
    )
    if resume and out is None:
        raise ArgumentError("--resume goes on with the file of --out")
    if batching.batch is not None and batching.batch_tokens is not None:
        raise ArgumentError("a batch is counted in lines or in tokens: give --batch or --batch-tokens")
    from attent.runs.config import read_config
    from attent.runs.results import ResultFile, Results, is_there
    from attent.search.constraints import is_repetitive
    from attent.tasks.dates.generated import output_check
    from attent.tasks.translation.term_search import TermSearch
    from attent.tasks.translation.translator import load
    from attent.text.units import SpacingCheck

    if out is not None and resume and is_there(out):
        say(f"{out} is there already: nothing is left to do")
        return
    size = batching.size
    own: Translator | None = None
    if engine is EngineName.attent:
        own = loading.tool(run, load)
    if own is None and (output.alignments or output.replace_unknown or markup or ending):
        raise ArgumentError(
            f"--alignments, --replace-unknown, --markup and documents look at attention, which the engine {engine} "
            "does not show"
        )
    if own is not None and exported is not None:
        raise ArgumentError("--exported is for another engine than attent's own: give --engine")
    refuse(
        (
            glossary is not None and own is None,
            f"--glossary places terms by attention, which the engine {engine} does not show",
        ),
        (glossary is not None and settings.sample, "--glossary is for a search, and --sample draws: one of them"),
    )
    terms = read_terms(glossary, own.target_tokenizer) if glossary is not None and own is not None else None
    options["glossary"] = "" if terms is None else str(terms.entries)
    translator = own or _load_engine(run, engine, exported)
    config = read_config(run)
    detokenizer = _detokenizer(config, output) if output.detokenize else None
    check, is_empty = output_check(config.corpus), True
    spacing, repetitive = SpacingCheck(config.spacing), list[int]()
    if out is not None:
        options |= _fingerprint(run, engine, exported)

    search_texts = translator.search if own is None or terms is None else TermSearch(own, terms)

    def translate_lines(texts: Sequence[str | SourceText]) -> list[list[Translation]]:
        return search_texts(texts, settings, prefixes=[prefix] * len(texts), batch=size)

    file = read_file(source, ending) if ending and out is not None else None
    with (
        open_source(source) as stream,
        Results() if out is None else ResultFile(out, options, resume=resume, say=say) as results,
    ):
        is_complete, lines, kind = results.is_complete, iter(()), markup.name if markup else ENDINGS.get(ending)
        if own is not None and file is not None and isinstance(results, ResultFile):
            has_any, is_complete = translate_file(own, file, results, translate_lines)
            is_empty = not has_any
        elif own is not None and kind is not None:
            has_any, is_complete = translate_markup(
                own, stream, source, kind, results, translate_lines, each_line=document.each_line
            )
            is_empty = not has_any
        else:
            lines = results.remaining(decode_lines(stream, source))
        # a person who types waits for each translation
        for chunk in chunks(lines, 1 if stream.isatty() else LINES):
            is_empty = False
            n_best_lists = align_translations(
                own,
                translate_lines([line for _, line in chunk]),
                alignments=output.alignments,
                replace_unknown=output.replace_unknown,
            )
            if detokenizer is not None:
                n_best_lists = [
                    [replace(best, text=detokenizer(best.text)) for best in n_best_list] for n_best_list in n_best_lists
                ]
            for (number, line), translations in zip(chunk, n_best_lists, strict=True):
                best = translations[0].translation
                if output.format is Format.jsonl:
                    results.write(json_line(translations))
                else:
                    for translation in translations:
                        results.write(text_line(number, translation, has_scores=has_scores))
                if message := spacing.add(line):
                    say(message)
                if is_repetitive(best.tokens) and not is_repetitive(best.source.ids):
                    repetitive.append(number + 1)
                is_complete &= report(number + 1, translations[0], translator, check)
            results.commit([line for _, line in chunk], is_complete=is_complete)
        results.finish(f"the translation of {source}" if ending else None)
    if is_empty:
        say(f"{display_name(source) or 'the text'} is empty: nothing is translated")
    if repetitive:
        count = (
            "a translation repeats itself"
            if len(repetitive) == 1
            else f"{len(repetitive):,} translations repeat themselves"
        )
        say(f"{count}, line {','.join(map(str, repetitive[:NAMED]))}: --no-repeat-ngram 4 forbids that")
    if not is_complete:
        raise typer.Exit(2)


def _fingerprint(run: Path, engine: EngineName, exported: Path | None) -> dict[str, str]:
    """Return the SHA-256 of each file that translations of a run or of its export depend on, and attent's version."""
    from attent.formats.manifest import EXPORTS
    from attent.runs.config import CONFIG, read_config, version_of
    from attent.runs.folder import MODEL, tokenizer_file
    from attent.runs.weights import digest

    files = [run / name for name in (CONFIG, *map(tokenizer_file, read_config(run).tokenizers))]
    folder = exported or run / EXPORTS / engine.name
    files += (
        [run / MODEL] if engine is EngineName.attent else sorted(file for file in folder.rglob("*") if file.is_file())
    )
    return {str(file): digest(file) for file in files} | {"attent": version_of("attent")}


def _detokenizer(config: RunConfig, output: Output) -> Detokenizer:
    """Return the detokenizer of the target's language, which the command or the run names."""
    from attent.text.units import Detokenizer

    language = known_language(output.target_language) or config.target_language
    if language is None:
        raise ArgumentError(
            "--detokenize needs the target's language, which this run does not name: --target-language en"
        )
    if output.alignments:
        raise ArgumentError(
            "--alignments number the words of a translation before --detokenize joins them: one of them"
        )
    return Detokenizer(language)


def _load_engine(run: Path, engine: EngineName, exported: Path | None) -> Engine:
    from attent.formats.exporting import load

    return load(run, engine.name, exported)
