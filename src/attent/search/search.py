"""Beam search, greedy search and sampling for any model that implements the contract of `attent.models.model`."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch import Tensor

from attent.models.model import EncoderDecoder
from attent.ops.beam_topk import beam_topk, beam_topk_of_logits, log_softmax
from attent.ops.search import Limits
from attent.ops.search import search as packed_search
from attent.search.constraints import Constraints
from attent.search.settings import GREEDY, LengthForm, SearchSettings
from attent.text.batches import ROW_MULTIPLE, round_up
from attent.text.tokenizer import BOS, EOS, PAD
from attent.types import Lengths

# The largest token limit for which the compiled library searches; it needs tables of all positions.
LONGEST_PACKED = 4096

# (beam scores (S, K), log-probabilities (S, K, V), sentence indices (S,), step) → new scores and indices into (K, V),
# (S, C) each.
Choice = Callable[[Tensor, Tensor, Tensor, int], tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class Hypothesis:
    """A translation as tokens.

        score(Y) = log P(Y | X) / lp(Y)

    Source: Wu et al. (2016), equation 14, arXiv 1609.08144 (here without the coverage penalty).

    Args:
        tokens: the target, without BOS and EOS.
        log_probability: the model's own log P(Y | X) in nats, EOS included; constraints, temperature and filters do not
            change it.
        length_penalty: lp(Y), 1 or more.
    """

    tokens: tuple[int, ...]
    log_probability: float
    length_penalty: float

    @property
    def score(self) -> float:
        """Return the score used to rank hypotheses; higher is better."""
        return self.log_probability / self.length_penalty


@dataclass(frozen=True)
class SourceText:
    """A source text and its tokens, as read by a translator.

    `len` returns the length of the text in characters.

    Args:
        original: the text as given.
        text: the text as respelled for the tokenizer; see `attent.text.tokenizer.respell`.
        ids: its token ids.
        refusal: the reason why the text is not translated; None if it is translated or empty.
    """

    original: str
    text: str
    ids: Sequence[int] = field(hash=False)
    refusal: str | None = None

    def __len__(self) -> int:
        return len(self.text)


@dataclass(frozen=True)
class Translation(Hypothesis):
    """A hypothesis with its text and its source."""

    text: str
    source: SourceText


def length_penalty(length: int, alpha: float, form: LengthForm = "wu") -> float:
    """Return the length penalty, a divisor of the log-probability that offsets the preference for short translations.

    lp(Y) = ((5 + |Y|) / 6)^α, or |Y|^α. Source: Wu et al. (2016), equation 14, arXiv 1609.08144.

    Args:
        length: |Y|, the number of tokens, EOS included.
        alpha: 0 for no penalty.
        form: "wu", or "length" for |Y|^α.
    """
    return (length if form == "length" else (5 + length) / 6) ** alpha


@lru_cache(maxsize=64)
def _length_penalties(longest: int, alpha: float, form: LengthForm) -> tuple[float, ...]:
    """Return the length penalties of 0, 1, … up to `longest` tokens."""
    return tuple(length_penalty(length, alpha, form) for length in range(longest + 1))


@torch.inference_mode()
def search(
    model: EncoderDecoder[Any],
    source: Tensor,
    lengths: Lengths,
    constraints: Constraints,
    settings: SearchSettings = GREEDY,
    choose: Choice | None = None,
) -> list[list[Hypothesis]]:
    """Translate a batch, extending hypotheses until EOS.

    Finished sentences leave the batch. A translation does not depend on the other sentences in its batch: unless the
    model computes each row independently, rows are repeated to keep their number a multiple of 8. If the model has a
    packed decoder, the compiled library performs the steps of `_search`, with bit-identical results.

    Args:
        model: in evaluation mode.
        source: right-padded sources, (B, Tk), or (B, Tk, D) of vectors.
        lengths: tokens of each source without padding, (B,).
        constraints: constraints on the translations of each source.
        settings: search settings.
        choose: picks the next tokens, such as a `TokenSampler`; beam search by default.

    Returns:
        The n_best hypotheses of each source, the highest score first; fewer if the search finds fewer.
    """
    if not len(source):
        return []
    longest, decoders = int(constraints.limits.max()), ()
    if choose is None and not settings.sample and not constraints.no_repeat_ngram and longest <= LONGEST_PACKED:
        decoders = model.packed_decoders(source, lengths, longest + 1)
    if not decoders:
        return _search(model, source, lengths, constraints, settings, choose)
    penalties = _length_penalties(longest + 1, settings.length_penalty, settings.length_form)
    limits = Limits(
        constraints.limits, constraints.prefixes, constraints.minimum_length, penalties, constraints.prompt_length
    )
    ended = packed_search(decoders, limits, settings.beam, settings.n_best, (PAD, BOS, EOS))
    return [[Hypothesis(tuple(tokens), total, penalties[len(tokens) + 1]) for tokens, total in best] for best in ended]


def _search(
    model: EncoderDecoder[Any],
    source: Tensor,
    lengths: Lengths,
    constraints: Constraints,
    settings: SearchSettings,
    choose: Choice | None,
) -> list[list[Hypothesis]]:
    """Search step by step; the reference for the compiled library."""
    copies = settings.n_best if settings.sample else 1
    beam, of_copy = settings.beam, settings.model_copy(update={"n_best": settings.n_best // copies})
    finished: list[list[Hypothesis]] = [[] for _ in range(len(source) * copies)]
    limits = constraints.limits.repeat_interleave(copies).tolist()
    multiple = 1 if model.batch_invariant else ROW_MULTIPLE
    # The sentence index of each group of K rows. Each sentence starts with one hypothesis, since others would equal it.
    sentence_index = np.arange(len(finished))
    scores = np.full((len(sentence_index), beam), -np.inf, np.float32)
    scores[:, 0] = 0
    encoded_rows, rows = (
        _fill_up(indices, multiple).to(source.device)
        for indices in (np.arange(len(source)), sentence_index.repeat(beam) // copies)
    )
    state = model.start(model.encode(source[encoded_rows], lengths[encoded_rows])).select(rows)
    constraints = constraints.select(rows)
    written = rows.new_empty(len(rows), 0)
    tokens = torch.full_like(rows, BOS)
    while True:
        features, state = model.step(state, tokens)
        # so few numbers are sorted faster on the CPU
        totals, parents, next_tokens = _next_hypotheses(
            model.output(features), scores, constraints, written, choose, sentence_index
        )
        is_eos = next_tokens == EOS
        _add_ended(finished, of_copy, written, sentence_index, is_eos[:, :beam], totals, parents)
        if beam > 1:
            order = is_eos.argsort(axis=1, kind="stable")[:, :beam] + is_eos.shape[1] * np.arange(len(is_eos))[:, None]
            next_tokens, parents, totals, is_eos = (a.take(order) for a in (next_tokens, parents, totals, is_eos))
        scores = np.where(is_eos, np.float32(-np.inf), totals)
        active = _unfinished(finished, sentence_index, scores[:, 0], limits, of_copy)
        if not active:
            break
        if is_smaller := round_up(len(active) * beam, multiple) < len(tokens):
            sentence_index, scores, next_tokens, parents = (
                a[active] for a in (sentence_index, scores, next_tokens, parents)
            )
        elif len(active) < len(sentence_index):
            # finished sentences that only fill up the batch can no longer produce hypotheses
            scores[np.delete(np.arange(len(sentence_index)), active)] = -np.inf
        tokens = _fill_up(next_tokens.ravel(), multiple).to(source.device)
        parent_rows = _fill_up(parents.ravel(), multiple)
        rows = parent_rows.to(source.device)
        if is_smaller:
            state, written, constraints = state.select(rows), written[rows], constraints.select(rows)
        elif beam > 1 and not torch.equal(parent_rows, torch.arange(len(parent_rows))):
            # hypotheses move within their own sentence, whose rows all have the same source
            state, written = state.reorder(rows), written[rows]
        written = torch.cat((written, tokens[:, None]), 1)
    samples = (chain(*finished[first : first + copies]) for first in range(0, len(finished), copies))
    return [_best(hypotheses, settings.n_best) for hypotheses in samples]


def _add_ended(
    finished: list[list[Hypothesis]],
    settings: SearchSettings,
    written: Tensor,
    sentence_index: np.ndarray,
    is_eos: np.ndarray,
    totals: np.ndarray,
    parents: np.ndarray,
) -> None:
    """Add hypotheses that end at this step to those of their sentences, in place, if they are among the n_best."""
    penalty = length_penalty(written.shape[1] + 1, settings.length_penalty, settings.length_form)
    endings = [
        (sentence_index[group], parents[group, rank], float(totals[group, rank]))
        for group, rank in zip(*(is_eos & (totals[:, : is_eos.shape[1]] != -np.inf)).nonzero(), strict=True)
        if len(best := finished[sentence_index[group]]) < settings.n_best
        or float(totals[group, rank]) / penalty > best[-1].score
    ]
    if endings:
        prefixes = written[torch.tensor([row for _, row, _ in endings], device=written.device)].tolist()
        for (sentence, _, total), prefix in zip(endings, prefixes, strict=True):
            finished[sentence] = _best(
                [*finished[sentence], Hypothesis(tuple(prefix), total, penalty)], settings.n_best
            )


def _unfinished(
    finished: Sequence[Sequence[Hypothesis]],
    sentence_index: np.ndarray,
    best_scores: np.ndarray,
    limits: Sequence[int],
    settings: SearchSettings,
) -> list[int]:
    """Return the indices of groups with unfinished sentences, given the scores of their best running hypotheses."""
    return [
        index
        for index, (sentence, best) in enumerate(zip(sentence_index.tolist(), best_scores.tolist(), strict=True))
        # a sentence without finished hypotheses continues as long as it has continuations
        if (not finished[sentence] and best > -np.inf)
        or not is_finished(finished[sentence], best, limits[sentence], settings)
    ]


def _next_hypotheses(
    logits: Tensor,
    scores: np.ndarray,
    constraints: Constraints,
    written: Tensor,
    choose: Choice | None,
    sentence_index: np.ndarray,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the scores of each sentence's next hypotheses, the rows they continue, and new tokens, (S, C) each."""
    (sentences, beam), step = scores.shape, written.shape[1]
    logits, scores_before = logits.float(), torch.from_numpy(scores).to(logits.device)
    if choose is None and constraints.is_unconstrained(step):
        totals, indices = beam_topk_of_logits(
            scores_before, logits[: sentences * beam].unflatten(0, (-1, beam)), (PAD, BOS), EOS
        )
    else:
        log_probs = constraints.apply_(log_softmax(logits), written)  # (R, V)
        log_probs = log_probs[: sentences * beam].unflatten(0, (-1, beam))  # (S, K, V)
        if choose is None:
            totals, indices = beam_topk(scores_before, log_probs)
        else:
            totals, indices = choose(scores_before, log_probs, torch.from_numpy(sentence_index).to(logits.device), step)
    parents, tokens = np.divmod(indices.cpu().numpy(), logits.shape[-1])
    return totals.cpu().numpy(), parents + beam * np.arange(sentences)[:, None], tokens


