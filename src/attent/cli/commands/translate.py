"""attent translate: a filter, one line in and one line out."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from attent.cli.inputs import check_utf8, chunks, decode_lines, display_name, open_source
from attent.cli.options import (
    AUTO,
    Device,
    LengthForm,
    RunFolder,
    TargetLanguage,
    TrustCode,
    Weights,
    device_of,
    known_language,
    loaded,
    search_settings,
)
from attent.cli.output import say, write
from attent.errors import ArgumentError

if TYPE_CHECKING:
    from attent.data.detokenizer import Detokenizer
    from attent.decoding.search import Translation
    from attent.decoding.translator import Engine, Translator
    from attent.runs.config import RunConfig

# Line numbers named in a message.
NAMED = 5
# Lines translated at once: enough to sort them by length, few enough to see results soon.
LINES = 512
SEPARATOR = " ||| "
Format = StrEnum("Format", ("text", "jsonl"))
EngineName = StrEnum("EngineName", ("attent", "ctranslate2", "onnx"))


@dataclass(frozen=True)
class AlignedTranslation:
    """A translation as it is printed: its text, perhaps with unknown pieces replaced, and its alignment if that was asked for."""

    text: str
    alignment: str | None
    translation: Translation


def translate(
    run: RunFolder,
    source: Annotated[str, typer.Argument(metavar="[TEXT|FILE|-]", help="A text, a file of lines, or - for standard input.")] = "-",
    beam: Annotated[int | None, typer.Option(help="Hypotheses kept side by side; greedy search unless given.")] = None,
    n_best: Annotated[int | None, typer.Option(help="Translations of each line; at most the beam, any number of samples.")] = None,
    length_penalty: Annotated[float | None, typer.Option(help="The alpha of Wu et al. (2016); 0.6 unless given.")] = None,
    length_form: LengthForm = None,
    max_length: Annotated[int | None, typer.Option(help="The most tokens of a translation; 2 x source + 32 unless given.")] = None,
    max_factor: Annotated[float | None, typer.Option(help="The same, for each token of the source.")] = None,
    min_length: Annotated[int | None, typer.Option(help="The fewest tokens of a translation.")] = None,
    no_repeat_ngram: Annotated[int | None, typer.Option(help="No run of so many tokens comes twice.")] = None,
    prefix: Annotated[str, typer.Option(help="How every translation must begin.")] = "",
    sample: Annotated[bool, typer.Option("--sample", help="Draw tokens at random.")] = False,
    temperature: Annotated[float | None, typer.Option(help="Of samples: below 1 bolder in what is likely, above 1 wilder.")] = None,
    top_k: Annotated[int | None, typer.Option(help="Draw among so many likeliest tokens.")] = None,
    top_p: Annotated[float | None, typer.Option(help="Draw among the fewest tokens with this probability together.")] = None,
    seed: Annotated[int | None, typer.Option(help="Of samples.")] = None,
    batch: Annotated[int | None, typer.Option(min=1, help="Lines translated side by side; 128 unless given.")] = None,
    batch_tokens: Annotated[int | None, typer.Option(min=1, help="The same in tokens, padding included.")] = None,
    output: Annotated[Format, typer.Option("--format", help="Lines of text, or a JSON object a line with scores in nats.")] = Format.text,
    alignments: Annotated[bool, typer.Option("--alignments", help="Which source word each word came from, as 0-0 1-2.")] = False,
    replace_unknown: Annotated[bool, typer.Option("--replace-unknown", help="Copy what was looked at for unknown pieces.")] = False,
    detokenize: Annotated[bool, typer.Option("--detokenize", help="Join words and signs, and write sentences with a capital.")] = False,
    target_language: TargetLanguage = None,
    engine: Annotated[EngineName, typer.Option(help="What translates; the others read what attent export wrote.")] = EngineName.attent,
    exported: Annotated[Path | None, typer.Option(help="Where attent export wrote it; RUN/export/ENGINE unless given.")] = None,
    dtype: Weights = None,
    device: Device = AUTO,
    trust_code: TrustCode = False,
) -> None:
    """Translate line by line: one line in, one line out, in order.

    What is no file is a text. Characters that the model has never seen are written in a way that it knows where there is
    one (a space for a space, 3 for ３), else reported on standard error; so is a line that is too long for the model. A
    model of dates leaves a line without a year untranslated, and reports that and every answer that is no date; then the
    exit code is 2, once all lines are through.

    With --n-best each translation has a line: number of its source from 0 ||| text ||| scores in parts ||| score. An
    alignment stands behind the text; words are what spaces part, and links those of attent align.

    A text whose spacing is not that of the training text, such as Chinese that is not cut into words for a run that learnt from words, is
    told of on standard error, and so are translations that repeat themselves. --detokenize writes a translation of words and small
    letters as people write the target's language, by sacremoses.

    The engine ctranslate2 draws no samples and takes no prefix; alignments and unknown pieces are looked up by attent alone.
    """
    settings = search_settings(
        beam=beam,
        n_best=n_best,
        length_penalty=length_penalty,
        length_form=length_form,
        maximum_length=max_length,
        maximum_factor=max_factor,
        minimum_length=min_length,
        no_repeat_ngram=no_repeat_ngram,
        sample=sample,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        seed=seed,
    )
    check_utf8(prefix, "--prefix")
    if target_language is not None and not detokenize:
        raise ArgumentError("--target-language goes with --detokenize")
    if batch is not None and batch_tokens is not None:
        raise ArgumentError("a batch is counted in lines or in tokens: give --batch or --batch-tokens")
    from attent.data.batches import BatchSize
    from attent.data.spacing import SpacingCheck
    from attent.data.tokenizer import respell
    from attent.decoding.repetition import is_repetitive
    from attent.decoding.translator import BATCH
    from attent.runs.config import read_config
    from attent.tasks.generated import output_check

    size = BatchSize(tokens=batch_tokens) if batch_tokens is not None else BatchSize(pairs=batch or BATCH)
    own: Translator | None = None
    if engine is EngineName.attent:
        own = loaded(run, device_of(device), "translate", trust_code=trust_code, dtype=dtype)
    if own is None and (alignments or replace_unknown):
        raise ArgumentError(f"--alignments and --replace-unknown look at attention, which the engine {engine} does not show")
    if own is not None and exported is not None:
        raise ArgumentError("--exported is for another engine than attent's own: give --engine")
    translator = own or _load_engine(run, engine, exported)
    config = read_config(run)
    detokenizer = _detokenizer(config, target_language, alignments=alignments) if detokenize else None
    check, is_complete, is_empty = output_check(config.corpus), True, True
    spacing, repetitive = SpacingCheck(config.spacing), list[int]()
    with open_source(source) as stream:
        lines = enumerate(decode_lines(stream, source))
        # a person who types waits for each translation
        for chunk in chunks(lines, 1 if stream.isatty() else LINES):
            is_empty = False
            texts = [respell(line, translator.source_tokenizer) for _, line in chunk]
            refusals = [translator.refusal(text) for text in texts]
            hypotheses = translator.search(texts, settings, prefixes=[prefix] * len(texts), batch=size)
            n_best_lists = _align(own, texts, hypotheses, alignments=alignments, replace_unknown=replace_unknown)
            if detokenizer is not None:
                n_best_lists = [[replace(best, text=detokenizer(best.text)) for best in n_best_list] for n_best_list in n_best_lists]
            for (number, line), text, refusal, translations in zip(chunk, texts, refusals, n_best_lists, strict=True):
                if output is Format.jsonl:
                    write(_json(line, translations, refusal))
                else:
                    for translation in translations:
                        write(_text(number, translation, has_scores=n_best is not None))
                if message := spacing.add(line):
                    say(message)
                if is_repetitive(translations[0].translation.tokens) and not is_repetitive(translator.source_tokenizer.encode(text)):
                    repetitive.append(number + 1)
                is_complete &= _report(number + 1, text, translations[0].text, refusal, translator, check)
            sys.stdout.flush()
    if is_empty:
        say(f"{display_name(source) or 'the text'} is empty: nothing is translated")
    if repetitive:
        count = "a translation repeats itself" if len(repetitive) == 1 else f"{len(repetitive):,} translations repeat themselves"
        say(f"{count}, line {','.join(map(str, repetitive[:NAMED]))}: --no-repeat-ngram 4 forbids that")
    if not is_complete:
        raise typer.Exit(2)


def _detokenizer(config: RunConfig, language: str | None, *, alignments: bool) -> Detokenizer:
    """Return the detokenizer of the target's language, which the command or the run names."""
    from attent.data.detokenizer import Detokenizer

    language = known_language(language) or config.target_language
    if language is None:
        raise ArgumentError("--detokenize needs the target's language, which this run does not name: --target-language en")
    if alignments:
        raise ArgumentError("--alignments number the words of a translation before --detokenize joins them: one of them")
    return Detokenizer(language)


