"""ONNX: two graphs for a translator, see `onnx_graphs`, and one graph for a language model.

A language model's graph computes the next-token logits at every position of texts, without cached keys and values:

    model.onnx     tokens (B, T), BOS first  →  logits (B, T, V)
"""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from attent.errors import ArgumentError
from attent.formats import onnx_graphs
from attent.formats.onnx_graphs import LOGITS, TOKENS, export_graph, tracing
from attent.models.language_model import LanguageModel
from attent.runs.config import version_of
from attent.runs.folder import Run
from attent.tasks.text_generation.task import TextGenerationTask
from attent.text.tokenizer import BOS

PACKAGES = ("onnx", "onnxscript")
GRAPH = "model.onnx"


def write(run: Run, name: str, folder: Path, quantization: str | None) -> dict[str, Any]:
    """Write a run's model into a folder, and return the engine's part of the manifest.

    Args:
        run: the run of any translator or language model.
        name: the name of the run, for messages.
        folder: an empty folder.
        quantization: must be None.

    Raises:
        ArgumentError: `quantization` is not None.
        AttentError: a package is not installed, or the model cannot be traced.
    """
    if quantization is not None:
        raise ArgumentError(f"{name} can be exported to ONNX in float32 only; quantization needs --to ctranslate2")
    state: list[dict[str, Any]] = []
    if run.config.task == TextGenerationTask.name:
        _write_language_model(run.model, folder)
    else:
        state = [tensor.entry() for tensor in onnx_graphs.write(run, folder)]
    return {
        "versions": {package: version_of(package) for package in PACKAGES},
        "longest": run.model.longest,
        "state": state,
    }


class LanguageModelGraph(nn.Module):
    """The graph of a language model, from tokens to logits."""

    def __init__(self, model: LanguageModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the next-token logits (B, T, V) after each token (B, T)."""
        return self.model.output(self.model(tokens))


def _write_language_model(model: LanguageModel, folder: Path) -> None:
    longest = model.longest
    axes = {0: torch.export.Dim("rows"), 1: torch.export.Dim("length", max=longest)}
    example = torch.full((3, 5 if longest is None else min(longest, 5)), BOS)
    with torch.no_grad(), tracing():
        export_graph(LanguageModelGraph(model), (example,), (axes,), [TOKENS], [LOGITS], folder / GRAPH)
