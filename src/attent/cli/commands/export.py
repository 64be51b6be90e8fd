"""attent export: write a translator or a language model for another engine, or any run as a page."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

from attent.cli.options import RunFolder, TrustCode
from attent.setting import Help
from attent.text.sources import check_utf8

# The engines that a run can be exported to, the Marian format, and a page.
Target = StrEnum("Target", ("ctranslate2", "onnx", "marian", "html"))


def export(
    run: RunFolder,
    to: Annotated[
        Target,
        Help(
            "ctranslate2, for Transformers whose parts it supports; onnx, for all translators and language models; "
            "marian, a folder for Hugging Face's transformers; html, a page that runs the model in a browser."
        ),
    ],
    out: Annotated[
        Path | None, Help("Output folder, or page; RUN/export/ENGINE or RUN/export/page.html unless given.")
    ] = None,
    quantization: Annotated[
        str | None, Help("CTranslate2's type of the weights: int8, int8_float32, …; int8 for a page.")
    ] = None,
    example: Annotated[list[str] | None, Help("Text or picture file that a page offers; repeatable.")] = None,
    trust_code: TrustCode = False,
) -> None:
    """Write a translator for CTranslate2, onnxruntime or transformers, a language model for onnxruntime, or a page.

    An ONNX translator has two graphs, from the source to the first token's logits, and one step; a language model is
    one graph, from tokens to logits. A page computes translations, continuations, blanks, classes or captions, with the
    attention, and loads nothing else.
    """
    from attent.formats.exporting import export as export_run

    # the engines accept only names in UTF-8
    check_utf8(str(out or run), "--out" if out else "the run's name")
    folder = export_run(run, to.name, out, quantization=quantization, trust_code=trust_code, examples=example or ())
    print(folder)
