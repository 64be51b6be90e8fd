"""A trained model, ready to translate text and to show its attention."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, overload

import numpy as np
import torch

from attent.attention.capture.watch import watch
from attent.data.batches import KEY_MULTIPLE, BatchSize, Sequences, cut_batches
from attent.data.dates.checks import InputCheck, input_check
from attent.data.text import Pair
from attent.data.tokenizer import BOS, Tokenizer
from attent.decoding.beam import likeliest
from attent.decoding.constraints import Constraints
from attent.decoding.hypothesis import Hypothesis, Translation
from attent.decoding.labelled import LabelledMap
from attent.decoding.sampling import Sampler, uniforms
from attent.decoding.score import BATCH as SCORED
from attent.decoding.score import PairScore, score_pairs
from attent.decoding.search import Choice, search
from attent.decoding.settings import GREEDY, SearchSettings
from attent.decoding.side_by_side import parallel_map
from attent.errors import ArgumentError
from attent.models.encoder_decoder import EncoderDecoder
from attent.runs.folder import read

# Sentences translated side by side, in pairs; enough for the products to be large, few enough for any memory.
BATCH = 128
EOS_LABEL = "</s>"
BOS_LABEL = "<s>"


class Translator:
    """Translates text with a model and its tokenizers.

    Args:
        model: keeps the contract of `attent.models.encoder_decoder`; put into evaluation mode.
        source_tokenizer: for the text to translate.
        target_tokenizer: for the translation.
        input_check: why a text is none of those that the model learnt to translate; None where any text may be.
    """

    def __init__(
        self,
        model: EncoderDecoder[Any],
        source_tokenizer: Tokenizer,
        target_tokenizer: Tokenizer,
        input_check: InputCheck | None = None,
    ) -> None:
        model.eval()
        self.model, self.source_tokenizer, self.target_tokenizer, self.input_check = model, source_tokenizer, target_tokenizer, input_check
        self.device = next(model.parameters()).device

    @property
    def longest_source(self) -> int | None:
        """The most tokens that a text may have to be translated; None where there is no limit."""
        return None if self.model.longest is None else self.model.longest // KEY_MULTIPLE * KEY_MULTIPLE

    def refusal(self, text: str) -> str | None:
        """Why a text has an empty translation although it is not empty; None where it has another."""
        return refusal(text, self.source_tokenizer, self.longest_source, self.input_check)

    def can_read(self, source: str, target: str) -> bool:
        """Whether the model can read a text, and a translation of it with BOS before."""
        longest, most = self.model.longest, self.longest_source
        if longest is None or most is None:
            return True
        return len(self.source_tokenizer.encode(source)) <= most and len(self.target_tokenizer.encode(target)) < longest

    @overload
    def translate(  # pyright: ignore[reportOverlappingOverload]
        self, texts: str, settings: SearchSettings = ..., *, prefixes: str | None = ..., batch: int | BatchSize = ...
    ) -> str: ...
    @overload
    def translate(
        self, texts: Sequence[str], settings: SearchSettings = ..., *, prefixes: Sequence[str] | None = ..., batch: int | BatchSize = ...
    ) -> list[str]: ...
    def translate(
        self,
        texts: str | Sequence[str],
        settings: SearchSettings = GREEDY,
        *,
        prefixes: Any = None,
        batch: int | BatchSize = BATCH,
    ) -> str | list[str]:
        """Translate a text, or each of several; the order is kept. What is empty, or refused, has an empty translation.

        Args:
            texts: one sentence each, which gives a list; or a single string, which gives a string.
            settings: of the search.
            prefixes: how each translation must begin, a string for a single text; freely unless given.
            batch: how many are translated side by side, in texts unless said otherwise; a translation does not depend on it.
        """
        if isinstance(texts, str):
            return self.translate([texts], settings, prefixes=None if prefixes is None else [prefixes], batch=batch)[0]
        return [found[0].text for found in self.search(texts, settings, prefixes=prefixes, batch=batch)]

    @overload
    def search(  # pyright: ignore[reportOverlappingOverload]
        self, texts: str, settings: SearchSettings = ..., *, prefixes: str | Sequence[int] | None = ..., batch: int | BatchSize = ...
    ) -> list[Translation]: ...
    @overload
    def search(
        self,
        texts: Sequence[str],
        settings: SearchSettings = ...,
        *,
        prefixes: Sequence[str | Sequence[int]] | None = ...,
        batch: int | BatchSize = ...,
    ) -> list[list[Translation]]: ...
    def search(
        self,
        texts: str | Sequence[str],
        settings: SearchSettings = GREEDY,
        *,
        prefixes: Any = None,
        batch: int | BatchSize = BATCH,
    ) -> list[Translation] | list[list[Translation]]:
        """The n_best translations of a text, or of each of several, with their scores, the best first; arguments as for `translate`.

        A prefix may also be the ids of its tokens.

        Raises:
            ArgumentError: there are not as many prefixes as texts.
        """
        if isinstance(texts, str):
            return self.search([texts], settings, prefixes=None if prefixes is None else [prefixes], batch=batch)[0]
        if isinstance(prefixes, str) or (prefixes is not None and len(prefixes) != len(texts)):
            count = repr(prefixes) if isinstance(prefixes, str) else len(prefixes)
            raise ArgumentError(f"there must be a prefix for each of {len(texts)} texts, got {count}")
        begun = [self.target_tokenizer.encode(prefix) if isinstance(prefix, str) else [*prefix] for prefix in prefixes or [()] * len(texts)]
        if any(isinstance(token, str) for tokens in begun for token in tokens):
            raise ArgumentError(f"a prefix must be a string or the ids of its tokens, got {prefixes}")
        encoded = encode_sources(texts, self.source_tokenizer, self.input_check)
        sources = Sequences(encoded)
        found = [[Translation((), 0.0, 1.0, "")]] * len(texts)
        # of what the model can number, one is BOS
        most = np.iinfo(np.int64).max if self.model.longest is None else self.model.longest - 1

        def searched(rows: np.ndarray) -> list[list[Hypothesis]]:
            limits = torch.from_numpy(np.minimum(settings.limits(sources.lengths[rows]), most)).to(self.device)
            constraints = Constraints.of(
                limits,
                [begun[row] for row in rows],
                minimum_length=settings.minimum_length,
                no_repeat_ngram=settings.no_repeat_ngram,
            )
            return search(
                self.model,
                torch.from_numpy(sources.pad(rows, KEY_MULTIPLE)).to(self.device),
                torch.from_numpy(sources.lengths[rows]).to(self.device),
                constraints,
                settings,
                self._choice(settings, [encoded[row] for row in rows], int(constraints.limits.max()) + 1),
            )

        parts = [*length_batches(sources.lengths, self.longest_source, batch)][::-1]
        with torch.inference_mode():
            # rows of their own do not depend on threads either
            each = parallel_map if self.model.rowwise else map
        for rows, hypotheses in zip(parts, each(searched, parts), strict=True):
            for row, best in zip(rows, hypotheses, strict=True):
                found[row] = [self._read(hypothesis) for hypothesis in best]
        return found

    @overload
    def score(self, pairs: Pair | tuple[str, str], *, batch: int | BatchSize = ...) -> PairScore: ...
    @overload
    def score(self, pairs: Sequence[Pair | tuple[str, str]], *, batch: int | BatchSize = ...) -> list[PairScore]: ...
    def score(
        self, pairs: Pair | tuple[str, str] | Sequence[Pair | tuple[str, str]], *, batch: int | BatchSize = SCORED
    ) -> PairScore | list[PairScore]:
        """The log-probability of each pair's target given its source, in nats, of the whole and per token.

        Args:
            pairs: sources and targets, which give a list; or a single pair, which gives a single score.
            batch: how many are scored side by side, in pairs unless said otherwise.

        Raises:
            ArgumentError: something is no pair of texts.
        """
        if isinstance(pairs, Pair) or (isinstance(pairs, tuple) and isinstance(next(iter(pairs), None), str)):
            return self.score([_pair(pairs)], batch=batch)[0]
        size = BatchSize(pairs=batch) if isinstance(batch, int) else batch
        made = [_pair(pair) for pair in pairs]
        return score_pairs(self.model, made, self.source_tokenizer, self.target_tokenizer, size)

    def length_error(self, source: str, target: str, most: int | None) -> str | None:
        """Why a pair cannot be read by a model that reads so many tokens of a side; None where it can.

        Args:
            source: what is read.
            target: what is given; BOS before it counts.
            most: None where there is no limit. `score` reads as many as `model.longest`.
        """
        if most is None:
            return None
        tokens = max(len(self.source_tokenizer.encode(source)), len(self.target_tokenizer.encode(target)) + 1)
        return None if tokens <= most else f"{tokens:,} tokens, more than the {most:,} that this model can read"

    def _choice(self, settings: SearchSettings, sources: Sequence[Sequence[int]], steps: int) -> Choice:
        if not settings.sample:
            return likeliest
        numbers = uniforms(settings.seed, sources, settings.n_best, steps).to(self.device)
        return Sampler(numbers, settings.temperature, settings.top_k, settings.top_p)

    def _read(self, found: Hypothesis) -> Translation:
        return Translation(found.tokens, found.log_probability, found.length_penalty, self.target_tokenizer.decode(found.tokens))

    @torch.no_grad()
    def map(self, source: str, target: str | None = None) -> dict[str, LabelledMap]:
        """Every attention map of one translation, by the name of its module, in the order of computation.

        Args:
            source: the text to translate.
            target: a translation to look at; the model's own unless given.

        Raises:
            ArgumentError: the source is empty, or refused where no target is given.
        """
        if not source:
            raise ArgumentError("an empty source has no attention to show")
        if target is None and (why := self.refusal(source)):
            raise ArgumentError(why)
        if target is None:
            target = self.translate([source])[0]
        sources = (*self.source_tokenizer.pieces(source),)
        targets = (*self.target_tokenizer.pieces(target), EOS_LABEL)
        tokens = torch.tensor([self.source_tokenizer.encode(source)], device=self.device)
        given = torch.tensor([[BOS, *self.target_tokenizer.encode(target)]], device=self.device)
        with watch(self.model) as seen:
            memory = self.model.encode(tokens, torch.tensor([tokens.shape[1]], device=self.device))
            self.model.decode(memory, given)
        maps = {}
        for name, weights in seen.items():
            if name.startswith("encoder."):
                maps[name] = LabelledMap(weights, sources, sources)
            elif name.endswith("cross_attention"):
                maps[name] = LabelledMap(weights, targets, sources)
            else:
                maps[name] = LabelledMap(weights, targets, (BOS_LABEL, *targets[:-1]))
        return maps


def _pair(given: object) -> Pair:
    match given:
        case Pair():
            return given
        case (str() as source, str() as target):
            return Pair(source, target)
    raise ArgumentError(f"a pair must be (source, target), got {given!r}")


def refusal(text: str, tokenizer: Tokenizer, longest: int | None, input_check: InputCheck | None) -> str | None:
    """Why a text is not translated; None where it is, or is empty.

    Args:
        text: the source.
        tokenizer: what cuts it.
        longest: the most tokens that it may have; None where there is no limit.
        input_check: as of a `Translator`.
    """
    if longest is not None and (tokens := len(tokenizer.encode(text))) > longest:
        return f"not translated: {tokens} tokens, more than the {longest} that this model can read"
    return input_check(text) if text and input_check else None


def encode_sources(texts: Sequence[str], tokenizer: Tokenizer, input_check: InputCheck | None) -> list[list[int]]:
    """The ids of each text; none of one that fails the check."""
    return [tokenizer.encode("" if input_check and input_check(text) else text) for text in texts]


def length_batches(lengths: np.ndarray, longest: int | None, batch: int | BatchSize) -> Iterator[np.ndarray]:
    """The rows that are translated side by side, from short to long; those that cannot be are left out.

    Args:
        lengths: tokens of each source.
        longest: the most that one may have; None where there is no limit.
        batch: how many are translated at a time, in texts unless said otherwise.
    """
    order = np.argsort(lengths, kind="stable")
    order = order[(lengths[order] > 0) & (lengths[order] <= (longest or np.inf))]
    return cut_batches(order, lengths, BatchSize(pairs=batch) if isinstance(batch, int) else batch)


def load(path: Path | str, device: torch.device | str = "cpu", *, trust_code: bool = False) -> Translator:
    """The translator that a run folder holds.

    Raises:
        RunError: the folder is missing, damaged, or written by a newer version, or holds something else.
    """
    run = read(path, "translate", trust_code)
    return Translator(run.model.to(device), run.source_tokenizer, run.target_tokenizer, input_check(run.config.corpus))
