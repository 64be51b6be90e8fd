"""Export of a run to another inference engine, and loading of the engine."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from types import ModuleType

from attent.errors import RunError, check_known
from attent.formats import manifest as manifests
from attent.formats.comparison import Comparison, compare, sample_of
from attent.formats.manifest import EXPORTS, MANIFEST
from attent.runs.config import must_do, read_config
from attent.runs.durable import check_links, new_folder
from attent.runs.folder import read, read_tokenizers
from attent.tasks.dates.checks import input_check
from attent.tasks.translation.translator import Engine, Translator

# Modules with `write` and `load`.
ENGINES = {"ctranslate2": "attent.formats.ctranslate2", "onnx": "attent.formats.onnx"}


def export(
    run: Path,
    engine: str,
    out: Path | None = None,
    *,
    quantization: str | None = None,
    sample: Path | None = None,
    references: Path | None = None,
    trust_code: bool = False,
) -> tuple[Path, Comparison]:
    """Write a run's model in another engine's format, and compare the two engines on some lines.

    Args:
        run: the run folder.
        engine: "ctranslate2" or "onnx".
        out: the folder to write, which may hold an older export; RUN/export/ENGINE by default.
        quantization: of the weights, in the engine's spelling.
        sample: lines to compare on; the run's validation pairs by default, or random tokens where these cannot be read
            again.
        references: of these lines, for BLEU and chrF2.
        trust_code: True if the run may name modules to import.

    Returns:
        The folder, and the comparison.

    Raises:
        ArgumentError: the engine cannot express the model, or has no such quantization.
        RunError: the run is damaged, or the folder cannot be written.
        AttentError: a package is not installed.
        UnknownNameError: there is no such engine.
    """
    module, target = _module(engine), folder_of(run, engine, out)
    if target.exists() and not (target / MANIFEST).is_file() and (not target.is_dir() or any(target.iterdir())):
        raise RunError(f"{target} is there already and is no export")
    if out is None:
        check_links(run / EXPORTS, target)
    must_do(run, read_config(run), "translate")
    identity = manifests.identity(run)
    loaded = read(run, trust_code=trust_code)
    tokenizers = loaded.source_tokenizer, loaded.target_tokenizer
    lines = sample_of(loaded.config, tokenizers, loaded.model.longest, sample, references)
    with new_folder(target) as folder:
        manifest = module.write(loaded, str(run), folder, quantization)
        comparison = compare(Translator(loaded.model, *tokenizers), module.load(folder, manifest, *tokenizers), lines)
        manifest.run, manifest.comparison = identity, comparison.counts()
        manifests.write(manifest, folder)
    return target, comparison


def load(run: Path, engine: str, folder: Path | None = None) -> Engine:
    """Load the engine with a run's export.

    Args:
        run: the run folder.
        engine: "ctranslate2" or "onnx".
        folder: of the export; RUN/export/ENGINE by default.

    Raises:
        ArgumentError: there is no export, or it is of another state of the run.
        RunError: the run or the export is damaged.
        AttentError: a package is not installed.
        UnknownNameError: there is no such engine.
    """
    module, source = _module(engine), folder_of(run, engine, folder)
    config = read_config(run)
    must_do(run, config, "translate")
    manifest = manifests.read(source, engine, run)
    return module.load(source, manifest, *read_tokenizers(run, config), input_check(config.corpus))


def folder_of(run: Path, engine: str, folder: Path | None = None) -> Path:
    """Return the folder of an export, RUN/export/ENGINE by default."""
    return run / EXPORTS / engine if folder is None else folder


def _module(engine: str) -> ModuleType:
    check_known("engine", engine, ENGINES)
    return import_module(ENGINES[engine])