def _fill_up(rows: np.ndarray, multiple: int) -> Tensor:
    """Repeat the last row until the number of rows is a multiple of `multiple`."""
    return torch.from_numpy(np.pad(rows, (0, padding), "edge") if (padding := -len(rows) % multiple) else rows)


def _best(hypotheses: Iterable[Hypothesis], count: int) -> list[Hypothesis]:
    """Return at most `count` hypotheses, the highest score first."""
    return sorted(hypotheses, key=lambda hypothesis: -hypothesis.score)[:count]


def is_finished(
    finished: Sequence[Hypothesis], best_running_log_prob: float, max_tokens: int, settings: SearchSettings
) -> bool:
    """Return whether no running hypothesis can still become one of a sentence's n_best.

    The log-probability of a running hypothesis can only decrease, and its divisor is at most the penalty of the longest
    translation, so its score never exceeds log P / lp(limit + 1). With a beam of 1, the first EOS ends the sentence.

    Args:
        finished: the hypotheses that ended with EOS.
        best_running_log_prob: the highest log-probability of the running hypotheses.
        max_tokens: maximum number of tokens of the translation, without EOS.
        settings: search settings.
    """
    if best_running_log_prob == -torch.inf:
        return True
    if len(finished) < settings.n_best:
        return False
    largest = length_penalty(max_tokens + 1, settings.length_penalty, settings.length_form)
    return settings.beam == 1 or _best(finished, settings.n_best)[-1].score >= best_running_log_prob / largest


