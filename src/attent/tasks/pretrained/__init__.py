"""Finding and loading the models of Hugging Face's transformers.

Weights are read from safetensors only, and no code in a model's folder is run.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch

from attent import bounded
from attent.errors import ArgumentError, DataError, ImplementationError, RunError, needs, reraise
from attent.integrations.transformers import NAME as ATTENT
from attent.integrations.transformers import register
from attent.requirements import check_version
from attent.runs.config import CONFIG, DType, is_pretrained
from attent.tasks.pretrained.generator import PretrainedGenerator
from attent.tasks.pretrained.model import MASKED, PretrainedModel, Reads, first_line

__all__ = ["PretrainedGenerator", "PretrainedModel", "find", "load"]

NEED, EXTRA = "Hugging Face's models need transformers", "transformers"
# Suffixes of the names of classes that predict the next token.
CAUSAL = ("ForCausalLM", "LMHeadModel")
# Suffix of the names of classes that are only the encoder of an encoder–decoder.
ENCODER = "EncoderModel"
PROCESSOR = "preprocessor_config.json"
# Files of a folder that may name custom code, under AUTO_MAP.
SETTINGS = (CONFIG, "tokenizer_config.json", PROCESSOR, "processor_config.json")
AUTO_MAP = "auto_map"
# Maximum bytes of each; a tokenizer's config lists its added tokens.
LARGEST = 2**24
# The name of a model on Hugging Face's hub, with or without its owner.
NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")
# Files to download: settings, vocabularies and safetensors at the top level.
FILES = ("*.json", "*.txt", "*.model", "*.spm", "model*.safetensors")


def find(model: Path | str, *, download: bool = False) -> Path | None:
    """Return the folder of a model, given directly or found in Hugging Face's local cache.

    Return None for anything else, such as a run.

    Args:
        model: a folder, or the name of a model on Hugging Face's hub, such as "google-bert/bert-base-uncased".
        download: whether a model's settings, vocabulary and safetensors may be downloaded into the cache.

    Raises:
        RunError: there is no such folder and no such model in the cache, or the model cannot be downloaded.
    """
    path, name = Path(model), Path(model).as_posix()
    if path.exists() or not NAME.fullmatch(name):
        return path if is_pretrained(path) else None
    with needs(f"{name} is not a run folder; {NEED}", EXTRA, RunError):
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError
    try:
        folder = snapshot_download(
            name, local_files_only=not download, allow_patterns=[*FILES], ignore_patterns=["*/*"]
        )
    except HFValidationError:
        return None
    except Exception as error:
        # the hub's client does not wrap transport errors
        if isinstance(error, LocalEntryNotFoundError) and not download:
            raise RunError(
                f"{name} is not a run folder, nor a model in Hugging Face's local cache; --download fetches a model"
            ) from error
        raise RunError(f"{name} is not a run folder, and cannot be fetched as a model: {first_line(error)}") from error
    return Path(folder)


def load(folder: Path | str, device: torch.device | str = "cpu", dtype: DType = "float32") -> PretrainedModel:
    """Load the model of a folder, from safetensors only and without running code from the folder.

    A decoder-only language model is a `PretrainedGenerator`, and attends by `attent.attend` where it calls
    transformers' attention interface.

    Args:
        folder: a model folder as written by `save_pretrained`; `find` returns that of a model in Hugging Face's local
            cache.
        device: where to compute.
        dtype: type of the weights, "float32" or "bfloat16".

    Raises:
        ArgumentError: the type of the weights is another.
        RunError: transformers is not installed, or the model cannot be loaded, has no safetensors, has no vocabulary or
            names custom code.
    """
    folder = Path(folder)
    if dtype == "int8":
        raise ArgumentError("a Hugging Face model has weights in float32 or bfloat16, got dtype int8")
    with needs(NEED, EXTRA, RunError):
        import transformers
    check_version("transformers", transformers.__version__)
    _check_files(folder)
    options: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
    with _quiet(transformers), _one_line(folder):
        config = transformers.AutoConfig.from_pretrained(folder, **options)
        reads, model_class, tokenizer_class = _classes(transformers, config, folder)
        options |= {"config": config, "dtype": getattr(torch, dtype), "use_safetensors": True}
        is_causal = model_class is transformers.AutoModelForCausalLM
        model, report = _from_pretrained(model_class, folder, options, attends=is_causal)
        tokenizer = tokenizer_class.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    # if the folder has no vocabulary, transformers makes an empty one, in which every word is unknown
    if reads != "picture" and len(tokenizer) <= len(tokenizer.all_special_tokens):
        raise RunError(
            f"{folder} has no tokenizer vocabulary: tokenizer.save_pretrained({folder.name!r}) writes it beside the "
            "model"
        )
    # poolers come after all attention
    if missing := sorted(key for key in report["missing_keys"] if "pooler" not in key):
        raise RunError(f"{folder} cannot be loaded: its weights lack {missing[0]} of {type(model).__name__}")
    model = model.to(device)
    return PretrainedGenerator(model, tokenizer) if is_causal else PretrainedModel(model, reads, tokenizer)


def _from_pretrained(model_class: Any, folder: Path, options: dict[str, Any], *, attends: bool) -> tuple[Any, Any]:
    """Return a model and the report about its weights; `attends` asks for attention by `attent.attend`."""
    if attends:
        register()
        with suppress(ImplementationError):
            return model_class.from_pretrained(folder, output_loading_info=True, attn_implementation=ATTENT, **options)
    return model_class.from_pretrained(folder, output_loading_info=True, **options)


def _classes(transformers: Any, config: Any, folder: Path) -> tuple[Reads, Any, Any]:
    """Return the input kind of a model, and transformers' classes for it (with a head if needed) and its tokenizer."""
    if any(name.endswith(ENCODER) for name in config.architectures or ()):
        return "text", transformers.AutoModelForTextEncoding, transformers.AutoTokenizer
    if getattr(config, "is_encoder_decoder", False):
        return "text and translation", transformers.AutoModelForSeq2SeqLM, transformers.AutoTokenizer
    if (folder / PROCESSOR).exists() and hasattr(config, "patch_size"):
        return "picture", transformers.AutoModel, transformers.AutoImageProcessor
    if any(name.endswith(CAUSAL) for name in config.architectures or ()):
        return "text", transformers.AutoModelForCausalLM, transformers.AutoTokenizer
    is_masked = any(name.endswith(MASKED) for name in config.architectures or ())
    model_class = transformers.AutoModelForMaskedLM if is_masked else transformers.AutoModel
    return "text", model_class, transformers.AutoTokenizer


