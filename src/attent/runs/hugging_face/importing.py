"""From a folder of transformers to a run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from attent.bounded import read_text
from attent.errors import AttentError, DataError, RunError
from attent.runs.config import RunConfig, is_pretrained
from attent.runs.folder import Run, RunWriter, model_of
from attent.runs.hugging_face.families import read_m2m100, read_marian
from attent.runs.hugging_face.folder import LARGEST_TEXT, SourceFolder
from attent.runs.hugging_face.layout import TranslatorSource, our_tensors
from attent.runs.weights import tensors_of

KIND = "sentencepiece"
LICENCE = "LICENSE"
# The families of translators by their model_type.
FAMILIES: dict[str, Callable[[SourceFolder, str | None, str | None], TranslatorSource]] = {
    "marian": read_marian,
    "m2m_100": read_m2m100,
}
# What generation_config.json says of the search.
SEARCH = ("num_beams", "length_penalty", "early_stopping", "max_length", "no_repeat_ngram_size")


def is_translator(path: Path | str) -> bool:
    """Return whether a folder holds a translator that can be imported, by its config.json alone."""
    try:
        return is_pretrained(path) and SourceFolder(path).config.get("model_type") in FAMILIES
    except RunError:
        return False


def read(path: Path | str, source_language: str | None = None, target_language: str | None = None) -> Run:
    """Read a folder of Marian, M2M100 or NLLB as a run.

    Args:
        path: the folder.
        source_language: the language of sources, which M2M100 and NLLB need.
        target_language: the language to translate into, which M2M100 and NLLB need, and some of Marian's models.

    Raises:
        RunError: a file is missing or damaged, or attent cannot express the model.
    """
    folder = SourceFolder(path)
    family = folder.config.get("model_type")
    if family not in FAMILIES:
        raise folder.error(f"model_type must be one of {', '.join(FAMILIES)}, got {family!r}")
    source = FAMILIES[family](folder, source_language, target_language)
    # sizes are compared with the weights before a model of these sizes takes memory
    tensors = our_tensors(source)
    first = next(tensors)
    config = _config(source, family)
    try:
        model = model_of(config, source.tokenizers)
    except (AttentError, RuntimeError) as error:
        raise folder.error(" ".join(str(error).split())) from error
    named = tensors_of(model)
    with torch.no_grad():
        for name, tensor in (first, *tensors):
            named.pop(name).copy_(tensor)
    assert not named, f"not filled: {', '.join(named)}"
    files = {LICENCE: text} if (text := _licence_text(folder)) else {}
    config = config.model_copy(update={"files": tuple(files)})
    return Run(config, model.eval(), dict(zip(config.tokenizers, source.tokenizers, strict=True)), files)


def import_run(
    path: Path | str,
    out: Path | str,
    source_language: str | None = None,
    target_language: str | None = None,
    *,
    replace: bool = False,
) -> RunConfig:
    """Write a run folder of a folder of transformers, and return its config; arguments and errors as for `read`.

    Args:
        path: the folder.
        out: the run folder to write.
        source_language: see `read`.
        target_language: see `read`.
        replace: whether a run folder that is there is replaced.
    """
    with RunWriter(out, replace=replace) as writer:
        run = read(path, source_language, target_language)
        writer.begin(run.config, *run.tokenizers.values(), files=run.files)
        writer.finish(run.config, run.model, *run.tokenizers.values())
    return run.config


def _config(source: TranslatorSource, family: str) -> RunConfig:
    folder = source.folder
    name, merged = folder.config.get("_name_or_path"), folder.config | folder.generation
    origin: dict[str, Any] = {
        "format": f"transformers {family}",
        "name": name if isinstance(name, str) and name else folder.path.resolve().name,
        "licence": folder.licence,
        **{f"{side}_language": language for side, language in source.languages.items()},
        "search": {key: merged[key] for key in SEARCH if isinstance(merged.get(key), str | int | float)},
    }
    origin = {key: value for key, value in origin.items() if value is not None}
    tokenizers = dict.fromkeys(("source", "target"), KIND)
    return RunConfig.model_validate({"tokenizers": tokenizers, "model": source.settings, "origin": origin})


def _licence_text(folder: SourceFolder) -> str:
    try:
        return read_text(folder.path / LICENCE, LARGEST_TEXT)
    except (OSError, DataError):
        return ""
