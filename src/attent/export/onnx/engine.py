"""ONNX's two graphs in the place of a model, under our own search."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from attent.data.dates.checks import InputCheck
from attent.data.tokenizer import Tokenizer
from attent.decoding.translator import Translator
from attent.errors import ArgumentError, RunError
from attent.export.manifest import Manifest, package, version_of
from attent.export.onnx import graphs
from attent.export.onnx.graphs import AFTER, ENCODER, LENGTHS, LOGITS, SOURCE, STEP, TOKENS
from attent.models.model import EncoderDecoder, Memory
from attent.runs.folder import Run
from attent.types import Features, Lengths, Tokens

NAME = "onnx"
PACKAGES = ("onnx", "onnxruntime", "onnxscript")

Arrays = dict[str, np.ndarray]


def write(run: Run, name: str, folder: Path, quantisation: str | None) -> Manifest:
    """Write a run's model into a folder as two graphs; the manifest is still to be written.

    Args:
        run: of any model.
        name: what a message calls the run.
        folder: an empty folder.
        quantisation: there is none.

    Raises:
        ArgumentError: a quantisation is asked for.
        AttentError: a package is not installed, or the model cannot be traced.
    """
    if quantisation is not None:
        raise ArgumentError(f"{name} is written as ONNX in float32 alone; quantisation is for --to ctranslate2")
    package("onnxruntime", "onnxruntime", NAME)
    manifest = Manifest(engine=NAME, run={}, longest=run.model.longest, state=graphs.write(run, folder))
    manifest.versions.update({needed: version_of(needed) for needed in PACKAGES})
    return manifest


@dataclass(frozen=True)
class OnnxState:
    """Where the decoder stands: arrays, and which of their rows each row of the batch means.

    Rows are looked up when a step needs them, and equal ones are computed once: a batch is filled up with repeated rows, and
    the hypotheses of a beam begin as one.

    Args:
        tensors: the graphs' state by name.
        written: for each row of the batch the row of what is written, (B,).
        source: for each row of the batch the row of the source's side, (B,).
        logits: those after BOS, while that is all that is written, (n, V).
    """

    tensors: Arrays
    written: np.ndarray
    source: np.ndarray
    logits: np.ndarray | None = None

    def select(self, rows: Tensor) -> OnnxState:
        """These rows of the batch, in this order; a row may be named twice."""
        return replace(self, written=self.written[rows.numpy()], source=self.source[rows.numpy()])

    def reorder(self, rows: Tensor) -> OnnxState:
        """`select` where each row takes what a row with the same source has written."""
        return replace(self, written=self.written[rows.numpy()])


class OnnxModel(EncoderDecoder[OnnxState]):
    """Two graphs as a model: it keeps the contract of `attent.models.model`, with logits for features.

    Args:
        folder: an export.
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
                runtime.InferenceSession(str(folder / name), options, providers=["CPUExecutionProvider"]) for name in (ENCODER, STEP)
            )
        except Exception as error:
            # onnxruntime has errors of many kinds, and no root of them
            raise RunError(f"{folder} is damaged: {str(error).splitlines()[0]}") from error
        self._longest = manifest.longest
        self._written = [tensor.name for tensor in manifest.state if tensor.side == "written"]
        self._source = [tensor.name for tensor in manifest.state if tensor.side == "source"]
        self._names = [tensor.name for tensor in manifest.state]
        self._changed = [tensor.name for tensor in manifest.state if not tensor.is_constant]
        # a tensor that a graph has no use for is none of its inputs
        self._read = [given.name for given in self._step.get_inputs() if given.name != TOKENS]
        self._outputs = [LOGITS, *(AFTER + name for name in self._changed)]

    @property
    def longest(self) -> int | None:
        """The most tokens, padding included, that a sequence may have on either side; None where there is no limit."""
        return self._longest

    def encode(self, source: Tokens, lengths: Lengths) -> Memory:
        """The source itself: the graph that reads it takes the first step too."""
        return Memory(source, lengths)

    def decode(self, memory: Memory, tokens: Tokens) -> Features:
        """Logits after BOS and the target up to each token, step by step."""
        state = self.start(memory)
        steps = []
        for given in tokens.unbind(1):
            logits, state = self.step(state, given)
            steps.append(logits)
        return torch.stack(steps, 1)

    def start(self, memory: Memory) -> OnnxState:
        """The state before the first token, with the logits that follow BOS."""
        source, lengths = memory.features.numpy(), memory.lengths.numpy()
        # a batch that is filled up ends in equal rows, of which one will do
        differ = np.flatnonzero((source != source[-1:]).any(1) | (lengths != lengths[-1:]))
        count = int(differ[-1]) + 2 if len(differ) else 1
        logits, *tensors = self._encoder.run([LOGITS, *self._names], {SOURCE: source[:count], LENGTHS: lengths[:count]})
        rows = np.minimum(np.arange(len(source)), count - 1)
        return OnnxState(dict(zip(self._names, tensors, strict=True)), rows, rows, logits)

    def step(self, state: OnnxState, tokens: Tensor) -> tuple[Tensor, OnnxState]:
        """Logits (B, V) after one further token (B,), and the state that includes it."""
        if state.logits is not None:
            return torch.from_numpy(state.logits[state.written]), replace(state, logits=None)
        given = tokens.numpy()
        first, rows = _distinct(state.written, given)
        tensors = dict(state.tensors)
        for names, places in ((self._written, state.written[first]), (self._source, state.source[first])):
            _take(tensors, names, places)
        feeds = {name: tensors[name] for name in self._read}
        logits, *changed = self._step.run(self._outputs, feeds | {TOKENS: given[first]})
        tensors.update(zip(self._changed, changed, strict=True))
        return torch.from_numpy(logits if len(logits) == len(given) else logits[rows]), OnnxState(tensors, rows, rows)

    def output(self, features: Tensor) -> Tensor:
        """The logits that the graphs have computed already."""
        return features