def _check_files(folder: Path) -> None:
    """Check that a folder has safetensors and names no code.

    Raises:
        RunError: the check fails, or a settings file cannot be read.
    """
    if not (folder / CONFIG).is_file():
        lacks = f"has no {CONFIG}" if folder.is_dir() else "is no folder"
        raise RunError(f"{folder} {lacks}, and a model must be a folder written by save_pretrained")
    for file in (folder / name for name in SETTINGS):
        if not file.exists():
            continue
        with reraise(RunError, f"{file} cannot be read", OSError, DataError):
            settings = bounded.read_json(file, LARGEST)
        if isinstance(settings, dict) and AUTO_MAP in settings:
            raise RunError(f"{file} names custom code ({AUTO_MAP}), and attent does not run code from model folders")
    if not any(folder.glob("*.safetensors")):
        pickled = next(
            (file.name for pattern in ("*.bin", "*.pt", "*.h5") for file in sorted(folder.glob(pattern))), "no weights"
        )
        raise RunError(f"{folder} has {pickled}, but attent reads only safetensors: save_pretrained writes them")


@contextmanager
def _quiet(transformers: Any) -> Iterator[None]:
    """Silence transformers' loading reports; the relevant ones are checked in `load`."""
    logging = transformers.utils.logging
    verbosity, had_bar = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        restore: Callable[[], None] = logging.enable_progress_bar if had_bar else logging.disable_progress_bar
        restore()


@contextmanager
def _one_line(folder: Path) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        # transformers does not wrap errors in the model's files and code
        raise RunError(f"{folder} cannot be loaded: {first_line(error)}") from error