@dataclass(frozen=True)
class TokenSampler:
    """Draws the next token of each sentence; a `Choice` of `search`.

    Args:
        uniforms: random numbers in [0, 1), one per sentence and step, (S, T) float64.
        temperature, top_k, top_p: as in `SearchSettings`.
    """

    uniforms: Tensor
    temperature: float = 1.0
    top_k: int | None = None
    top_p: float = 1.0

    def __call__(self, scores: Tensor, log_probs: Tensor, sentence_index: Tensor, step: int) -> tuple[Tensor, Tensor]:
        """Draw a token for each sentence.

        Args:
            scores: log-probabilities of the tokens written so far, (S, 1).
            log_probs: log-probabilities of the next token, (S, 1, V).
            sentence_index: the row of `uniforms` for each sentence, (S,).
            step: the column of `uniforms`.

        Returns:
            The scores with the drawn token's log-probability added, and the tokens, (S, 1) each.
        """
        log_probs = log_probs[:, 0]
        tokens = draw_tokens(log_probs, self.uniforms[sentence_index, step], self.temperature, self.top_k, self.top_p)[
            :, None
        ]
        return scores + log_probs.gather(1, tokens), tokens


def draw_tokens(
    log_probs: Tensor, uniforms: Tensor, temperature: float = 1.0, top_k: int | None = None, top_p: float = 1.0
) -> Tensor:
    """Draw one token per row, (S,), using random numbers in [0, 1), (S,); other arguments as for `sampling_probs`."""
    sums = sampling_probs(log_probs, temperature, top_k, top_p).double().cumsum(-1)
    heights = uniforms[:, None] * sums[:, -1:]
    # right=True: a token of probability 0 adds no height and is never drawn
    return torch.searchsorted(sums, heights, right=True).clamp(max=log_probs.shape[1] - 1)[:, 0]


