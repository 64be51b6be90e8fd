"""attent export: a translator or a language model for another engine."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

from attent.cli.options import RunFolder, TrustCode
from attent.cli.output import say, write
from attent.errors import ArgumentError
from attent.setting import Help
from attent.text.sources import check_utf8

# The engines that a run can be exported to, and a format.
Target = StrEnum("Target", ("ctranslate2", "onnx", "marian"))


def export(
    run: RunFolder,
    to: Annotated[
        Target,
        Help(
            "ctranslate2, for Transformers of its own parts; onnx, for all translators and language models; marian, a "
            "folder that Hugging Face's transformers reads."
        ),
    ],
    out: Annotated[Path | None, Help("Output folder; RUN/export/ENGINE unless given.")] = None,
    quantization: Annotated[
        str | None, Help("Type of the weights in CTranslate2's terms: int8, int8_float32, …")
    ] = None,
    source: Annotated[Path | None, Help("Lines to compare both engines on; the run's validation unless given.")] = None,
    target: Annotated[Path | None, Help("References of --source, for BLEU and chrF2.")] = None,
    trust_code: TrustCode = False,
) -> None:
    """Write a translator for CTranslate2 or onnxruntime, and compare that engine with attent's own.

    Both engines translate the first lines of --source, or of the run's validation set, greedily and with a beam of 5.
    The number of differences is printed, with the first of them, and BLEU and chrF2 of both if there are references.
    `attent translate RUN --engine ENGINE` then translates with that engine. A language model is written as one graph,
    from tokens to logits.
    """
    from attent.formats.exporting import export as export_run
    from attent.runs.config import read_config
    from attent.tasks.text_generation.task import TextGenerationTask
    from attent.tasks.translation.task import TranslationTask

    if target is not None and source is None:
        raise ArgumentError("references go with lines to translate: --source FILE --target FILE")
    if (config := read_config(run)).task == TextGenerationTask.name and to is Target.onnx:
        if quantization is not None:
            raise ArgumentError(f"{run} is written as ONNX in float32 alone: a language model takes no --quantization")
        if target is not None:
            raise ArgumentError("--target is for a run that translates, not for one that generates text")
        _export_language_model(run, out, source, trust_code=trust_code)
        return
    TranslationTask().check_config(run, config)
    if to is Target.marian:
        if quantization is not None or source is not None:
            raise ArgumentError(
                "a Marian checkpoint is written in float32 and not compared: it takes neither --quantization nor "
                "--source"
            )
        _export_marian(run, out or run / "export" / to.name, trust_code=trust_code)
        return
    # the engines take UTF-8 names alone
    check_utf8(str(out or run), "--out" if out else "the run's name")
    say(f"writing {run} for {to}, and comparing")
    folder, comparison = export_run(
        run, to.name, out, quantization=quantization, sample=source, references=target, trust_code=trust_code
    )
    write("\n".join(comparison.report(to.name if quantization is None else f"{to.name}, {quantization}")))
    print(folder)


def _export_marian(run: Path, folder: Path, *, trust_code: bool) -> None:
    from attent.formats.marian import write as write_marian
    from attent.tasks.translation.task import TranslationTask

    read_run = TranslationTask().read(run, trust_code=trust_code)
    write_marian(read_run, str(run), folder)
    if read_run.config.tokenizers["source"] != "sentencepiece":
        say("its sources end without </s>: MarianTokenizer makes them with add_special_tokens=False")
    print(folder)


def _export_language_model(run: Path, out: Path | None, sample: Path | None, *, trust_code: bool) -> None:
    from attent.formats.onnx import export as export_run

    check_utf8(str(out or run), "--out" if out else "the run's name")
    say(f"writing {run} for onnx, and comparing")
    folder, difference = export_run(run, out, sample=sample, trust_code=trust_code)
    write(f"log-probabilities differ from attent's own by {difference:.1e} nats at most")
    print(folder)
