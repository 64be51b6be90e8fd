"""attent export: write a translator or a language model for another engine."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

from attent.cli.options import RunFolder, TrustCode
from attent.cli.output import say, write
from attent.errors import ArgumentError
from attent.setting import Help
from attent.text.sources import check_utf8

# The engines that a run can be exported to, and the Marian format.
Target = StrEnum("Target", ("ctranslate2", "onnx", "marian"))


def export(
    run: RunFolder,
    to: Annotated[
        Target,
        Help(
            "ctranslate2, for Transformers whose parts it supports; onnx, for all translators and language models; "
            "marian, a folder for Hugging Face's transformers."
        ),
    ],
    out: Annotated[Path | None, Help("Output folder; RUN/export/ENGINE unless given.")] = None,
    quantization: Annotated[str | None, Help("CTranslate2's type of the weights: int8, int8_float32, …")] = None,
    source: Annotated[Path | None, Help("Lines to compare both engines on; the validation set unless given.")] = None,
    target: Annotated[Path | None, Help("References of --source, for BLEU and chrF2.")] = None,
    trust_code: TrustCode = False,
) -> None:
    """Write a translator for CTranslate2 or onnxruntime, and compare that engine with attent.

    Both engines translate the first lines greedily and with a beam of 5. The number of differences is printed with the
    first ones, and BLEU and chrF2 of both if there are references. `attent translate RUN --engine ENGINE` then
    translates with that engine. A language model is written as one graph, from tokens to logits.
    """
    from attent.formats.exporting import export as export_run
    from attent.runs.config import read_config
    from attent.tasks.text_generation.task import TextGenerationTask
    from attent.tasks.translation.task import TranslationTask

    if target is not None and source is None:
        raise ArgumentError("references need lines to translate: --source FILE --target FILE")
    if (config := read_config(run)).task == TextGenerationTask.name and to is Target.onnx:
        if quantization is not None:
            raise ArgumentError(f"{run} is a language model, which is written in float32 only: omit --quantization")
        if target is not None:
            raise ArgumentError("--target is for a run that translates, not for a language model")
        _export_language_model(run, out, source, trust_code=trust_code)
        return
    TranslationTask().check_config(run, config)
    if to is Target.marian:
        if quantization is not None or source is not None:
            raise ArgumentError(
                "a Marian checkpoint is written in float32 and not compared: omit --quantization and --source"
            )
        _export_marian(run, out or run / "export" / to.name, trust_code=trust_code)
        return
    # the engines accept only names in UTF-8
    check_utf8(str(out or run), "--out" if out else "the run's name")
    say(f"writing {run} for {to}, and comparing both engines")
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
        say("its sources do not end in </s>: call MarianTokenizer with add_special_tokens=False")
    print(folder)


def _export_language_model(run: Path, out: Path | None, sample: Path | None, *, trust_code: bool) -> None:
    from attent.formats.onnx import export as export_run

    check_utf8(str(out or run), "--out" if out else "the run's name")
    say(f"writing {run} for onnx, and comparing both engines")
    folder, difference = export_run(run, out, sample=sample, trust_code=trust_code)
    write(f"log-probabilities differ from attent's by at most {difference:.1e} nats")
    print(folder)