def sampling_probs(log_probs: Tensor, temperature: float = 1.0, top_k: int | None = None, top_p: float = 1.0) -> Tensor:
    """Return the sampling distribution over tokens, (S, V); each row sums to 1.

    Args:
        log_probs: log-probabilities, (S, V), −∞ for forbidden tokens.
        temperature: divisor of the log-probabilities; below 1 sharpens, above 1 flattens.
        top_k: number of most probable tokens to keep, plus ties with the last of them; None keeps all.
        top_p: minimum total probability of the tokens to keep, the fewest of the most probable ones.
    """
    log_probs = log_probs / temperature
    if top_k is not None and top_k < log_probs.shape[1]:
        log_probs = log_probs.masked_fill(log_probs < log_probs.topk(top_k).values[:, -1:], -torch.inf)
    probs = log_probs.softmax(-1)
    if top_p < 1:
        descending, order = probs.sort(dim=-1, descending=True, stable=True)
        sum_before = descending.double().cumsum(-1) - descending
        nucleus = torch.zeros_like(probs).scatter(1, order, descending.masked_fill(sum_before >= top_p, 0))
        probs = nucleus / nucleus.sum(-1, keepdim=True)
    return probs


def uniforms(seed: int, sources: Sequence[Sequence[int]], copies: int, steps: int) -> Tensor:
    """Return random numbers for `copies` samples of each source, (B · copies, steps).

    The samples of a source are in adjacent rows. The numbers depend only on the seed and the source's tokens, so
    neither order nor batch matters.
    """
    rows = [np.random.default_rng([seed, copy, *source]).random(steps) for source in sources for copy in range(copies)]
    return torch.from_numpy(np.stack(rows)) if rows else torch.zeros(0, steps, dtype=torch.float64)
