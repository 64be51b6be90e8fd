"""attent import: a translator of Hugging Face's as a run folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from attent.cli.options import SourceLanguage
from attent.cli.output import say


def import_(
    folder: Annotated[Path, typer.Argument(help="A folder of Marian (such as OPUS-MT), M2M100 or NLLB.")],
    out: Annotated[Path, typer.Option(help="The run folder to write.")],
    source_language: SourceLanguage = None,
    target_language: Annotated[
        str | None, typer.Option(metavar="CODE", help="The language to translate into, such as fra_Latn.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a run folder that is there.")] = False,
) -> None:
    """Make a run folder of a translator that transformers wrote: every command that takes a run takes it.

    The folder needs config.json, safetensors, and the files of its tokenizer. Nothing of it is run, and pickled weights
    are not read. M2M100 and NLLB translate between many languages: --source-language and --target-language choose two.
    What attent cannot express is refused with the reason. Licence and origin are kept in the run's config.json.
    """
    from attent.runs.hugging_face.families import import_run

    config = import_run(folder, out, source_language, target_language, replace=force)
    origin = config.origin
    print(f"{origin['name']} ({origin['format']}, licence: {origin.get('licence', 'not named')}): {out}")
    search = origin.get("search", {})
    beam, alpha = search.get("num_beams", 1), search.get("length_penalty", 1.0)
    say(
        f"attent translate {out} --beam {beam} --length-penalty {alpha:g} --length-form length searches as it was "
        "searched there"
    )
