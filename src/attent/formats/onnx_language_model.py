"""A language model as one ONNX graph: the logits of every next token of texts, without cached keys and values.

model.onnx     tokens (B, T), BOS first  →  logits (B, T, V)
"""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from attent.errors import ArgumentError, RunError
from attent.formats import manifest as manifests
from attent.formats.comparison import LINES, MAX_RANDOM_TOKENS
from attent.formats.manifest import EXPORTS, MANIFEST, Manifest, package
from attent.formats.onnx import NAME, PACKAGES
from attent.formats.onnx_graphs import LOGITS, TOKENS, export_graph
from attent.formats.onnx_tracing import tracing
from attent.models.language_model import LanguageModel
from attent.runs.config import must_do, read_config, version_of
from attent.runs.durable import check_links, new_folder
from attent.runs.folder import read
from attent.text.readers import read_lines
from attent.text.tokenizer import BOS, SPECIALS, Tokenizer

GRAPH = "model.onnx"


class LanguageModelGraph(nn.Module):
    """The graph: from tokens to logits."""

    def __init__(self, model: LanguageModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the logits (B, T, V) of the token after each of these (B, T)."""
        return self.model.output(self.model(tokens))


def export(
    run: Path, out: Path | None = None, *, sample: Path | None = None, trust_code: bool = False
) -> tuple[Path, float]:
    """Write a language model as ONNX, and compare its logits with our own.

    Args:
        run: the run folder.
        out: the folder to write, which may hold an older export; RUN/export/onnx by default.
        sample: lines to compare on; random pieces by default.
        trust_code: True if the run may name modules to import.

    Returns:
        The folder, and the largest difference of a log-probability, in nats.

    Raises:
        ArgumentError: a line of the sample is longer than the model can read.
        RunError: the run is damaged, or the folder cannot be written.
        AttentError: a package is not installed, or the model cannot be traced.
    """
    target = run / EXPORTS / NAME if out is None else out
    if target.exists() and not (target / MANIFEST).is_file() and (not target.is_dir() or any(target.iterdir())):
        raise RunError(f"{target} is there already and is no export")
    if out is None:
        check_links(run / EXPORTS, target)
    must_do(run, read_config(run), "text-generation")
    runtime = package("onnxruntime", "onnxruntime", NAME)
    identity, loaded = manifests.identity(run), read(run, trust_code=trust_code)
    model, texts = loaded.model.eval(), _sample(loaded.tokenizers["text"], sample, loaded.model.longest)
    with new_folder(target) as folder:
        with torch.no_grad(), tracing():
            axes = {0: torch.export.Dim("rows"), 1: torch.export.Dim("length", max=model.longest)}
            example = torch.full((3, 5 if model.longest is None else min(model.longest, 5)), BOS)
            export_graph(LanguageModelGraph(model), (example,), (axes,), [TOKENS], [LOGITS], folder / GRAPH)
        engine = runtime.InferenceSession(str(folder / GRAPH), providers=["CPUExecutionProvider"])
        difference = max((_difference(model, engine, text) for text in texts), default=0.0)
        manifest = Manifest(engine=NAME, run=identity, longest=model.longest)
        manifest.versions.update({name: version_of(name) for name in PACKAGES})
        manifest.comparison = {"lines": len(texts), "largest difference": difference}
        manifests.write(manifest, folder)
    return target, difference


def _difference(model: LanguageModel, engine: object, text: list[int]) -> float:
    """Return the largest difference of a log-probability after any token of a text."""
    tokens = torch.tensor([[BOS, *text]])
    with torch.no_grad():
        expected = model.output(model(tokens)).double().log_softmax(-1)
    (logits,) = engine.run([LOGITS], {TOKENS: tokens.numpy()})  # pyright: ignore[reportAttributeAccessIssue]
    return float((torch.from_numpy(logits).double().log_softmax(-1) - expected).abs().max())


def _sample(tokenizer: Tokenizer, file: Path | None, longest: int | None) -> list[list[int]]:
    """Return the tokens of the first lines of a file, or random ones, the same every time."""
    if file is None:
        generator = np.random.default_rng(0)
        limit = MAX_RANDOM_TOKENS if longest is None else min(MAX_RANDOM_TOKENS, longest)
        return [
            generator.integers(SPECIALS, tokenizer.size, generator.integers(0, limit)).tolist() for _ in range(LINES)
        ]
    lines = [tokenizer.encode(line) for line in islice((line for line in read_lines(file) if line), LINES)]
    if longest is not None and (long := [len(line) for line in lines if len(line) >= longest]):
        raise ArgumentError(
            f"a line of {file} has {long[0]:,} tokens, more than the {longest - 1:,} that this model can read"
        )
    return lines
