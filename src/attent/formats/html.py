"""A run as one HTML file that computes it in a browser: its weights, vocabularies and settings, and views/web/engine.

Numbers are 16-bit floats, or with int8 codes of 8 bits and a float32 for each row of a matrix. Nothing else is loaded:
the page's Content-Security-Policy allows only its own script and style, by their digests.
"""

import base64
import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from attent.errors import ArgumentError, RunError, check_known
from attent.layers.patches import patch_grid
from attent.models.settings import RnnSettings
from attent.runs.durable import check_links, said_clearly, write_text
from attent.runs.folder import Run, read
from attent.tasks.caption.task import CaptionTask
from attent.tasks.classification.classifier import as_pictures
from attent.tasks.classification.inputs import INPUTS, Inputs, PictureInputs
from attent.tasks.classification.pictures import load_digits
from attent.tasks.classification.task import ClassificationTask
from attent.tasks.dates.generated import DATES
from attent.tasks.dates.patterns import FIRST_YEAR, LAST_YEAR
from attent.tasks.fill_mask.task import MaskedLMTask
from attent.tasks.text_generation.task import TextGenerationTask
from attent.tasks.text_generation.text_generator import of_run
from attent.tasks.translation.task import TranslationTask
from attent.text.tokenizer import SPECIALS, Tokenizer, VocabularyTokenizer
from attent.text.tokenizers import BYTES, SubwordTokenizer, processor_of
from attent.views.pages.page import ENDINGS, bundle, fill, web_file
from attent.views.pages.payload import pack, to_half

TASKS = (TranslationTask, TextGenerationTask, MaskedLMTask, ClassificationTask, CaptionTask)
STYLES = ("tokens.css", "attention.css", "explore.css", "live.css")
# By this line, near its beginning, a page of ours is recognized.
GENERATOR, HEAD = b'<meta name="generator" content="attent export --to html">', 2**10
# The maximum bytes of the weights in a page; a browser unpacks each number into four bytes.
LARGEST = 2**26
# The number of digits that a page of a classifier of digits offers.
DIGITS = 10


def write_page(
    run: Path,
    out: Path | None = None,
    *,
    quantization: str | None = None,
    trust_code: bool = False,
    examples: Sequence[str] = (),
) -> Path:
    """Write the page of a run, and return its path.

    Args:
        run: the run folder.
        out: the file, which may be an older page; RUN/export/page.html by default.
        quantization: "int8", or None for 16-bit floats.
        trust_code: True to import modules named by the run.
        examples: texts, or picture files, that the page offers; by default dates or digits, for runs that read these.

    Raises:
        ArgumentError: a page cannot compute the run, the file's name does not end in .html, or there is no such
            quantization.
        DataError: an example cannot be read.
        RunError: the run is damaged, the file cannot be written, or it is something else than the page of a run.
    """
    path = out or run / "export" / "page.html"
    if out is None:
        check_links(path.parent, path)
    if path.suffix.lower() not in ENDINGS:
        raise ArgumentError(f"a page's name must end in .html, got {str(path)!r}")
    if path.exists() and not (path.is_file() and GENERATOR in _beginning(path)):
        raise RunError(f"{path} already exists and is not the page of a run")
    check_known("quantization of a page", quantization or "int8", ("int8",))
    html = page_of(read(run, trust_code=trust_code), str(run), quantization, examples)
    with said_clearly(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, html)
    return path


def page_of(run: Run, name: str, quantization: str | None = None, examples: Sequence[str] = ()) -> str:
    """Return the page of a run that was read, as HTML; `name` is the run's, other arguments and errors as above."""
    description, packs = payload(run, name, quantization, examples)
    script = f'"use strict";\n{bundle("live/live")}\nmodule_live_live.start(document.getElementById("live"));\n'
    style = "".join(map(web_file, STYLES))
    parts = {
        "title": escape(description["title"]),
        # "<" could close the element around the description, and half a character cannot be encoded
        "description": re.sub(
            "[<\ud800-\udfff]",
            lambda match: f"\\u{ord(match[0]):04x}",
            json.dumps(description, ensure_ascii=False, separators=(",", ":")),
        ),
        "packs": "\n".join(
            f'<script type="text/plain" data-pack="{part}">{pack(data)}</script>' for part, data in packs.items()
        ),
    }
    for part, text in (("script", script), ("style", style)):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        parts |= {part: text, f"{part}_hash": f"sha256-{digest}"}
    return fill("live.html", parts).html


