"""The config.json of a run: its task, model, corpus, training and results."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from pydantic import BaseModel, Field, SerializerFunctionWrapHandler, ValidationError, model_serializer, model_validator

from attent import bounded, registry
from attent.errors import DataError, RunError, refuse, reraise
from attent.models.settings import ModelSettings, TransformerSettings
from attent.runs.durable import write_text
from attent.runs.old_formats import present_config, present_training
from attent.text.settings import LANGUAGE, VectorsSettings

DType = Literal["float32", "bfloat16", "int8"]
FORMAT = 4
CONFIG = "config.json"
# Maximum bytes of a config.json.
LARGEST = 2**22
# Keys that identify a config.json of Hugging Face's transformers library.
PRETRAINED_KEYS = frozenset(("model_type", "architectures"))
# The model_type of models that can be imported as runs.
IMPORTED = frozenset(("marian", "m2m_100"))


def version_of(package: str, default: str = "unknown") -> str:
    """Return the version of a package, or the default if it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return default


def versions() -> dict[str, str]:
    """Return the versions of attent, torch and Python."""
    return {
        "attent": version_of("attent", "not installed"),
        "torch": torch.__version__,
        "python": platform.python_version(),
    }


# The size of a vocabulary or a vector, or the number of classes.
Size = Annotated[int, Field(ge=1, le=2**31)]


def tokenizer_file(name: str) -> str:
    """Return the file name of a tokenizer."""
    return f"{name}.tokenizer.json"


class AlignmentHead(BaseModel, extra="forbid", frozen=True):
    """The attention of a translator that yields word alignments.

    `attent.alignment.forced_decoding.AttentionSelector` has the same fields.

    Args:
        layer: the index among the layers with attention to the source; None for the last one.
        head: the index of the head; None for the mean over heads.
        about: the target token that a row of weights belongs to.
    """

    layer: int | None = Field(None, ge=0)
    head: int | None = Field(None, ge=0)
    about: Literal["produced", "read"] = "produced"


def _is_file_name(name: str) -> bool:
    """Return whether a name is a plain file name, without folders, on any system."""
    return Path(name).name == name and name not in ("", "..") and not set("\\:\0") & set(name)


