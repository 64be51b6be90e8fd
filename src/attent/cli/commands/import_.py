"""attent import: convert a translator of Hugging Face or Marian to a run folder."""

from pathlib import Path
from typing import Annotated

import typer

from attent.cli.options import SourceLanguage
from attent.cli.output import say, write
from attent.errors import AttentError
from attent.setting import Help


def import_(
    folder: Annotated[
        Path, typer.Argument(help="Folder of a Firefox, OPUS-MT, Marian, M2M100 or NLLB model, or of such folders.")
    ],
    out: Annotated[Path, Help("Output run folder, or the folder for several.")],
    source_language: SourceLanguage = None,
    target_language: Annotated[str | None, Help("Language to translate into, such as fra_Latn.", "CODE")] = None,
    fixed_activations: Annotated[
        bool, Help("Round activations to 8 bits by the factors in Marian's file, as Firefox does.")
    ] = False,
    force: Annotated[bool, Help("Replace an existing run folder.")] = False,
) -> None:
    """Convert a translator saved by transformers or Marian to a run folder, for all commands that take a run.

    A folder of transformers needs config.json, safetensors, and the files of its tokenizer; one of Marian, such as
    Firefox's, a .bin or .npz and its vocabularies, compressed or not. No code in it is run, and no pickled weights are
    read. M2M100 and NLLB translate between many languages: choose two with --source-language and
    --target-language. A model that attent cannot represent is refused with the reason. The run's config.json keeps the
    model's license and origin.

    Of a folder of models, each is converted to a run of its name in --out. Those that are there already are left, and
    the exit code is 2 if one cannot be converted.
    """
    from attent.runs.hugging_face import import_run, is_translator

    models = [] if is_translator(folder) or not folder.is_dir() else sorted(filter(is_translator, folder.iterdir()))
    if models:
        is_complete = True
        for number, model in enumerate(models, 1):
            if (out / model.name).exists() and not force:
                continue
            say(f"{number} of {len(models)}: {model.name}")
            try:
                import_run(model, out / model.name, replace=force, fixed_activations=fixed_activations)
                write(out / model.name)
            except AttentError as error:
                is_complete = False
                say(str(error))
        raise typer.Exit(0 if is_complete else 2)
    config = import_run(
        folder, out, source_language, target_language, replace=force, fixed_activations=fixed_activations
    )
    origin = config.origin
    print(f"{origin['name']} ({origin['format']}, licence: {origin.get('licence', 'not named')}): {out}")
    search = origin.get("search", {})
    beam, alpha = search.get("num_beams", 1), search.get("length_penalty", 1.0)
    say(
        "to search with the model's own settings: "
        f"attent translate {out} --beam {beam} --length-penalty {alpha:g} --length-form length"
    )
