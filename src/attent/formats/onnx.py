"""ONNX: two graphs for a translator, driven by our own search, and one graph for a language model.

A language model's graph computes the next-token logits at every position of texts, without cached keys and values:

    model.onnx     tokens (B, T), BOS first  →  logits (B, T, V)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from attent.errors import ArgumentError, RunError
from attent.formats import manifest as manifests
from attent.formats import onnx_graphs
from attent.formats.exporting import LINES, MAX_RANDOM_TOKENS, check_target
from attent.formats.manifest import Manifest, package
from attent.formats.onnx_graphs import AFTER, ENCODER, LENGTHS, LOGITS, SOURCE, STEP, TOKENS, export_graph, tracing
from attent.models.language_model import LanguageModel
from attent.models.model import EncoderDecoder, Memory
from attent.runs.config import read_config, version_of
from attent.runs.durable import new_folder
from attent.runs.folder import Run, read
from attent.tasks.dates.generated import InputCheck
from attent.tasks.text_generation.task import TextGenerationTask
from attent.tasks.translation.translator import Translator
from attent.text.readers import read_lines
from attent.text.tokenizer import BOS, SPECIALS, Tokenizer
from attent.types import Features, Lengths, Tokens

NAME = "onnx"
PACKAGES = ("onnx", "onnxruntime", "onnxscript")

Arrays = dict[str, np.ndarray]
GRAPH = "model.onnx"


def write(run: Run, name: str, folder: Path, quantization: str | None) -> Manifest:
    """Write a run's model into a folder as two graphs, and return the manifest, not yet written.

    Args:
        run: the run of any translator.
        name: the name of the run, for messages.
        folder: an empty folder.
        quantization: must be None.

    Raises:
        ArgumentError: `quantization` is not None.
        AttentError: a package is not installed, or the model cannot be traced.
    """
    if quantization is not None:
        raise ArgumentError(f"{name} can be exported to ONNX in float32 only; quantization needs --to ctranslate2")
    package("onnxruntime", "onnxruntime", NAME)
    manifest = Manifest(engine=NAME, run={}, longest=run.model.longest, state=onnx_graphs.write(run, folder))
    manifest.versions.update({name: version_of(name) for name in PACKAGES})
    return manifest


@dataclass(frozen=True)
class OnnxState:
    """Immutable decoder state: arrays, and row indices into them.

    A step gathers the rows, and computes equal rows only once: batches are padded with repeated rows, and all
    hypotheses of a beam start out equal.

    Args:
        tensors: the tensors of the graphs' state by name.
        written: row indices into the tensors of the target side, (B,).
        source: row indices into the tensors of the source side, (B,).
        logits: the logits after BOS, before the first step, (n, V).
    """

    tensors: Arrays
    written: np.ndarray
    source: np.ndarray
    logits: np.ndarray | None = None

    def select(self, rows: Tensor) -> OnnxState:
        """Return the state of these rows, in this order; rows may be repeated."""
        return replace(self, written=self.written[rows.numpy()], source=self.source[rows.numpy()])

    def reorder(self, rows: Tensor) -> OnnxState:
        """Return the state in which each row continues another row of the same source."""
        return replace(self, written=self.written[rows.numpy()])


class OnnxModel(EncoderDecoder[OnnxState]):
    """A model that runs the two graphs, with the interface of `attent.models.model`; its features are logits.

    Args:
        folder: the folder of an export.
        manifest: its manifest.

    Raises:
        AttentError: onnxruntime is not installed.
        RunError: the export cannot be read.
    """

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        super().__init__()
        runtime = package("onnxruntime", "onnxruntime", NAME)
        options = runtime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        options.log_severity_level = 3
        try:
            self._encoder, self._step = (
                runtime.InferenceSession(str(folder / name), options, providers=["CPUExecutionProvider"])
                for name in (ENCODER, STEP)
            )
        except Exception as error:
            # the errors of onnxruntime have no common base class
            raise RunError(f"{folder} is damaged: {str(error).splitlines()[0]}") from error
        self._longest = manifest.longest
        self._written = [tensor.name for tensor in manifest.state if tensor.side == "written"]
        self._source = [tensor.name for tensor in manifest.state if tensor.side == "source"]
        self._names = [tensor.name for tensor in manifest.state]
        self._changed = [tensor.name for tensor in manifest.state if not tensor.is_constant]
        # a graph has no inputs for unused tensors
        self._inputs = [tensor.name for tensor in self._step.get_inputs() if tensor.name != TOKENS]
        self._outputs = [LOGITS, *(AFTER + name for name in self._changed)]

    @property
    def longest(self) -> int | None:
        """Return the maximum length of a sequence in tokens, including padding; None if there is no limit."""
        return self._longest

    def encode(self, source: Tokens, lengths: Lengths) -> Memory:
        """Return the source as it is, since the graph that encodes it also computes the first step."""
        return Memory(source, lengths)

    def decode(self, memory: Memory, tokens: Tokens) -> Features:
        """Return the logits after BOS and after each token of the target, computed step by step."""
        state = self.start(memory)
        steps = []
        for column in tokens.unbind(1):
            logits, state = self.step(state, column)
            steps.append(logits)
        return torch.stack(steps, 1)

    def start(self, memory: Memory) -> OnnxState:
        """Return the state before the first token, with the logits after BOS."""
        source, lengths = memory.features.numpy(), memory.lengths.numpy()
        # a padded batch ends in equal rows: encode one of them
        differ = np.flatnonzero((source != source[-1:]).any(1) | (lengths != lengths[-1:]))
        count = int(differ[-1]) + 2 if len(differ) else 1
        logits, *tensors = self._encoder.run([LOGITS, *self._names], {SOURCE: source[:count], LENGTHS: lengths[:count]})
        rows = np.minimum(np.arange(len(source)), count - 1)
        return OnnxState(dict(zip(self._names, tensors, strict=True)), rows, rows, logits)

    def step(self, state: OnnxState, tokens: Tensor) -> tuple[Tensor, OnnxState]:
        """Return the logits (B, V) after one more token (B,), and the state that includes it."""
        if state.logits is not None:
            return torch.from_numpy(state.logits[state.written]), replace(state, logits=None)
        ids = tokens.numpy()
        first, rows = _distinct(state.written, ids)
        tensors = dict(state.tensors)
        for names, indices in ((self._written, state.written[first]), (self._source, state.source[first])):
            _take(tensors, names, indices)
        feeds = {name: tensors[name] for name in self._inputs}
        logits, *changed = self._step.run(self._outputs, feeds | {TOKENS: ids[first]})
        tensors.update(zip(self._changed, changed, strict=True))
        return torch.from_numpy(logits if len(logits) == len(ids) else logits[rows]), OnnxState(tensors, rows, rows)

    def output(self, features: Tensor) -> Tensor:
        """Return the features, which are already logits."""
        return features


def _distinct(parents: np.ndarray, tokens: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the first row of each distinct pair (parent, token), and the index of every row's pair among these."""
    first: dict[tuple[int, int], int] = {}
    pairs = list(zip(parents.tolist(), tokens.tolist(), strict=True))
    for row, pair in enumerate(pairs):
        first.setdefault(pair, row)
    index = {pair: number for number, pair in enumerate(first)}
    return np.fromiter(first.values(), np.int64), np.array([index[pair] for pair in pairs])


