"""Choosing the attention that words are aligned by from pairs without gold links: by one run alone, or by runs of both directions.

- **One run**: a head that aligns does so from both sides, and links words that translate each other. Of each head's matrix of
  weights between words, two alignments are read, the largest weight of each row and the largest of each column, whose intersection over
  union says how far they agree, as the two directions of an aligner should (Liang et al. 2006, Alignment by Agreement,
  https://aclanthology.org/N06-1014). That alone cannot tell the token produced from the token read in, nor an alignment from a shifted
  one: a shift of all rows leaves it as it is. So each link of the intersection counts as much as its words tell of each other in other
  pairs, by their pointwise mutual information (Church and Hanks 1990, https://aclanthology.org/J90-1003), of which a shifted
  alignment has little. The sum, for each link of the union, is multiplied by the agreement: the mean over heads has links of words
  that often occur together even where it agrees with itself less than one of its heads, which aligns better.
- **Two runs**, of opposite directions: the attention of one and that of the other whose links agree best, each taken as the other's
  gold links (Chen et al. 2020, arXiv 2004.14837).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch

from attent.errors import ShapeError
from attent.evaluation.aligner import TokenizedPair, all_word_matrices
from attent.evaluation.forced_decoding import AttentionSelector
from attent.evaluation.word_links import Words
from attent.models.model import EncoderDecoder


@dataclass(frozen=True)
class Consistency:
    """The agreement of an attention with itself, summed over pairs.

    Args:
        union: links of rows or of columns.
        intersection: links of both.
        information: pointwise mutual information of the words of the latter, in nats.
    """

    union: int
    intersection: int
    information: float

    @property
    def agreement(self) -> float:
        """The intersection over the union, 0 to 1; 0 without links."""
        return self.intersection / max(self.union, 1)

    @property
    def score(self) -> float:
        """The information of the intersection's links for each link of the union, in nats, times the agreement: the larger, the better."""
        return self.information / max(self.union, 1) * self.agreement


def rank_by_consistency(model: EncoderDecoder[Any], pairs: Sequence[TokenizedPair]) -> list[tuple[AttentionSelector, Consistency]]:
    """Judge every layer, every head and the mean over heads, with rows about either token, the most consistent first.

    Args:
        model: in evaluation mode.
        pairs: sources and their translations.
    """
    # of the intersection: the pair's index, and those of its words
    links: dict[AttentionSelector, list[tuple[np.ndarray, np.ndarray, np.ndarray]]] = {}
    unions: dict[AttentionSelector, int] = {}
    for rows, selector, matrices in all_word_matrices(model, pairs):
        if not matrices.numel():
            continue
        row_maxima, row_links = matrices.max(2)
        column_maxima, column_links = matrices.max(1)
        is_linked = row_maxima > 0
        is_mutual = is_linked & (column_links.gather(1, row_links) == torch.arange(matrices.shape[1]))
        union = int(is_linked.sum() + (column_maxima > 0).sum() - is_mutual.sum())
        unions[selector] = unions.get(selector, 0) + union
        batch, targets = is_mutual.nonzero(as_tuple=True)
        sources = row_links[batch, targets]
        links.setdefault(selector, []).append((rows[batch.numpy()], sources.numpy(), targets.numpy()))
    source_words = _vocabulary([(pair.source, pair.source_words) for pair in pairs])
    target_words = _vocabulary([(pair.target, pair.target_words) for pair in pairs])
    results = []
    for selector, batches in links.items():
        sentences, sources, targets = (np.concatenate(parts) for parts in zip(*batches, strict=True))
        information = mutual_information(sentences % 2, source_words.entries(sentences, sources), target_words.entries(sentences, targets))
        results.append((selector, Consistency(unions[selector], len(sentences), float(information.sum()))))
    return sorted(results, key=lambda item: -item[1].score)


