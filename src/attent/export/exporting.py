"""From a run to another engine's export, and from that to the engine."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from types import ModuleType

from attent.data.dates.checks import input_check
from attent.decoding.translator import Translator
from attent.errors import RunError, UnknownNameError
from attent.export import manifest as manifests
from attent.export.comparison import Comparison, Engine, compare, sample_of
from attent.export.manifest import EXPORTS, MANIFEST
from attent.runs.config import must_do, read_config
from attent.runs.durable import check_links, new_folder
from attent.runs.folder import read, read_tokenizers

# Each offers `write` and `load`.
ENGINES = {"ctranslate2": "attent.export.ctranslate2.engine", "onnx": "attent.export.onnx.engine"}


def export(
    run: Path,
    engine: str,
    out: Path | None = None,
    *,
    quantization: str | None = None,
    sample: Path | None = None,
    trust_code: bool = False,
) -> tuple[Path, Comparison]:
    """Write a run's model as another engine reads it, and compare the two on some lines.

    Args:
        run: the run folder.
        engine: "ctranslate2" or "onnx".
        out: the folder to write, which may hold an older export; RUN/export/ENGINE unless given.
        quantization: of the weights, by the engine's own name for it.
        sample: lines to compare on; unless given, those that the run was validated on.
        trust_code: whether the run may name modules to import.

    Returns:
        The folder, and the comparison.

    Raises:
        ArgumentError: the engine cannot express the model, or has no such quantisation.
        RunError: the run is damaged, or the folder cannot be written.
        AttentError: a package is not installed.
        UnknownNameError: there is no such engine.
    """
    made_by, target = _module(engine), folder_of(run, engine, out)
    if target.exists() and not (target / MANIFEST).is_file() and (not target.is_dir() or any(target.iterdir())):
        raise RunError(f"{target} is there already and is no export")
    if out is None:
        check_links(run / EXPORTS, target)
    must_do(run, read_config(run), "translate")
    identity = manifests.identity(run)
    found = read(run, trust_code=trust_code)
    lines = sample_of(found.config, found.source_tokenizer, sample)
    with new_folder(target) as folder:
        manifest = made_by.write(found, str(run), folder, quantization)
        theirs = made_by.load(folder, manifest, found.source_tokenizer, found.target_tokenizer)
        comparison = compare(Translator(found.model, found.source_tokenizer, found.target_tokenizer), theirs, lines)
        manifest.run, manifest.comparison = identity, comparison.counts()
        manifests.write(manifest, folder)
    return target, comparison


def load(run: Path, engine: str, folder: Path | None = None) -> Engine:
    """The engine that reads a run's export.

    Args:
        run: the run folder.
        engine: "ctranslate2" or "onnx".
        folder: where the export is; RUN/export/ENGINE unless given.

    Raises:
        ArgumentError: there is no export, or it is of another state of the run.
        RunError: the run or the export is damaged.
        AttentError: a package is not installed.
        UnknownNameError: there is no such engine.
    """
    made_by, source = _module(engine), folder_of(run, engine, folder)
    config = read_config(run)
    must_do(run, config, "translate")
    manifest = manifests.read(source, engine, run)
    return made_by.load(source, manifest, *read_tokenizers(run, config), input_check(config.corpus))


def folder_of(run: Path, engine: str, folder: Path | None = None) -> Path:
    """Where an export is: RUN/export/ENGINE unless said otherwise."""
    return run / EXPORTS / engine if folder is None else folder


def _module(engine: str) -> ModuleType:
    if engine not in ENGINES:
        raise UnknownNameError("engine", engine, ENGINES)
    return import_module(ENGINES[engine])