def payload(
    run: Run, name: str, quantization: str | None = None, examples: Sequence[str] = ()
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return the description of a run, for JSON, and the bytes of its weights and of pictures as examples."""
    config, model = run.config, run.model
    if config.task not in [task.name for task in TASKS]:
        raise _unsupported(name, f"runs of {config.task}")
    inputs = None if INPUTS not in run.files else Inputs.read(run.files[INPUTS])
    if inputs is not None and inputs.inputs.kind == "vectors":
        raise _unsupported(name, "sequences of vectors")
    generator = of_run(name, run) if config.task == TextGenerationTask.name else None
    tensors, weights = _tensors(model, quantization)
    if len(weights) > LARGEST:
        raise _unsupported(name, f"weights of {len(weights) / 2**20:.0f} MiB, only {LARGEST >> 20} MiB")
    is_of_dates, packs = "dates" in config.corpus, {"weights": weights}
    described: dict[str, Any] = {
        "title": Path(name).name or name,
        "about": run.summary,
        "task": config.task,
        "settings": _settings(model, name),
        "tensors": tensors,
        "tokenizers": {side: as_data(own, name) for side, own in run.tokenizers.items()},
        "reads": "texts",
        "examples": examples or (DATES if is_of_dates else ()),
        "labels": inputs and inputs.labels,
        "picture": None,
        "longest": model.longest,
        "context": generator and generator.context,
        "stops_at_line_end": generator is None or generator.stops_at_line_end,
        "years": (FIRST_YEAR, LAST_YEAR) if is_of_dates else None,
    }
    if inputs is not None and isinstance(pictures := inputs.inputs, PictureInputs):
        grid, channels = patch_grid(pictures.height, pictures.width, pictures.patch), len(pictures.mean)
        before = int(config.task == ClassificationTask.name)
        described["picture"] = pictures.model_dump() | {"grid": grid, "channels": channels, "before": before}
        if not examples and config.corpus.get("images", {}).get("source") == "digits":
            pixels = load_digits().pixels[:DIGITS]
        else:
            pixels = as_pictures(list(examples), pictures).pixels
        packs["examples"] = _in_bytes(pixels)
        sides = dict(zip(("count", "height", "width", "channels"), pixels.shape, strict=True))
        described |= {"reads": "pictures", "examples": sides}
    return described, packs


def _in_bytes(pixels: np.ndarray) -> np.ndarray:
    return pixels if pixels.dtype == np.uint8 else np.rint(np.clip(pixels, 0, 1) * 255).astype(np.uint8)


def _settings(model: nn.Module, name: str) -> dict[str, Any]:
    """Return the settings of a model, with its score and normalizer under their own names."""
    settings: Any = model.settings
    if getattr(settings, "self_attention", None) == "ssru":
        raise _unsupported(name, "a decoder with a recurrent unit (ssru)")
    described = settings.model_dump(mode="json")
    for slot in ("score", "normalizer"):
        for part in (getattr(module, slot) for module in model.modules() if hasattr(module, slot)):
            package, _, own = type(part).__module__.rpartition(".")
            if package != f"attent.attention.{slot}s":
                raise _unsupported(name, f"the {slot} {type(part).__name__}")
            described[slot] = own
    if isinstance(settings, RnnSettings):
        if settings.sentences != "none":
            raise _unsupported(name, "vectors of sentences")
        vectors = settings.vector_encoder.model_dump(mode="json")
        described |= {"memory_width": settings.memory_width, "vector_encoder": vectors}
    return described


def as_data(tokenizer: Tokenizer, name: str) -> dict[str, Any]:
    """Return a tokenizer as data for views/web/engine/tokenizers.js; `name` is the run's."""
    if isinstance(tokenizer, VocabularyTokenizer):
        return {"kind": tokenizer.KEY, "entries": tokenizer.entries}
    if not isinstance(tokenizer, SubwordTokenizer):
        raise _unsupported(name, f"a {type(tokenizer).__name__}")
    processor, ids, first = processor_of(tokenizer.model), range(tokenizer.size), SPECIALS + BYTES
    if [*map(processor.IsByte, ids)] != [SPECIALS <= token < first for token in ids]:
        raise _unsupported(name, "a tokenizer without 256 bytes")
    scores = [processor.GetScore(token) for token in ids[first:]]
    return {"kind": tokenizer.KIND, "pieces": [*map(processor.IdToPiece, ids)], "scores": scores, "first": first}


def _tensors(model: nn.Module, quantization: str | None) -> tuple[list[dict[str, Any]], np.ndarray]:
    """Return the name, shape, kind and offset of each tensor of a model, and their bytes; tied ones share an offset."""
    described, stored, offsets = list[dict[str, Any]](), bytearray(), dict[int, int]()
    for name, tensor in model.state_dict(keep_vars=True).items():
        kind = "int8" if quantization and tensor.dim() > 1 else "float16"
        if id(tensor) not in offsets:
            offsets[id(tensor)] = len(stored)
            numbers = tensor.detach().cpu().float().numpy()
            stored += b"".join(part.tobytes() for part in (_codes(numbers) if kind == "int8" else (to_half(numbers),)))
        described.append({"name": name, "shape": tensor.shape, "kind": kind, "offset": offsets[id(tensor)]})
    weights = np.frombuffer(bytes(stored), np.uint8)
    # signs and exponents are deflated better beside each other
    return described, weights if quantization else np.concatenate((weights[1::2], weights[::2]))


def _codes(numbers: np.ndarray) -> Iterable[np.ndarray]:
    """Return numbers (…, n) as codes from −127 to 127, and what the codes of each row are multiplied by, float32."""
    scales = np.abs(numbers).max(-1, keepdims=True, initial=0).astype(np.float32) / np.float32(127)
    return np.rint(numbers / np.where(scales > 0, scales, 1)).astype(np.int8), scales


def _beginning(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(HEAD)


def _unsupported(name: str, subject: str) -> ArgumentError:
    return ArgumentError(f"{name} cannot be a page, which does not compute {subject}")
