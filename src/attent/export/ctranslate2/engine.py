"""CTranslate2 in the place of our own engine: its export, and its search with our settings."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, overload

import numpy as np
import torch

from attent.data.batches import KEY_MULTIPLE, BatchSize, Sequences
from attent.data.dates.checks import InputCheck
from attent.data.tokenizer import Tokenizer
from attent.decoding.hypothesis import Translation, length_penalty
from attent.decoding.settings import GREEDY, SearchSettings
from attent.decoding.translator import BATCH, encode_sources, length_batches, refusal
from attent.errors import ArgumentError, RunError
from attent.export.ctranslate2.specification import BOS, SPECIAL, max_length, specification, unsupported
from attent.export.manifest import Manifest, package
from attent.runs.folder import Run

NAME = "ctranslate2"
# What it forbids at every step, as our own search does.
NEVER = [[SPECIAL[0]], [BOS]]


def write(run: Run, name: str, folder: Path, quantisation: str | None) -> Manifest:
    """Write a run's model into a folder, as CTranslate2 reads it; the manifest is still to be written.

    Args:
        run: a Transformer.
        name: what a message calls the run.
        folder: an empty folder.
        quantisation: the type that weights are stored in, by CTranslate2's name; as they are unless given.

    Raises:
        ArgumentError: CTranslate2 cannot express the model, or has no such quantisation.
        AttentError: CTranslate2 is not installed.
    """
    found = package(NAME, "CTranslate2", NAME)
    if reason := unsupported(run):
        raise ArgumentError(f"CTranslate2 cannot express this model: {reason}; attent export {name} --to onnx takes every translator")
    from ctranslate2.specs.model_spec import ACCEPTED_MODEL_TYPES

    if quantisation is not None and quantisation not in ACCEPTED_MODEL_TYPES:
        raise ArgumentError(f"quantisation must be one of {', '.join(ACCEPTED_MODEL_TYPES)}, got {quantisation!r}")
    spec = specification(run)
    spec.validate()
    spec.optimize(quantization=quantisation)
    spec.save(str(folder))
    manifest = Manifest(engine=NAME, run={}, quantization=quantisation, longest=max_length(run))
    manifest.versions[NAME] = found.__version__
    return manifest


class CTranslate2Engine:
    """Translates as `Translator` does, as far as CTranslate2's search goes.

    A beam search ends when as many hypotheses as it is wide have ended, and these are ranked by our length penalty; ours goes
    on until nothing better can come. Log-probabilities are over what may be said, without PAD and BOS; a translation that
    reaches its limit is cut off there, and EOS does not count in its score. Each of torch's threads translates batches of its own.

    Args:
        folder: an export.
        manifest: its manifest.
        source_tokenizer: for the text to translate.
        target_tokenizer: for the translation.
        input_check: as of a `Translator`.

    Raises:
        AttentError: CTranslate2 is not installed.
        RunError: the export cannot be read.
    """

    def __init__(
        self,
        folder: Path,
        manifest: Manifest,
        source_tokenizer: Tokenizer,
        target_tokenizer: Tokenizer,
        input_check: InputCheck | None = None,
    ) -> None:
        self.source_tokenizer, self.target_tokenizer, self.input_check = source_tokenizer, target_tokenizer, input_check
        self._longest = manifest.longest
        found = package(NAME, "CTranslate2", NAME)
        try:
            shared = folder / "shared_vocabulary.json"
            names = [shared, shared] if shared.is_file() else [folder / f"{side}_vocabulary.json" for side in ("source", "target")]
            self._sources, targets = (json.loads(file.read_text(encoding="utf-8")) for file in names)
            threads = torch.get_num_threads()
            self._translator = found.Translator(str(folder), device="cpu", inter_threads=threads, intra_threads=1)
            # it has set the number for the whole process to that within a batch
            torch.set_num_threads(threads)
        except (OSError, ValueError, RuntimeError) as error:
            raise RunError(f"{folder} is damaged: {error}") from error
        self._targets = {name: token for token, name in enumerate(targets)}

    @property
    def longest_source(self) -> int | None:
        """The most tokens that a text may have to be translated; None where there is no limit."""
        return None if self._longest is None else self._longest // KEY_MULTIPLE * KEY_MULTIPLE

    def refusal(self, text: str) -> str | None:
        """Why a text has an empty translation although it is not empty; None where it has another."""
        return refusal(text, self.source_tokenizer, self.longest_source, self.input_check)

    @overload
    def search(  # pyright: ignore[reportOverlappingOverload]
        self, texts: str, settings: SearchSettings = ..., *, prefixes: Sequence[str] | None = ..., batch: int | BatchSize = ...
    ) -> list[Translation]: ...
    @overload
    def search(
        self, texts: Sequence[str], settings: SearchSettings = ..., *, prefixes: Sequence[str] | None = ..., batch: int | BatchSize = ...
    ) -> list[list[Translation]]: ...
    def search(
        self,
        texts: str | Sequence[str],
        settings: SearchSettings = GREEDY,
        *,
        prefixes: Sequence[str] | None = None,
        batch: int | BatchSize = BATCH,
    ) -> list[Translation] | list[list[Translation]]:
        """The n_best translations of a text, or of each of several, with their scores, the best first; see `Translator.search`.

        Raises:
            ArgumentError: samples or prefixes are asked for.
        """
        if settings.sample:
            raise ArgumentError("the engine ctranslate2 does not draw samples as attent does; leave --engine out, or take onnx")
        if any(prefixes or ()):
            raise ArgumentError("the engine ctranslate2 does not score what it is made to say; leave --engine out, or take onnx")
        if isinstance(texts, str):
            return self.search([texts], settings, batch=batch)[0]
        encoded = encode_sources(texts, self.source_tokenizer, self.input_check)
        lengths = Sequences(encoded).lengths
        limits = np.minimum(settings.limits(lengths), np.iinfo(np.int64).max if self._longest is None else self._longest - 1)
        found = [[Translation((), 0.0, 1.0, "")]] * len(texts)
        # one call has one limit: what goes beyond its own is translated again, with others of the same
        beyond: dict[int, list[int]] = {}
        # all are asked for before any is waited for, so that each thread has work
        asked = [
            self._asked(encoded, rows.tolist(), int(limits[rows].max()), settings)
            for rows in length_batches(lengths, self.longest_source, batch)
        ]
        for row, result in chain.from_iterable(asked):
            if max(map(len, result.hypotheses)) > limits[row]:
                beyond.setdefault(int(limits[row]), []).append(row)
            else:
                found[row] = self._ranked(result, settings)
        for limit, late in beyond.items():
            for some in length_batches(lengths[late], self.longest_source, batch):
                for row, result in self._asked(encoded, [late[place] for place in some], limit, settings):
                    found[row] = self._ranked(result, settings)
        return found

    def _asked(self, encoded: Sequence[Sequence[int]], rows: list[int], limit: int, settings: SearchSettings) -> Iterator[tuple[int, Any]]:
        """Some rows, and what CTranslate2 makes of each; it begins at once, and is waited for when that is read."""
        results = self._translator.translate_batch(
            [[self._sources[token] for token in encoded[row]] for row in rows],
            max_input_length=0,
            beam_size=settings.beam,
            num_hypotheses=settings.beam,
            # ranked by our own penalty
            length_penalty=0,
            min_decoding_length=settings.minimum_length,
            max_decoding_length=min(limit, np.iinfo(np.int32).max),
            no_repeat_ngram_size=settings.no_repeat_ngram,
            suppress_sequences=NEVER,
            return_scores=True,
            asynchronous=True,
        )
        return ((row, result.result()) for row, result in zip(rows, results, strict=True))

    def _ranked(self, result: Any, settings: SearchSettings) -> list[Translation]:
        """Its hypotheses by our score, the best first."""
        best = []
        for names, log_probability in zip(result.hypotheses, result.scores, strict=True):
            tokens = tuple(self._targets[name] for name in names)
            penalty = length_penalty(len(tokens) + 1, settings.length_penalty)
            best.append(Translation(tokens, log_probability, penalty, self.target_tokenizer.decode(tokens)))
        return sorted(best, key=lambda one: -one.score)[: settings.n_best]


def load(
    folder: Path, manifest: Manifest, source_tokenizer: Tokenizer, target_tokenizer: Tokenizer, input_check: InputCheck | None = None
) -> CTranslate2Engine:
    """The engine that reads an export; see CTranslate2Engine."""
    return CTranslate2Engine(folder, manifest, source_tokenizer, target_tokenizer, input_check)