def _take(tensors: Arrays, names: Sequence[str], rows: np.ndarray) -> None:
    """Select rows of some tensors in place, unless these are all of their rows in order."""
    if not names or (len(rows) == len(tensors[names[0]]) and (rows == np.arange(len(rows))).all()):
        return
    for name in names:
        tensors[name] = tensors[name][rows]


def load(
    folder: Path,
    manifest: Manifest,
    source_tokenizer: Tokenizer,
    target_tokenizer: Tokenizer,
    input_check: InputCheck | None = None,
) -> Translator:
    """Load an export as a translator that runs our own search on its graphs, without attention maps."""
    return Translator(OnnxModel(folder, manifest), source_tokenizer, target_tokenizer, input_check)


class LanguageModelGraph(nn.Module):
    """The graph of a language model, from tokens to logits."""

    def __init__(self, model: LanguageModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the next-token logits (B, T, V) after each token (B, T)."""
        return self.model.output(self.model(tokens))


def export(
    run: Path, out: Path | None = None, *, sample: Path | None = None, trust_code: bool = False
) -> tuple[Path, float]:
    """Write a language model as ONNX, and compare its logits with our own.

    Args:
        run: the run folder.
        out: the output folder, which may contain an older export; RUN/export/onnx by default.
        sample: a file of lines to compare on; random pieces by default.
        trust_code: True to import modules named by the run.

    Returns:
        The folder, and the largest difference of log-probabilities, in nats.

    Raises:
        ArgumentError: a line of the sample is longer than the model can read.
        RunError: the run is damaged, or the folder cannot be written.
        AttentError: a package is not installed, or the model cannot be traced.
    """
    target = check_target(run, NAME, out)
    TextGenerationTask().check_config(run, read_config(run))
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
    """Return the largest difference between the log-probabilities of model and engine after any token of a text."""
    tokens = torch.tensor([[BOS, *text]])
    with torch.no_grad():
        expected = model.output(model(tokens)).double().log_softmax(-1)
    (logits,) = engine.run([LOGITS], {TOKENS: tokens.numpy()})  # pyright: ignore[reportAttributeAccessIssue]
    return float((torch.from_numpy(logits).double().log_softmax(-1) - expected).abs().max())


def _sample(tokenizer: Tokenizer, file: Path | None, longest: int | None) -> list[list[int]]:
    """Return the tokens of the first lines of a file, or random ones, which are always the same."""
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