def _distinct(places: np.ndarray, tokens: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The first row of each kind, in order, and which of these every row is like."""
    known: dict[tuple[int, int], int] = {}
    rows = [known.setdefault(pair, len(known)) for pair in zip(places.tolist(), tokens.tolist(), strict=True)]
    if len(known) == len(rows):
        every = np.arange(len(rows))
        return every, every
    first = [-1] * len(known)
    for place, row in enumerate(rows):
        if first[row] < 0:
            first[row] = place
    return np.array(first), np.array(rows)


def _take(tensors: Arrays, names: Sequence[str], places: np.ndarray) -> None:
    """Put rows in the place of some tensors, unless these are their rows already."""
    if not names or (len(places) == len(tensors[names[0]]) and (places == np.arange(len(places))).all()):
        return
    for name in names:
        tensors[name] = tensors[name][places]


class OnnxTranslator(Translator):
    """Our own search over ONNX's graphs; it shows no attention.

    Args:
        model: the graphs.
        source_tokenizer: for the text to translate.
        target_tokenizer: for the translation.
        input_check: as of a `Translator`.
    """

    def __init__(
        self, model: OnnxModel, source_tokenizer: Tokenizer, target_tokenizer: Tokenizer, input_check: InputCheck | None = None
    ) -> None:
        # a model without parameters, which the root would look for its device at
        self.model, self.source_tokenizer, self.target_tokenizer, self.input_check = model, source_tokenizer, target_tokenizer, input_check
        self.device = torch.device("cpu")


def load(
    folder: Path, manifest: Manifest, source_tokenizer: Tokenizer, target_tokenizer: Tokenizer, input_check: InputCheck | None = None
) -> OnnxTranslator:
    """The engine that reads an export."""
    return OnnxTranslator(OnnxModel(folder, manifest), source_tokenizer, target_tokenizer, input_check)
