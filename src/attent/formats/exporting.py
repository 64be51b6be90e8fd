"""Export of a run to another inference engine, with a manifest of its origin."""

import hashlib
import json
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from attent.bounded import read_json
from attent.errors import RunError, check_known
from attent.runs.config import CONFIG, LARGEST, read_config, tokenizer_file, versions
from attent.runs.durable import check_links, new_folder, write_text
from attent.runs.folder import MODEL, read
from attent.runs.weights import digest
from attent.tasks.text_generation.task import TextGenerationTask
from attent.tasks.translation.task import TranslationTask

FORMAT = 1
MANIFEST = "export.json"
# The folder of exports within a run folder; it contains a folder for each engine.
EXPORTS = "export"
# The modules of engines, each with a function `write`.
ENGINES = {
    "ctranslate2": "attent.formats.ctranslate2",
    "onnx": "attent.formats.onnx",
    "marian": "attent.formats.marian",
}


def export(
    run: Path,
    engine: str,
    out: Path | None = None,
    *,
    quantization: str | None = None,
    trust_code: bool = False,
    examples: Sequence[str] = (),
) -> Path:
    """Write a run's model in another engine's format, or as a page that computes it.

    Args:
        run: the run folder of a translator; for ONNX also of a language model, for a page also of other tasks.
        engine: "ctranslate2", "onnx", "marian", or "html" for a page, see `attent.formats.html.write_page`.
        out: the output folder, which may contain an older export; RUN/export/ENGINE by default. For a page, the file.
        quantization: the type of the stored weights, in CTranslate2's spelling; for a page "int8".
        trust_code: True to import modules named by the run.
        examples: texts, or picture files, that a page offers.

    Returns:
        The folder, or the page. The folder's export.json has the versions of the packages, the SHA-256 of the run's
        files, and facts about the export.

    Raises:
        ArgumentError: the engine cannot express the model, or has no such quantization.
        RunError: the run is damaged or of another task, or the folder cannot be written.
        AttentError: a package is not installed.
        UnknownNameError: the engine is unknown.
    """
    check_known("engine", engine, (*ENGINES, "html"))
    if engine == "html":
        page = import_module("attent.formats.html")
        return page.write_page(run, out, quantization=quantization, trust_code=trust_code, examples=examples)
    target, config = _target(run, engine, out), read_config(run)
    is_generator = engine == "onnx" and config.task == TextGenerationTask.name
    (TextGenerationTask if is_generator else TranslationTask)().check_config(run, config)
    hashes = identity(run)
    loaded, module = read(run, trust_code=trust_code), import_module(ENGINES[engine])
    with new_folder(target) as folder:
        facts = module.write(loaded, str(run), folder, quantization)
        manifest = {"format": FORMAT, "engine": engine, "run": hashes, "quantisation": quantization, **facts}
        manifest["versions"] = versions() | manifest.get("versions", {})
        write_text(folder / MANIFEST, json.dumps(manifest, indent=2) + "\n")
    return target


def identity(run: Path) -> dict[str, str]:
    """Return hashes of everything in a run folder that an export depends on, by name.

    Raises:
        RunError: the run is damaged, or has no weights.
    """
    config = read_config(run)
    # as written, without settings added by later versions of the library
    hashes = {
        "model": hashlib.sha256(
            json.dumps(read_json(run / CONFIG, LARGEST)["model"], sort_keys=True).encode()
        ).hexdigest()
    }
    return hashes | {name: digest(run / name) for name in (MODEL, *map(tokenizer_file, config.tokenizers))}


def _target(run: Path, engine: str, out: Path | None) -> Path:
    """Return the folder to write an export to, RUN/export/ENGINE by default.

    Raises:
        RunError: it contains something other than an export, or the default folder is a symbolic link.
    """
    target = run / EXPORTS / engine if out is None else out
    if target.exists() and not (target / MANIFEST).is_file() and (not target.is_dir() or any(target.iterdir())):
        raise RunError(f"{target} already exists and is not an export")
    if out is None:
        check_links(run / EXPORTS, target)
    return target
