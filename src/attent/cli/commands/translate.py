"""attent translate: a filter, one line in and one line out."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from attent.cli.lines import as_utf8, lines_of, opened, some_at_a_time
from attent.cli.options import Device, TrustCode, device_of, loaded
from attent.cli.output import say, write
from attent.devices import AUTO
from attent.errors import ArgumentError

if TYPE_CHECKING:
    from attent.decoding.hypothesis import Translation
    from attent.decoding.settings import SearchSettings
    from attent.decoding.translator import Translator
    from attent.export.comparison import Engine

# Lines translated together: enough to sort them by length, few enough to see results soon.
LINES = 512
BETWEEN = " ||| "
# How a number's bounds are called in a message.
BOUNDS = {"ge": "at least", "gt": "above", "le": "at most", "lt": "below"}


class Format(StrEnum):
    """How translations are written."""

    text = "text"
    jsonl = "jsonl"


class EngineName(StrEnum):
    """What translates."""

    attent = "attent"
    ctranslate2 = "ctranslate2"
    onnx = "onnx"


@dataclass(frozen=True)
class Written:
    """What is written of one translation."""

    text: str
    alignment: str | None
    found: Translation


def translate(
    run: Annotated[Path, typer.Argument(help="The run folder.")],
    source: Annotated[str, typer.Argument(metavar="[TEXT|FILE|-]", help="A text, a file of lines, or - for standard input.")] = "-",
    beam: Annotated[int | None, typer.Option(help="Hypotheses kept side by side; greedy search unless given.")] = None,
    n_best: Annotated[int | None, typer.Option(help="Translations of each line; at most the beam, any number of samples.")] = None,
    length_penalty: Annotated[float | None, typer.Option(help="The alpha of Wu et al. (2016); 0.6 unless given.")] = None,
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
    engine: Annotated[EngineName, typer.Option(help="What translates; the others read what attent export wrote.")] = EngineName.attent,
    exported: Annotated[Path | None, typer.Option(help="Where attent export wrote it; RUN/export/ENGINE unless given.")] = None,
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

    The engine ctranslate2 draws no samples and takes no prefix; alignments and unknown pieces are looked up by attent alone.
    """
    settings = search_settings(
        beam=beam,
        n_best=n_best,
        length_penalty=length_penalty,
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
    as_utf8(prefix, "--prefix")
    if batch is not None and batch_tokens is not None:
        raise ArgumentError("a batch is counted in lines or in tokens: give --batch or --batch-tokens")
    from attent.data.batches import BatchSize
    from attent.decoding.translator import BATCH
    from attent.runs.config import read_config

    size = BatchSize(tokens=batch_tokens) if batch_tokens is not None else BatchSize(pairs=batch or BATCH)
    own: Translator | None = None
    if engine is EngineName.attent:
        own = loaded(run, device_of(device), "translate", trust_code=trust_code)
    if own is None and (alignments or replace_unknown):
        raise ArgumentError(f"--alignments and --replace-unknown look at attention, which the engine {engine} does not show")
    if own is not None and exported is not None:
        raise ArgumentError("--exported is for another engine than attent's own: give --engine")
    translator, dates, well = own or _other(run, engine, exported), "dates" in read_config(run).corpus, True
    with opened(source) as stream:
        lines = enumerate(lines_of(stream, source))
        # somebody who types wants each answer at once
        for some in some_at_a_time(lines, 1 if stream.isatty() else LINES):
            texts = [_as_known(line, translator) for _, line in some]
            reasons = [translator.refusal(text) for text in texts]
            translations = translator.search(texts, settings, prefixes=[prefix] * len(texts), batch=size)
            written = _written(own, texts, translations, alignments=alignments, replace_unknown=replace_unknown)
            for (number, line), text, why, best in zip(some, texts, reasons, written, strict=True):
                as_json = output is Format.jsonl
                for one in _json(line, best, why) if as_json else _text(number, best, scores=n_best is not None):
                    write(one)
                well &= _is_well(number + 1, text, best[0].text, why, translator, dates=dates)
            sys.stdout.flush()
    if not well:
        raise typer.Exit(2)


def _other(run: Path, engine: EngineName, exported: Path | None) -> Engine:
    from attent.export.exporting import load

    return load(run, engine.value, exported)


def search_settings(**given: Any) -> SearchSettings:
    """The settings of a search, of those options that were given.

    Raises:
        ArgumentError: a value cannot be used, or two do not go together.
    """
    from pydantic import ValidationError

    from attent.decoding.settings import SearchSettings

    try:
        return SearchSettings(**{name: value for name, value in given.items() if value is not None})
    except ValidationError as error:
        first = error.errors()[0]
        context = first.get("ctx", {})
        limit = next((f"{words} {context[bound]:g}, got {first['input']}" for bound, words in BOUNDS.items() if bound in context), "")
        limit = f"a finite number, got {first['input']}" if first["type"] == "finite_number" else limit
        if not limit or not first["loc"]:
            raise ArgumentError(first["msg"].removeprefix("Value error, ")) from error
        option = str(first["loc"][0]).replace("maximum", "max").replace("minimum", "min").replace("_", "-")
        raise ArgumentError(f"--{option} must be {limit}") from error


def _as_known(line: str, translator: Engine) -> str:
    from attent.data.tokenizer import respell

    return respell(line, translator.source_tokenizer)


def _written(
    own: Translator | None,
    texts: Sequence[str],
    translations: Sequence[Sequence[Translation]],
    *,
    alignments: bool,
    replace_unknown: bool,
) -> list[list[Written]]:
    """What is written of each text's translations; only our own engine can say what was looked at."""
    from attent.evaluation.aligner import extract_links, merge_to_words, word_indices
    from attent.evaluation.forced_decoding import source_attention
    from attent.evaluation.pharaoh import pharaoh
    from attent.evaluation.unk_replacement import copy_unknown, token_texts

    if own is None or not (alignments or replace_unknown):
        return [[Written(one.text, None, one) for one in best] for best in translations]
    reader, writer = own.source_tokenizer, own.target_tokenizer
    encoded = [reader.encode(text) for text in texts]
    every = [(place, one.tokens) for place, best in enumerate(translations) for one in best]
    maps = iter(source_attention(own.model, [encoded[place] for place, _ in every], [tokens for _, tokens in every]))
    written: list[list[Written]] = []
    for text, best in zip(texts, translations, strict=True):
        read = reader.pieces(text)
        from_words = word_indices(text, read)
        written.append([])
        for one in best:
            weights = next(maps)
            said, pieces = one.text, token_texts(one.tokens, writer)
            if replace_unknown:
                said, pieces = copy_unknown(one.tokens, writer, weights, read)
            alignment = pharaoh(extract_links(merge_to_words(weights, from_words, word_indices(said, pieces)))) if alignments else None
            written[-1].append(Written(said, alignment, one))
    return written


def _text(number: int, best: Sequence[Written], *, scores: bool) -> Iterator[str]:
    for one in best:
        found = one.found
        parts = f"log_probability={found.log_probability:.6f} length_penalty={found.length_penalty:.6f}", f"{found.score:.6f}"
        aligned = () if one.alignment is None else (one.alignment,)
        yield BETWEEN.join((str(number), one.text, *aligned, *parts) if scores else (one.text, *aligned))


def _json(line: str, best: Sequence[Written], why: str | None) -> Iterator[str]:
    # a text that was not read has no probability
    is_read = bool(line) and why is None
    translations = [
        {"text": one.text}
        | {name: getattr(one.found, name) if is_read else None for name in ("score", "log_probability", "length_penalty")}
        | ({} if one.alignment is None else {"alignment": one.alignment})
        for one in best
    ]
    yield json.dumps({"source": line, "translations": translations} | ({} if why is None else {"error": why}), ensure_ascii=False)


def _is_well(number: int, text: str, translation: str, why: str | None, translator: Engine, *, dates: bool) -> bool:
    """Say what is strange about a line or its translation, and whether there is an answer that can be used."""
    from attent.data.dates.checks import is_date
    from attent.data.tokenizer import unicode_names, unknown_pieces

    if why is not None:
        say(f"line {number}: {why}")
        return False
    if strange := unknown_pieces(text, translator.source_tokenizer):
        say(f"line {number}: unknown to this model: {', '.join(map(unicode_names, strange))}")
    if dates and text and not is_date(translation):
        say(f"line {number}: the answer {translation!r} is no date")
        return False
    return True
