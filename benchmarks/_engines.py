"""Exported models behind the interface of attent's translator: CTranslate2 with its own search, ONNX with ours."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from attent.errors import ArgumentError
from attent.formats.ctranslate2 import SPECIAL
from attent.formats.exporting import EXPORTS, MANIFEST
from attent.formats.onnx_graphs import AFTER, ENCODER, LENGTHS, LOGITS, SOURCE, STEP, TOKENS
from attent.models.model import EncoderDecoder, Memory
from attent.runs.config import read_config
from attent.runs.folder import read_tokenizers
from attent.search.search import Hypothesis, length_penalty
from attent.search.settings import SearchSettings
from attent.tasks.translation.engine import Engine
from attent.tasks.translation.translator import Translator
from attent.text.batches import BatchSize, Sequences
from attent.text.tokenizer import Tokenizer, prompt_of
from attent.types import Features, Lengths, Tokens

# Never generated, as in our own search: PAD and BOS.
FORBIDDEN = [[SPECIAL[0]], [SPECIAL[2]]]
Arrays = dict[str, np.ndarray]


class CTranslate2Engine(Engine):
    """Translates like `Translator`, with CTranslate2's search.

    Its beam search ends when K hypotheses have ended, which are ranked by our length penalty; our own search continues
    until no hypothesis can improve. Log-probabilities are normalized without PAD and BOS; a translation that reaches
    its limit is truncated, and its score does not include EOS. Each of torch's threads translates separate batches.

    Args:
        folder: the folder of an export.
        manifest: its manifest.
        source_tokenizer: the tokenizer for the text to translate.
        target_tokenizer: the tokenizer for the translation.
    """

    def __init__(
        self,
        folder: Path,
        manifest: Mapping[str, Any],
        source_tokenizer: Tokenizer,
        target_tokenizer: Tokenizer,
    ) -> None:
        super().__init__(source_tokenizer, target_tokenizer, longest=manifest["longest"])
        ctranslate2 = import_module("ctranslate2")
        shared = folder / "shared_vocabulary.json"
        names = (
            [shared, shared]
            if shared.is_file()
            else [folder / f"{side}_vocabulary.json" for side in ("source", "target")]
        )
        self._sources, targets = (json.loads(file.read_text(encoding="utf-8")) for file in names)
        threads = torch.get_num_threads()
        self._translator = ctranslate2.Translator(str(folder), device="cpu", inter_threads=threads, intra_threads=1)
        # the constructor sets the number of threads of the process to that for a batch
        torch.set_num_threads(threads)
        self._targets = {name: token for token, name in enumerate(targets)}
        self._prompt = [targets[token] for token in prompt_of(target_tokenizer)]

    def search_encoded(
        self,
        sources: Sequence[Sequence[int]],
        prefixes: Sequence[Sequence[int]],
        settings: SearchSettings,
        batch: int | BatchSize,
    ) -> list[list[Hypothesis]]:
        """Return the n_best translations of each source, the best first; see `Engine.search_encoded`.

        Raises:
            ArgumentError: `settings` requests sampling, or there are prefixes.
        """
        if settings.sample:
            raise ArgumentError("CTranslate2 does not sample like attent")
        prompt = prompt_of(self.target_tokenizer)
        if any(tuple(prefix) != prompt for prefix in prefixes):
            raise ArgumentError("CTranslate2 does not score prefixes")
        lengths = Sequences(sources).lengths
        limits = settings.limits(lengths, self.longest)
        translations = [[Hypothesis((), 0.0, 1.0)]] * len(sources)
        # a batch has a single limit: sources whose translations exceed their individual limits are translated again,
        # grouped by limit
        over_limit: dict[int, list[int]] = {}
        # start all batches before waiting for the first, so that every thread has work
        batches = [
            self._translate_batch(sources, rows.tolist(), int(limits[rows].max()), settings)
            for rows in self.length_batches(lengths, batch)
        ]
        for row, result in chain.from_iterable(batches):
            if max(map(len, result.hypotheses)) > limits[row]:
                over_limit.setdefault(int(limits[row]), []).append(row)
            else:
                translations[row] = self._rank(result, settings)
        for limit, rows in over_limit.items():
            for indices in self.length_batches(lengths[rows], batch):
                for row, result in self._translate_batch(sources, [rows[index] for index in indices], limit, settings):
                    translations[row] = self._rank(result, settings)
        return translations

    def _translate_batch(
        self, encoded: Sequence[Sequence[int]], rows: list[int], limit: int, settings: SearchSettings
    ) -> Iterator[tuple[int, Any]]:
        """Start to translate a batch; the returned iterator waits for each row's result."""
        results = self._translator.translate_batch(
            [[self._sources[token] for token in encoded[row]] for row in rows],
            max_input_length=0,
            beam_size=settings.beam,
            num_hypotheses=settings.beam,
            # hypotheses are ranked by our own penalty
            length_penalty=0,
            min_decoding_length=settings.minimum_length,
            max_decoding_length=min(limit, np.iinfo(np.int32).max),
            no_repeat_ngram_size=settings.no_repeat_ngram,
            suppress_sequences=FORBIDDEN,
            target_prefix=[self._prompt] * len(rows) if self._prompt else None,
            return_scores=True,
            asynchronous=True,
        )
        return ((row, result.result()) for row, result in zip(rows, results, strict=True))

    def _rank(self, result: Any, settings: SearchSettings) -> list[Hypothesis]:
        """Return the hypotheses ranked by our score, the best first."""
        best = []
        for names, log_probability in zip(result.hypotheses, result.scores, strict=True):
            tokens = tuple(self._targets[name] for name in names)
            penalty = length_penalty(len(tokens) + 1, settings.length_penalty, settings.length_form)
            best.append(Hypothesis(tokens, log_probability, penalty))
        return sorted(best, key=lambda translation: -translation.score)[: settings.n_best]


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
    """

    def __init__(self, folder: Path, manifest: Mapping[str, Any]) -> None:
        super().__init__()
        runtime = import_module("onnxruntime")
        options = runtime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        options.log_severity_level = 3
        self._encoder, self._step = (
            runtime.InferenceSession(str(folder / name), options, providers=["CPUExecutionProvider"])
            for name in (ENCODER, STEP)
        )
        self._longest, state = manifest["longest"], manifest["state"]
        self._written = [tensor["name"] for tensor in state if tensor["side"] == "written"]
        self._source = [tensor["name"] for tensor in state if tensor["side"] == "source"]
        self._names = [tensor["name"] for tensor in state]
        self._changed = [tensor["name"] for tensor in state if not tensor["kept"]]
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


def load(run: Path, engine: str, folder: Path | None = None) -> Engine:
    """Load the export of a run, RUN/export/ENGINE unless given, as a translator of texts.

    Raises:
        OSError: there is no export.
        ImportError: the engine is not installed.
    """
    folder = run / EXPORTS / engine if folder is None else folder
    manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    source, target = read_tokenizers(run, read_config(run))
    if engine == "ctranslate2":
        return CTranslate2Engine(folder, manifest, source, target)
    return Translator(OnnxModel(folder, manifest), source, target)