def mutual_information(halves: np.ndarray, sources: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """Return the pointwise mutual information of each link's words in nats, (N,), by the links of the other half.

        log p(t | s) / p(t),  p(t | s) = (c(s, t) + p(t)) / (c(s) + 1),  p(t) = (c(t) + 1) / (Σ c + V)

    Of a source word that the other half has not, nothing is known: 0. Counts of the links' own half would praise them for themselves.

    Args:
        halves: 0 or 1 for each link, (N,).
        sources: the number of its source word, (N,).
        targets: the number of its target word, (N,).
    """
    information = np.zeros(len(halves))
    source_count, target_count = int(sources.max(initial=-1)) + 1, int(targets.max(initial=-1)) + 1
    joint = sources * target_count + targets
    for is_judged, is_counted in ((halves == 0, halves == 1), (halves == 1, halves == 0)):
        if not is_counted.any():
            continue
        of_source = np.bincount(sources[is_counted], minlength=source_count)[sources[is_judged]]
        of_target = np.bincount(targets[is_counted], minlength=target_count)[targets[is_judged]]
        kinds, counts = np.unique(joint[is_counted], return_counts=True)
        positions = np.searchsorted(kinds, joint[is_judged]).clip(max=len(kinds) - 1)
        of_pair = np.where(kinds[positions] == joint[is_judged], counts[positions], 0)
        target_share = (of_target + 1) / (is_counted.sum() + target_count)
        information[is_judged] = np.log((of_pair + target_share) / (of_source + 1) / target_share)
    return information


def rank_directions(
    forward: tuple[EncoderDecoder[Any], Sequence[TokenizedPair]], backward: tuple[EncoderDecoder[Any], Sequence[TokenizedPair]]
) -> list[tuple[AttentionSelector, AttentionSelector, float]]:
    """Judge every attention of one run beside every attention of a run of the other direction, the best agreement first.

    Args:
        forward: a model in evaluation mode, and sources and their translations.
        backward: a model of the other direction, and the same pairs the other way round, with the same words.

    Returns:
        The selector of each run, and the error rate of the links of one by those of the other: 1 − 2 |A ∩ B| / (|A| + |B|).

    Raises:
        ShapeError: the numbers of pairs differ.
    """
    (model, pairs), (backward_model, backward_pairs) = forward, backward
    if len(pairs) != len(backward_pairs):
        raise ShapeError(f"both directions need the same pairs, got {len(pairs)} and {len(backward_pairs)}")
    source_starts = _word_starts([(a.source_words, b.target_words) for a, b in zip(pairs, backward_pairs, strict=True)])
    target_starts = _word_starts([(a.target_words, b.source_words) for a, b in zip(pairs, backward_pairs, strict=True)])
    sources_of_targets = _row_links(model, pairs, source_starts, target_starts)
    targets_of_sources = _row_links(backward_model, backward_pairs, target_starts, source_starts)
    results = []
    for selector, linked_sources in sources_of_targets.items():
        targets = np.flatnonzero(linked_sources >= 0)
        for backward_selector, linked_targets in targets_of_sources.items():
            intersection = int((linked_targets[linked_sources[targets]] == targets).sum())
            links = len(targets) + int((linked_targets >= 0).sum())
            results.append((selector, backward_selector, 1 - 2 * intersection / max(links, 1)))
    return sorted(results, key=lambda result: result[2])


def _row_links(
    model: EncoderDecoder[Any], pairs: Sequence[TokenizedPair], column_starts: np.ndarray, row_starts: np.ndarray
) -> Mapping[AttentionSelector, np.ndarray]:
    """Return by selector the word that each target word of all pairs is linked to, both counted through all pairs; −1 for none."""
    results: dict[AttentionSelector, np.ndarray] = {}
    for rows, selector, matrices in all_word_matrices(model, pairs):
        if not matrices.numel():
            continue
        links = results.setdefault(selector, np.full(int(row_starts[-1]), -1))
        maxima, indices = matrices.max(2)
        batch, words = (part.numpy() for part in (maxima > 0).nonzero(as_tuple=True))
        links[row_starts[rows[batch]] + words] = column_starts[rows[batch]] + indices.numpy()[batch, words]
    return results


def _word_starts(sentences: Sequence[tuple[Words, Words]]) -> np.ndarray:
    """Return where the words of each sentence begin among those of all, by two tokenizations, and the number of all, (N + 1,)."""
    return np.cumsum([0, *(max(map(_count, tokenizations)) for tokenizations in sentences)], dtype=np.int64)


class _Vocabulary(NamedTuple):
    numbers: np.ndarray  # of the kind of each word of all sentences, end to end
    starts: np.ndarray  # of each sentence in it

    def entries(self, sentences: np.ndarray, words: np.ndarray) -> np.ndarray:
        """Return the kinds of words, given by sentence and index."""
        return self.numbers[self.starts[sentences] + words]


def _vocabulary(sentences: Sequence[tuple[Sequence[int], Words]]) -> _Vocabulary:
    """Number the kinds of words: words are alike whose tokens are."""
    kinds: dict[tuple[int, ...], int] = {}
    numbers: list[int] = []
    starts: list[int] = []
    for tokens, words in sentences:
        starts.append(len(numbers))
        pieces: list[list[int]] = [[] for _ in range(_count(words))]
        for token, word in zip(tokens, words, strict=True):
            if word is not None:
                pieces[word].append(token)
        numbers += [kinds.setdefault(tuple(word), len(kinds)) for word in pieces]
    return _Vocabulary(np.array(numbers, np.int64), np.array(starts, np.int64))


def _count(words: Words) -> int:
    """Return the number of words that pieces lie in."""
    return max((word for word in words if word is not None), default=-1) + 1
