"""attent generate: continue a text with a language model."""

from __future__ import annotations

import io
import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from attent.cli.options import Generation, JsonLines, RunOrModel, TypedPretrainedLoading
from attent.cli.output import say, write
from attent.errors import DataError, printable
from attent.text.sources import decode_lines, open_source

if TYPE_CHECKING:
    from attent.search.settings import GenerationSettings
    from attent.tasks.text_generation.continuation import ContinuesText


def generate(
    run: RunOrModel,
    generation: Generation,
    loading: TypedPretrainedLoading,
    prompt: Annotated[str, typer.Argument(metavar="[TEXT|FILE|-]", help="A prompt, a file of prompts, or -.")] = "",
    as_json: JsonLines = False,
) -> None:
    """Continue a text with the most probable token at every step.

    With any of --temperature, --top-k, --top-p, --seed and --copies, tokens are sampled. The text is printed as it is
    generated. PROMPT is a text unless a file has this name; without a prompt, a new text is started. Lines of a file
    with words unknown to the model are reported on standard error and left empty; the exit code is then 2.
    """
    settings = generation.settings(sample=bool(generation.values.keys() - {"max_new_tokens"}))
    generator = loading.generator(run)
    if not prompt:
        _write(generator, "", settings, as_json=as_json)
        return
    with open_source(prompt) as stream:
        is_complete = True
        if prompt != "-" and isinstance(stream, io.BytesIO):
            _write(generator, prompt, settings, as_json=as_json)
            return
        for number, line in enumerate(decode_lines(stream, prompt), start=1):
            try:
                _write(generator, line, settings, as_json=as_json)
            except DataError as error:
                say(f"line {number}: not continued: {error}")
                write(
                    json.dumps({"text": line, "error": str(error)}, ensure_ascii=False) if as_json else "", flush=True
                )
                is_complete = False
    if not is_complete:
        raise typer.Exit(2)


def _write(generator: ContinuesText, prompt: str, settings: GenerationSettings, *, as_json: bool) -> None:
    if as_json or settings.copies > 1:
        for text in generator.generate([prompt], settings):
            write(json.dumps(asdict(text), ensure_ascii=False) if as_json else text.text, flush=True)
        return
    pieces = generator.stream(prompt, settings)
    # print nothing if the prompt cannot be read
    first = next(pieces, "")
    print(printable(prompt + first), end="", flush=True)
    for piece in pieces:
        print(printable(piece), end="", flush=True)
    print(flush=True)
