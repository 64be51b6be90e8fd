"""A trained translator: it translates text, scores translations, and shows its attention."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar, overload

import numpy as np
import torch
from torch import Tensor

from attent.attention.capture.watch import watch
from attent.attention.maps.attention_map import AttentionMap, LabelledMap
from attent.errors import ArgumentError
from attent.models.ensemble import Ensemble
from attent.models.model import EncoderDecoder, Memory
from attent.runs.config import DType
from attent.runs.folder import Run
from attent.search.constraints import Constraints
from attent.search.score import BATCH as SCORED
from attent.search.score import PairScore, score_pairs
from attent.search.search import Hypothesis, SourceText, TokenSampler, search, uniforms
from attent.search.settings import SearchSettings
from attent.tasks.dates.generated import InputCheck, input_check
from attent.tasks.from_run import FromRun, load_tool
from attent.tasks.translation.calibration import Calibration, read_calibration
from attent.tasks.translation.engine import Engine
from attent.text.batches import KEY_MULTIPLE, BatchSize, Sequences
from attent.text.text import Pair
from attent.text.tokenizer import BOS, EOS, UNK, Tokenizer, prompt_of
from attent.views.trace import ForwardPass

T = TypeVar("T")
R = TypeVar("R")
EOS_LABEL = "</s>"
BOS_LABEL = "<s>"
UNK_LABEL, NO_LABEL = "<unk>", "�"


class Translator(FromRun, Engine):
    """Translates text with a model and its tokenizers.

    Args:
        model: implements the contract of `attent.models.model`; switched to evaluation mode.
        source_tokenizer: for the text to translate.
        target_tokenizer: for the translation.
        input_check: returns the reason why a text is not valid input of this model; None if any text is valid.

    Attributes:
        calibration: the coefficients of its confidence; None if the run has none for its weights.
    """

    calibration: Calibration | None = None

    def __init__(
        self,
        model: EncoderDecoder[Any],
        source_tokenizer: Tokenizer,
        target_tokenizer: Tokenizer,
        input_check: InputCheck | None = None,
    ) -> None:
        super().__init__(source_tokenizer, target_tokenizer, input_check, model.longest)
        self.model = model.eval()
        # an exported model has graphs instead of parameters
        self.device = next((parameter.device for parameter in model.parameters()), torch.device("cpu"))

    def can_read(self, source: str, target: str) -> bool:
        """Return whether a source, and its target after BOS, fit the limits of the model."""
        longest, longest_source = self.longest, self.longest_source
        return (longest is None or longest_source is None) or (
            len(self.source_tokenizer.encode(source)) <= longest_source
            and len(self.target_tokenizer.encode(target)) < longest
        )

    def search_encoded(
        self,
        sources: Sequence[Sequence[int]],
        prefixes: Sequence[Sequence[int]],
        settings: SearchSettings,
        batch: int | BatchSize,
    ) -> list[list[Hypothesis]]:
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

        results = [[Hypothesis((), 0.0, 1.0)]] * len(sources)
        # the longest sources first, as they take longest
        batches = [*self.length_batches(padded.lengths, batch)][::-1]
        # a model that computes each row by itself does not depend on the number of threads either
        are_parallel = len(batches) > 1 and self.model.batch_invariant
        n_best_lists = (parallel_map if are_parallel else map)(search_batch, batches)
        for rows, of_batch in zip(batches, n_best_lists, strict=True):
            for row, n_best in zip(rows, of_batch, strict=True):
                results[row] = n_best
        return results

    @overload
    def score(self, pairs: Pair | tuple[str, str], *, batch: int | BatchSize = ...) -> PairScore: ...
    @overload
    def score(self, pairs: Sequence[Pair | tuple[str, str]], *, batch: int | BatchSize = ...) -> list[PairScore]: ...
    def score(
        self, pairs: Pair | tuple[str, str] | Sequence[Pair | tuple[str, str]], *, batch: int | BatchSize = SCORED
    ) -> PairScore | list[PairScore]:
        """Return the log-probability of each pair's target given its source, in nats, in total and per token.

        Args:
            pairs: a list of (source, target) pairs, for which a list is returned, or one pair, for which one score is
                returned.
            batch: batch size, in pairs if an int.

        Raises:
            ArgumentError: an element is not a pair of texts.
        """
        if isinstance(pairs, Pair) or (isinstance(pairs, tuple) and isinstance(next(iter(pairs), None), str)):
            return self.score([_as_pair(pairs)], batch=batch)[0]
        return score_pairs(
            self.model,
            [_as_pair(pair) for pair in pairs],
            self.source_tokenizer,
            self.target_tokenizer,
            BatchSize(pairs=batch) if isinstance(batch, int) else batch,
        )

    def length_error(self, source: str, target: str, limit: int | None) -> str | None:
        """Return an error message if a pair has too many tokens on a side, else None.

        Args:
            source: source of the pair.
            target: target of the pair; the BOS before it counts.
            limit: maximum number of tokens on a side, such as `model.longest`; None for no limit.
        """
        if limit is None:
            return None
        tokens = max(len(self.source_tokenizer.encode(source)), len(self.target_tokenizer.encode(target)) + 1)
        return None if tokens <= limit else f"{tokens:,} tokens, more than the {limit:,} that this model can read"

    def map(
        self, source: str | SourceText, target: str | None = None, *, gradients: bool = False
    ) -> dict[str, LabelledMap]:
        """Return every attention map of one translation, by module name, in the order of computation.

        Args:
            source: the text to translate.
            target: its translation; the model's own by default.
            gradients: whether to include each map's weights multiplied by the gradients of the translation's
                log-probability with respect to them.

        Raises:
            ArgumentError: the source is empty, or refused and has no target.
        """
        source = self.read(source)
        if not source:
            raise ArgumentError("an empty source has no attention to show")
        if target is None:
            if source.refusal:
                raise ArgumentError(source.refusal)
            target = self.translate(source)
        tokens, columns = self.target_tokenizer.encode(target), self.source_tokenizer.pieces(source.text, source.ids)
        rows = (*self.target_tokenizer.pieces(target, tokens), EOS_LABEL)
        return self.map_of_tokens(source.ids, [*tokens, EOS], columns, rows, gradients)

    @torch.no_grad()
    def map_of_tokens(
        self,
        source: Sequence[int],
        target: Sequence[int],
        columns: Sequence[str],
        rows: Sequence[str],
        gradients: bool = False,
    ) -> dict[str, LabelledMap]:
        """Return the maps of a translation given as tokens; see `map`.

        Args:
            source: the tokens read.
            target: the tokens written, including EOS if it was written.
            columns: labels of the source.
            rows: labels of the target.
            gradients: see `map`.
        """
        maps, derived = forced_maps(self.model, lambda: self.encode(source), target, gradients=gradients)
        return label_translation_maps(maps, (*columns,), (*rows,), derived)

    def forward_pass(self, text: str) -> ForwardPass:
        """Return the forward pass of the translation of a text; errors as for `map`."""
        source = self.read(text)
        if source.refusal:
            raise ArgumentError(source.refusal)
        target = self.translate(source)
        return ForwardPass(
            f"{source.text} → {target}",
            self.model,
            lambda: self.map(source, target),
            "decoder",
            lambda token: labels(self.target_tokenizer, [token])[0],
            "words",
        )

    def encode(self, tokens: Sequence[int]) -> Memory:
        """Encode the tokens of one source."""
        return self.model.encode(
            torch.tensor([tokens], device=self.device), torch.tensor([len(tokens)], device=self.device)
        )


def forced_maps(
    model: EncoderDecoder[Any], encode: Callable[[], Memory], target: Sequence[int], *, gradients: bool
) -> tuple[Mapping[str, AttentionMap], dict[str, AttentionMap]]:
    """Return the maps of a model while it writes a given target, and the gradients of the target's log-probability.

    Args:
        model: the model.
        encode: encodes the source.
        target: the tokens written, including EOS if it was written.
        gradients: False to compute no gradients.
    """
    with torch.set_grad_enabled(gradients), watch(model, gradients=gradients) as maps:
        memory = encode()
        features = model.decode(memory, torch.tensor([[BOS, *target[:-1]]], device=memory.features.device))
        derived = maps.last_gradients(log_likelihood(model.output(features)[0], target)) if gradients else {}
    return maps, derived


def log_likelihood(logits: Tensor, tokens: Sequence[int]) -> Tensor:
    """Return the sum of the log-probabilities of tokens, each predicted by the logits at its position, (T, V)."""
    return logits.float().log_softmax(-1)[torch.arange(len(tokens)), torch.tensor(tokens)].sum()


def label_translation_maps(
    maps: Mapping[str, AttentionMap],
    source: tuple[str, ...],
    target: tuple[str, ...],
    gradients: Mapping[str, AttentionMap] | None = None,
) -> dict[str, LabelledMap]:
    """Label the rows and columns of a translator's maps, by name.

    Encoder maps are labeled with source pieces, decoder maps with the tokens produced (rows) and read (columns).
    """
    shifted = (BOS_LABEL, *target[:-1])
    return {
        name: LabelledMap(
            weights,
            source if name.startswith("encoder.") else target,
            source if name.startswith("encoder.") or name.endswith("cross_attention") else shifted,
            (gradients or {}).get(name),
        )
        for name, weights in maps.items()
    }


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
    """Map a function over items in parallel on the CPU, with one thread per item.

    Most steps of a search use only one thread anyway.

    Args:
        function: its result must not depend on the number of threads; torch's per-thread settings, such as autocast, do
            not apply in it.
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
        # each thread has its own number, but a new thread inherits the last one set anywhere
        torch.set_num_threads(threads)