def _load_engine(run: Path, engine: EngineName, exported: Path | None) -> Engine:
    from attent.export.exporting import load

    return load(run, engine.name, exported)


def _align(
    own: Translator | None,
    texts: Sequence[str],
    n_best_lists: Sequence[Sequence[Translation]],
    *,
    alignments: bool,
    replace_unknown: bool,
) -> list[list[AlignedTranslation]]:
    """Return the translations of each text as they are printed; only our own engine has attention to read."""
    from attent.evaluation.aligner import extract_links, merge_to_words, word_indices
    from attent.evaluation.forced_decoding import source_attention
    from attent.evaluation.pharaoh import pharaoh
    from attent.evaluation.unk_replacement import copy_unknown, token_texts

    if own is None or not (alignments or replace_unknown):
        return [[AlignedTranslation(translation.text, None, translation) for translation in n_best] for n_best in n_best_lists]
    source_tokenizer, target_tokenizer = own.source_tokenizer, own.target_tokenizer
    encoded = [source_tokenizer.encode(text) for text in texts]
    rows = [(row, translation.tokens) for row, n_best in enumerate(n_best_lists) for translation in n_best]
    maps = iter(source_attention(own.model, [encoded[row] for row, _ in rows], [tokens for _, tokens in rows]))
    aligned: list[list[AlignedTranslation]] = []
    for source, n_best in zip(texts, n_best_lists, strict=True):
        source_pieces = source_tokenizer.pieces(source)
        source_words = word_indices(source, source_pieces)
        aligned.append([])
        for translation, weights in zip(n_best, maps, strict=False):
            text, pieces = translation.text, token_texts(translation.tokens, target_tokenizer)
            if replace_unknown:
                text, pieces = copy_unknown(translation.tokens, target_tokenizer, weights, source_pieces)
            links = extract_links(merge_to_words(weights, source_words, word_indices(text, pieces))) if alignments else None
            aligned[-1].append(AlignedTranslation(text, None if links is None else pharaoh(links), translation))
    return aligned


