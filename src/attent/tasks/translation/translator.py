"""A trained translator: it translates text, scores translations, and shows its attention."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar, overload

import numpy as np
import torch

from attent.attention.capture.watch import watch
from attent.attention.maps.attention_map import AttentionMap, LabelledMap
from attent.errors import ArgumentError
from attent.models.model import EncoderDecoder, Memory
from attent.runs.config import DType
from attent.runs.folder import Run, read
from attent.runs.packed import use_dtype
from attent.search.constraints import Constraints
from attent.search.score import BATCH as SCORED
from attent.search.score import PairScore, score_pairs
from attent.search.search import Hypothesis, TokenSampler, Translation, search, uniforms
from attent.search.settings import GREEDY, SearchSettings
from attent.tasks.dates.checks import InputCheck, input_check
from attent.tasks.from_run import FromRun
from attent.text.batches import KEY_MULTIPLE, BatchSize, Sequences, cut_batches
from attent.text.text import Pair
from attent.text.tokenizer import BOS, EOS, UNK, Tokenizer, prompt_of, respell
from attent.views.walk_run import ForwardPass

T = TypeVar("T")
R = TypeVar("R")
# Sentences of a batch: enough for large matrix products, few enough for any memory.
BATCH = 128
EOS_LABEL = "</s>"
BOS_LABEL = "<s>"
UNK_LABEL, NO_LABEL = "<unk>", "�"


class Engine(ABC):
    """Translates text within the limits of a model: base of `Translator`, and of engines that run exported models.

    Args:
        source_tokenizer: for the text to translate.
        target_tokenizer: for the translation.
        input_check: gives the reason why a text is no input of this model; None if any text is.
        longest: the most tokens that the model can read; None if there is no limit.
    """

    def __init__(
        self,
        source_tokenizer: Tokenizer,
        target_tokenizer: Tokenizer,
        input_check: InputCheck | None = None,
        longest: int | None = None,
    ) -> None:
        self.source_tokenizer, self.target_tokenizer = source_tokenizer, target_tokenizer
        self.input_check, self.longest = input_check, longest

    @property
    def longest_source(self) -> int | None:
        """Return the most tokens that a source may have; None if there is no limit."""
        return None if self.longest is None else self.longest // KEY_MULTIPLE * KEY_MULTIPLE

    def refusal(self, text: str) -> str | None:
        """Return the reason why a non-empty text is not translated; None if it is, or is empty."""
        longest = self.longest_source
        if longest is not None and (tokens := len(self.source_tokenizer.encode(text))) > longest:
            return f"not translated: {tokens} tokens, more than the {longest} that this model can read"
        return self.input_check(text) if text and self.input_check else None

    @overload
    def translate(  # pyright: ignore[reportOverlappingOverload]
        self, texts: str, settings: SearchSettings = ..., *, prefixes: str | None = ..., batch: int | BatchSize = ...
    ) -> str: ...
    @overload
    def translate(
        self,
        texts: Sequence[str],
        settings: SearchSettings = ...,
        *,
        prefixes: Sequence[str] | None = ...,
        batch: int | BatchSize = ...,
    ) -> list[str]: ...
    def translate(
        self,
        texts: str | Sequence[str],
        settings: SearchSettings = GREEDY,
        *,
        prefixes: Any = None,
        batch: int | BatchSize = BATCH,
    ) -> str | list[str]:
        """Translate a text, or a list of texts in order. An empty or refused text has an empty translation.

        Args:
            texts: sentences, which give a list; or a single string, which gives a string.
            settings: of the search.
            prefixes: the forced beginning of each translation, a string for a single text; none by default.
            batch: size of a batch, an int in texts; a translation does not depend on it.
        """
        if isinstance(texts, str):
            return self.translate([texts], settings, prefixes=None if prefixes is None else [prefixes], batch=batch)[0]
        return [best[0].text for best in self.search(texts, settings, prefixes=prefixes, batch=batch)]

    @overload
    def search(  # pyright: ignore[reportOverlappingOverload]
        self,
        texts: str,
        settings: SearchSettings = ...,
        *,
        prefixes: str | Sequence[int] | None = ...,
        batch: int | BatchSize = ...,
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
        """Return the n_best translations of a text, or of each text of a list, with their scores, the best first.

        Arguments as for `translate`; a prefix may also be the ids of its tokens.

        Raises:
            ArgumentError: there are not as many prefixes as texts.
        """
        if isinstance(texts, str):
            return self.search([texts], settings, prefixes=None if prefixes is None else [prefixes], batch=batch)[0]
        if isinstance(prefixes, str) or (prefixes is not None and len(prefixes) != len(texts)):
            count = repr(prefixes) if isinstance(prefixes, str) else len(prefixes)
            raise ArgumentError(f"there must be a prefix for each of {len(texts)} texts, got {count}")
        forced = [
            self.target_tokenizer.encode(prefix) if isinstance(prefix, str) else [*prefix]
            for prefix in prefixes or [()] * len(texts)
        ]
        if any(isinstance(token, str) for tokens in forced for token in tokens):
            raise ArgumentError(f"a prefix must be a string or the ids of its tokens, got {prefixes}")
        prompt = prompt_of(self.target_tokenizer)
        forced = [tokens if tuple(tokens[: len(prompt)]) == prompt else [*prompt, *tokens] for tokens in forced]
        encoded = [
            self.source_tokenizer.encode("" if self.input_check and self.input_check(text) else text) for text in texts
        ]
        return self.search_encoded(encoded, forced, settings, batch)

    @abstractmethod
    def search_encoded(
        self,
        sources: Sequence[Sequence[int]],
        prefixes: Sequence[Sequence[int]],
        settings: SearchSettings,
        batch: int | BatchSize,
    ) -> list[list[Translation]]:
        """Return the n_best translations of each source; an empty one has an empty translation.

        Args:
            sources: ids of the tokens of each text.
            prefixes: ids of the tokens that each translation begins with.
            settings: of the search.
            batch: size of a batch, an int in texts.
        """

    def length_batches(self, lengths: np.ndarray, batch: int | BatchSize) -> Iterator[np.ndarray]:
        """Cut sources into batches of similar length, the shortest first; empty and overlong sources are left out.

        Args:
            lengths: tokens of each source.
            batch: size of a batch, an int in texts.

        Returns:
            The indices of each batch's sources.
        """
        order = np.argsort(lengths, kind="stable")
        order = order[(lengths[order] > 0) & (lengths[order] <= (self.longest_source or np.inf))]
        return cut_batches(order, lengths, BatchSize(pairs=batch) if isinstance(batch, int) else batch)


class Translator(FromRun, Engine):
    """Translates text with a model and its tokenizers.

    Args:
        model: keeps the contract of `attent.models.model`; put into evaluation mode.
        source_tokenizer: for the text to translate.
        target_tokenizer: for the translation.
        input_check: gives the reason why a text is no input of this model; None if any text is.
    """

    def __init__(
        self,
        model: EncoderDecoder[Any],
        source_tokenizer: Tokenizer,
        target_tokenizer: Tokenizer,
        input_check: InputCheck | None = None,
    ) -> None:
        super().__init__(source_tokenizer, target_tokenizer, input_check, model.longest)
        self.model = model.eval()
        # the graphs of an exported model are no parameters
        self.device = next((parameter.device for parameter in model.parameters()), torch.device("cpu"))

    def can_read(self, source: str, target: str) -> bool:
        """Return whether the model can read a source, and a target of it after BOS."""
        longest, longest_source = self.longest, self.longest_source
        if longest is None or longest_source is None:
            return True
        return (
            len(self.source_tokenizer.encode(source)) <= longest_source
            and len(self.target_tokenizer.encode(target)) < longest
        )

    def search_encoded(
        self,
        sources: Sequence[Sequence[int]],
        prefixes: Sequence[Sequence[int]],
        settings: SearchSettings,
        batch: int | BatchSize,
    ) -> list[list[Translation]]:
        padded = Sequences(sources)

        def search_batch(rows: np.ndarray) -> list[list[Hypothesis]]:
            limits = torch.from_numpy(settings.limits(padded.lengths[rows], self.longest)).to(self.device)
            constraints = Constraints.of(
                limits,
                [prefixes[row] for row in rows],
                minimum_length=settings.minimum_length,
                no_repeat_ngram=settings.no_repeat_ngram,
                prompt_length=len(prompt_of(self.target_tokenizer)),
            )
            sampler = None
            if settings.sample:
                numbers = uniforms(
                    settings.seed, [sources[row] for row in rows], settings.n_best, int(constraints.limits.max()) + 1
                )
                sampler = TokenSampler(numbers.to(self.device), settings.temperature, settings.top_k, settings.top_p)
            return search(
                self.model,
                torch.from_numpy(padded.pad(rows, KEY_MULTIPLE)).to(self.device),
                torch.from_numpy(padded.lengths[rows]).to(self.device),
                constraints,
                settings,
                sampler,
            )

        translations = [[Translation((), 0.0, 1.0, "")]] * len(sources)
        # the longest sources first, as they take longest
        batches = [*self.length_batches(padded.lengths, batch)][::-1]
        with torch.inference_mode():
            # a model that computes each row by itself does not depend on the number of threads either
            are_parallel = len(batches) > 1 and self.model.batch_invariant
            results = (parallel_map if are_parallel else map)(search_batch, batches)
        for rows, hypotheses in zip(batches, results, strict=True):
            for row, best in zip(rows, hypotheses, strict=True):
                translations[row] = [
                    Translation(
                        item.tokens,
                        item.log_probability,
                        item.length_penalty,
                        self.target_tokenizer.decode(item.tokens),
                    )
                    for item in best
                ]
        return translations

    @overload
    def score(self, pairs: Pair | tuple[str, str], *, batch: int | BatchSize = ...) -> PairScore: ...
    @overload
    def score(self, pairs: Sequence[Pair | tuple[str, str]], *, batch: int | BatchSize = ...) -> list[PairScore]: ...
    def score(
        self, pairs: Pair | tuple[str, str] | Sequence[Pair | tuple[str, str]], *, batch: int | BatchSize = SCORED
    ) -> PairScore | list[PairScore]:
        """Return the log-probability of each pair's target given its source, in nats, in total and per token.

        Args:
            pairs: sources and targets, which give a list; or a single pair, which gives a single score.
            batch: size of a batch, an int in pairs.

        Raises:
            ArgumentError: an element is no pair of texts.
        """
        if isinstance(pairs, Pair) or (isinstance(pairs, tuple) and isinstance(next(iter(pairs), None), str)):
            return self.score([_as_pair(pairs)], batch=batch)[0]
        size = BatchSize(pairs=batch) if isinstance(batch, int) else batch
        return score_pairs(
            self.model, [_as_pair(pair) for pair in pairs], self.source_tokenizer, self.target_tokenizer, size
        )

    def length_error(self, source: str, target: str, limit: int | None) -> str | None:
        """Return the reason why a pair has too many tokens on a side; None if it has not.

        Args:
            source: of the pair.
            target: of the pair; BOS before it counts.
            limit: the most tokens of a side, such as `model.longest`; None if there is no limit.
        """
        if limit is None:
            return None
        tokens = max(len(self.source_tokenizer.encode(source)), len(self.target_tokenizer.encode(target)) + 1)
        return None if tokens <= limit else f"{tokens:,} tokens, more than the {limit:,} that this model can read"

    def map(self, source: str, target: str | None = None, *, gradients: bool = False) -> dict[str, LabelledMap]:
        """Return every attention map of one translation, by the name of its module, in the order of computation.

        Args:
            source: the text to translate.
            target: its translation; the model's own by default.
            gradients: whether each comes with its weights times the gradients by them of the translation's
                log-probability.

        Raises:
            ArgumentError: the source is empty, or refused and has no target.
        """
        if not source:
            raise ArgumentError("an empty source has no attention to show")
        if target is None:
            if reason := self.refusal(source):
                raise ArgumentError(reason)
            target = self.translate([source])[0]
        tokens = [*self.target_tokenizer.encode(target), EOS]
        rows = (*self.target_tokenizer.pieces(target), EOS_LABEL)
        return self.map_of_tokens(
            self.source_tokenizer.encode(source), tokens, self.source_tokenizer.pieces(source), rows, gradients
        )

    @torch.no_grad()
    def map_of_tokens(
        self,
        source: Sequence[int],
        target: Sequence[int],
        columns: Sequence[str],
        rows: Sequence[str],
        gradients: bool = False,
    ) -> dict[str, LabelledMap]:
        """Return the maps of a translation that is given by its tokens; see `map`.

        Args:
            source: the tokens read.
            target: the tokens written, EOS included if it is.
            columns: labels of the source.
            rows: labels of the target.
            gradients: see `map`.
        """
        with torch.set_grad_enabled(gradients), watch(self.model, gradients=gradients) as maps:
            features = self.model.decode(self.encode(source), torch.tensor([[BOS, *target[:-1]]], device=self.device))
            derived: dict[str, AttentionMap] = {}
            if gradients:
                log_probs = self.model.output(features)[0].float().log_softmax(-1)  # (T, V)
                derived = maps.last_gradients(log_probs[torch.arange(len(target)), torch.tensor(target)].sum())
        return label_translation_maps(maps, (*columns,), (*rows,), derived)

    def forward_pass(self, text: str) -> ForwardPass:
        """Return the forward pass over a text that is translated; errors as for `map`."""
        text = respell(text, self.source_tokenizer)
        if reason := self.refusal(text):
            raise ArgumentError(reason)
        target = self.translate(text)
        return ForwardPass(
            f"{text} → {target}",
            self.model,
            lambda: self.map(text, target),
            "decoder",
            lambda token: labels(self.target_tokenizer, [token])[0],
            "words",
        )

    def encode(self, tokens: Sequence[int]) -> Memory:
        """Encode the tokens of one source."""
        return self.model.encode(
            torch.tensor([tokens], device=self.device), torch.tensor([len(tokens)], device=self.device)
        )


def label_translation_maps(
    maps: Mapping[str, AttentionMap],
    source: tuple[str, ...],
    target: tuple[str, ...],
    gradients: Mapping[str, AttentionMap] | None = None,
) -> dict[str, LabelledMap]:
    """Label the maps of a translator by name.

    Source pieces in the encoder, the tokens produced and read in the decoder.
    """
    labelled = {}
    for name, weights in maps.items():
        columns = (
            source if name.startswith("encoder.") or name.endswith("cross_attention") else (BOS_LABEL, *target[:-1])
        )
        rows = source if name.startswith("encoder.") else target
        labelled[name] = LabelledMap(weights, rows, columns, (gradients or {}).get(name))
    return labelled


def labels(tokenizer: Tokenizer, tokens: Sequence[int]) -> tuple[str, ...]:
    """Return a printable label for each token."""
    special = {EOS: EOS_LABEL, BOS: BOS_LABEL, UNK: UNK_LABEL}
    return tuple(special.get(token) or tokenizer.piece(token) or NO_LABEL for token in tokens)


def _as_pair(pair: object) -> Pair:
    match pair:
        case Pair():
            return pair
        case (str() as source, str() as target):
            return Pair(source, target)
    raise ArgumentError(f"a pair must be (source, target), got {pair!r}")


def parallel_map(function: Callable[[T], R], items: Sequence[T]) -> Iterator[R]:
    """Map a function over items in parallel on the CPU, one thread for each.

    Most steps of a search use only one anyway.

    Args:
        function: its result must not depend on the number of threads; settings that torch holds for each thread, such
            as autocast's, do not apply in it.
        items: those that take longest should come first.
    """
    threads = torch.get_num_threads()
    if threads == 1 or len(items) < 2:
        yield from map(function, items)
        return
    try:
        with ThreadPoolExecutor(min(threads, len(items)), initializer=torch.set_num_threads, initargs=(1,)) as pool:
            yield from pool.map(function, items)
    finally:
        # each thread has a number of its own, but a new one takes the last that was set anywhere
        torch.set_num_threads(threads)


def load(
    path: Path | str, device: torch.device | str = "cpu", *, trust_code: bool = False, dtype: DType | None = None
) -> Translator:
    """Load the translator of a run folder.

    Raises:
        ArgumentError: the model cannot be computed in this type of weights here.
        RunError: the folder is missing, damaged, or written by a newer version, or its task is another.
    """
    run = read(path, "translate", trust_code)
    translator = of_run(run, device)
    use_dtype(path, run, device, dtype)
    return translator


def of_run(run: Run, device: torch.device | str = "cpu") -> Translator:
    """Return the translator of a run that was read."""
    translator = Translator(
        run.model.to(device), run.source_tokenizer, run.target_tokenizer, input_check(run.config.corpus)
    )
    translator.config = run.config
    return translator