def load(
    path: Path | str, device: torch.device | str = "cpu", *, trust_code: bool = False, dtype: DType | None = None
) -> Translator:
    """Load the translator of a run folder.

    Raises:
        ArgumentError: this machine cannot compute the model with this weight type.
        RunError: the folder is missing, damaged, or written by a newer version, or has another task.
    """
    translator = load_tool(path, "translate", of_run, device, trust_code=trust_code, dtype=dtype)
    if translator.config is not None:
        translator.calibration = read_calibration(Path(path), translator.config)
    return translator


def load_ensemble(
    paths: Sequence[Path | str],
    device: torch.device | str = "cpu",
    *,
    trust_code: bool = False,
    dtype: DType | None = None,
) -> Translator:
    """Load translators with the same vocabularies as one that averages their distributions; see `Ensemble`.

    Its config is that of the first run. Of a single run, the translator is that of `load`.

    Raises:
        ArgumentError: a run has other vocabularies than the first, or this machine cannot compute a model.
        RunError: as for `load`.
    """
    members = [load(path, device, trust_code=trust_code, dtype=dtype) for path in paths]
    first = members[0]
    if len(members) == 1:
        return first
    for path, member in zip(paths, members, strict=True):
        if _vocabularies(member) != _vocabularies(first):
            raise ArgumentError(f"{path} and {paths[0]} have different vocabularies, and cannot be an ensemble")
    models = Ensemble([member.model for member in members])
    translator = Translator(models, first.source_tokenizer, first.target_tokenizer, first.input_check)
    translator.config = first.config
    return translator


def _vocabularies(translator: Translator) -> list[tuple[type[Tokenizer], list[str]]]:
    tokenizers = translator.source_tokenizer, translator.target_tokenizer
    return [(type(own), [own.piece(token) for token in range(own.size)]) for own in tokenizers]


def of_run(run: Run) -> Translator:
    """Return the translator of a run that was read."""
    return Translator(run.model, run.source_tokenizer, run.target_tokenizer, input_check(run.config.corpus))