def _text(number: int, aligned: AlignedTranslation, *, has_scores: bool) -> str:
    cells = [aligned.text] if aligned.alignment is None else [aligned.text, aligned.alignment]
    if has_scores:
        scores = aligned.translation
        parts = f"log_probability={scores.log_probability:.6f} length_penalty={scores.length_penalty:.6f}"
        cells = [str(number), *cells, parts, f"{scores.score:.6f}"]
    return SEPARATOR.join(cells)


def _json(line: str, translations: Sequence[AlignedTranslation], refusal: str | None) -> str:
    # a text that was not read has no probability
    is_read = bool(line) and refusal is None
    values = [
        {"text": aligned.text}
        | {name: getattr(aligned.translation, name) if is_read else None for name in ("score", "log_probability", "length_penalty")}
        | ({} if aligned.alignment is None else {"alignment": aligned.alignment})
        for aligned in translations
    ]
    return json.dumps({"source": line, "translations": values} | ({} if refusal is None else {"error": refusal}), ensure_ascii=False)


def _report(
    number: int, text: str, translation: str, refusal: str | None, translator: Engine, check: Callable[[str], str | None] | None
) -> bool:
    """Report a line that was refused, unknown pieces, or a malformed translation; return whether the translation is usable."""
    from attent.data.tokenizer import unicode_names, unknown_pieces

    if refusal is None and (pieces := unknown_pieces(text, translator.source_tokenizer)):
        say(f"line {number}: unknown to this model: {', '.join(map(unicode_names, pieces))}")
    problem = refusal or (check(translation) if check is not None and text else None)
    if problem is not None:
        say(f"line {number}: {problem}")
    return problem is None