class RunConfig(BaseModel, extra="forbid"):
    """The content of config.json.

    Args:
        format: the version of the folder's layout.
        state: the state of training; in format 1 always finished.
        versions: the versions of attent, torch and python, by name.
        task: the name of the model's task; before format 3 always translation.
        tokenizers: the kind of each tokenizer by its name, which also names its file: "source" and "target" for a
            translator, "text" for other texts, none for vectors.
        files: the names of additional text files of the run.
        sizes: the sizes of the input (tokens, or features of a vector) and the output (tokens or classes); None for the
            sizes of the first and the last tokenizer.
        model: the model's settings.
        corpus: the corpus' settings.
        digests: digests of the training examples ("train") and, for a classifier, of the held-out ones ("held out"),
            which show whether the corpus has changed; and the SHA-256 of a finished run's weights, by file name.
        spacing: the share of spaces that are only conventional in the source text that a translator was trained on; see
            `attent.text.units`; None if unknown.
        vectors: the word vectors that initialized the embeddings.
        coverage: by tokenizer, the number of ids and of those with a word vector.
        dtype: the default type of the model's weights.
        alignment: the attention that aligns a translator's words, as chosen by `attent align --best`, if any.
        training: the settings of training, and automatic choices such as the precision.
        results: the scores by name.
        origin: for an imported model: its name, licence and format, its languages, and its original search settings.
    """

    format: int = FORMAT
    state: Literal["unfinished", "finished"] = "finished"
    versions: dict[str, str] = Field(default_factory=versions)
    task: str = "translate"
    tokenizers: dict[str, str] = {"source": "char", "target": "char"}
    files: tuple[str, ...] = ()
    sizes: tuple[Size, Size] | None = None
    model: ModelSettings
    corpus: dict[str, Any] = {}
    digests: dict[str, str] = {}
    spacing: float | None = Field(None, ge=0, le=1)
    vectors: VectorsSettings | None = None
    coverage: dict[str, dict[str, int | float]] = {}
    dtype: DType = "float32"
    alignment: AlignmentHead | None = None
    training: dict[str, Any] = {}
    results: dict[str, Any] = {}
    origin: dict[str, Any] = {}

    @property
    def source_language(self) -> str | None:
        """The source language of a translator, if it is known."""
        return self._language("source")

    @property
    def target_language(self) -> str | None:
        """The target language of a translator, if it is known."""
        return self._language("target")

    @property
    def languages(self) -> str:
        """Both languages in readable form, such as "zh → en"; empty if neither is known."""
        pair = self.source_language, self.target_language
        return " → ".join(language or "?" for language in pair) if any(pair) else ""

    @property
    def text_files(self) -> list[str]:
        """The names of the tokenizers' files and of additional files."""
        return [*map(tokenizer_file, self.tokenizers), *self.files]

    def _language(self, side: str) -> str | None:
        tables = (table for table in (self.corpus.get("text"), self.origin) if isinstance(table, dict))
        code = next((table[f"{side}_language"] for table in tables if table.get(f"{side}_language")), None)
        return code if isinstance(code, str) and LANGUAGE.fullmatch(code) else None

    @model_serializer(mode="wrap")
    def _without_defaults(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Omit some fields that have their default values, as configs of earlier versions do."""
        defaults = ("spacing", None), ("dtype", "float32"), ("alignment", None), ("origin", {})
        return {name: value for name, value in serialize(self).items() if (name, value) not in defaults}

    @model_validator(mode="after")
    def _fits_together(self) -> RunConfig:
        if invalid := [name for name in (*self.tokenizers, *self.files) if not _is_file_name(name)]:
            raise ValueError(f"tokenizers and files must be in the run folder, got {invalid[0]!r}")
        if not self.tokenizers and self.sizes is None:
            raise ValueError("a run without tokenizers must have sizes")
        self._check_alignment()
        return self

    def _check_alignment(self) -> None:
        """Check that the model has the layer and head that align words; only Transformers have several of them."""
        if self.alignment is None:
            return
        sizes = (self.model.decoder_layers, self.model.heads) if isinstance(self.model, TransformerSettings) else (1, 1)
        numbers = {"layer": self.alignment.layer, "head": self.alignment.head}
        refuse(
            *(
                ((number or 0) >= size, f"alignment.{name} must be from 0 to {size - 1}, got {number}")
                for (name, number), size in zip(numbers.items(), sizes, strict=True)
            ),
            kind=ValueError,
        )


def write_config(config: RunConfig, path: Path) -> None:
    """Write a run folder's config.json.

    Raises:
        RunError: it cannot be written.
    """
    write_text(path / CONFIG, config.model_copy(update={"format": FORMAT}).model_dump_json(indent=2) + "\n")


def read_config(path: Path | str) -> RunConfig:
    """Read the config.json of a run folder.

    Raises:
        RunError: it is missing, damaged, or written by a newer version.
    """
    file = Path(path) / CONFIG
    try:
        content = bounded.read_json(file, LARGEST)
    except FileNotFoundError as error:
        reason = f"it has no {file.name}" if file.parent.is_dir() else "there is no such folder"
        raise RunError(f"{path} is not a run folder: {reason}") from error
    except OSError as error:
        raise RunError(f"{path} is not a run folder: {file.name} cannot be read ({error.strerror})") from error
    except DataError as error:
        raise RunError(f"{file} is damaged: {error}") from error
    if _is_pretrained(content):
        takes = (
            "convert it with attent import"
            if content.get("model_type") in IMPORTED
            else "use it with attent show, explore, fill or generate"
        )
        raise RunError(f"{path} is a Hugging Face model, not a run folder: {takes}")
    if not isinstance(content, dict) or type(content.get("format")) is not int or content["format"] < 1:
        raise RunError(f"{file} is damaged: it has no valid format number")
    if content["format"] > FORMAT:
        written_by = content.get("versions")
        newer = written_by.get("attent", "of a newer version") if isinstance(written_by, dict) else "of a newer version"
        raise RunError(
            f"{file} has format {content['format']}, written by attent {newer}; this attent reads up to {FORMAT}"
        )
    with reraise(RunError, f"{file} is damaged", ValidationError):
        return RunConfig.model_validate(
            present_training(content if content["format"] == FORMAT else present_config(content))
        )


def is_pretrained(path: Path | str) -> bool:
    """Return whether a folder contains a model of Hugging Face's transformers library instead of a run."""
    try:
        return _is_pretrained(bounded.read_json(Path(path) / CONFIG, LARGEST))
    except (OSError, DataError):
        return False


def _is_pretrained(content: object) -> bool:
    return isinstance(content, dict) and "format" not in content and not PRETRAINED_KEYS.isdisjoint(content)


def code_in(config: RunConfig) -> dict[str, str]:
    """Return the settings of a run's model that would import a module."""
    return {key: value for key, value in config.model if isinstance(value, str) and registry.is_imported(value)}


def check_code(path: Path | str, config: RunConfig, *, trust_code: bool) -> None:
    """Check that building a run's model imports no modules that the run names, unless the run is trusted.

    Args:
        path: the run folder.
        config: the run's config.
        trust_code: True to allow the import of modules named by the run.

    Raises:
        RunError: the run names a module and is not trusted.
    """
    if not trust_code and (code := code_in(config)):
        key, name = next(iter(code.items()))
        raise RunError(
            f"{Path(path) / CONFIG}: model.{key} = {name!r} would import and run the module {name.partition(':')[0]}; "
            "if you trust this code, allow it with trust_code=True (--trust-code)"
        )
