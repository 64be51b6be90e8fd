"""Choice of the attention for word alignment without gold links, using one run or runs of both directions.

- **One run**: an aligning head attends to the source word that the model needs to produce a target word. Each source
  word in turn is replaced by random words, and the log-probability that each target word loses measures its dependence
  on that source word: the prediction difference of Li et al. 2019, On the Word Alignment from Neural Machine
  Translation, https://aclanthology.org/P19-1124, who read links from it. The score of a head is the prediction
  difference of the linked word divided by the largest of any source word.
- **Two runs** of opposite directions: the attentions whose links agree best, with the links of each run serving as gold
  links for the other (Chen et al. 2020, arXiv 2004.14837).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from attent.alignment.aligner import TokenizedPair, Words, all_word_matrices
from attent.alignment.forced_decoding import AttentionSelector
from attent.errors import ShapeError
from attent.models.model import EncoderDecoder
from attent.text.tokenizer import BOS

# Minimum loss in nats; a target word that loses less, whichever source word is removed, follows from its prefix.
DEPENDENT = 0.5
# Tokens decoded at a time; their logits take a quarter of a gigabyte with a vocabulary of 32,000.
TOKENS = 1024


def rank_by_differences(
    model: EncoderDecoder[Any], pairs: Sequence[TokenizedPair], *, seed: int = 0
) -> list[tuple[AttentionSelector, float]]:
    """Rank every layer, head and mean over heads by how much predictions depend on the linked source words.

    Rows about either token are tried. A pair is decoded once per source word; a few hundred pairs are enough.

    Args:
        model: in evaluation mode.
        pairs: sources and their translations.
        seed: random seed of the replacement words.

    Returns:
        The selectors and their scores, 0 to 1, highest first; empty if no target word depends on its source. A score is
        the mean, over target words that depend on their source, of the linked source word's difference divided by the
        largest difference.
    """
    differences = prediction_differences(model, pairs, seed=seed)
    sums: dict[AttentionSelector, float] = {}
    count = sum(int((lost.max(1, initial=0) > DEPENDENT).sum()) for lost in differences)
    for rows, selector, matrices in all_word_matrices(model, pairs):
        if not matrices.numel():
            continue
        maxima, links = (part.numpy() for part in matrices.max(2))
        for row, largest, linked in zip(rows, maxima, links, strict=True):
            lost = differences[row].clip(0)
            top = lost.max(1, initial=0)
            words = np.flatnonzero((top > DEPENDENT) & (largest[: len(top)] > 0))
            sums[selector] = sums.get(selector, 0.0) + float((lost[words, linked[words]] / top[words]).sum())
    return (
        sorted(((selector, total / count) for selector, total in sums.items()), key=lambda item: -item[1])
        if count
        else []
    )


@torch.inference_mode()
def prediction_differences(
    model: EncoderDecoder[Any], pairs: Sequence[TokenizedPair], *, seed: int = 0
) -> list[np.ndarray]:
    """Return the log-probability that each target word loses without each source word, in nats, (Wt, Ws).

    The removed word's pieces are replaced by pieces of other words, drawn at random from all sources.

    Args:
        model: in evaluation mode.
        pairs: sources and their translations.
        seed: random seed.
    """
    device, random = next(model.parameters()).device, np.random.default_rng(seed)
    pieces = [
        piece for pair in pairs for piece, word in zip(pair.source, pair.source_words, strict=True) if word is not None
    ]
    results = []
    for pair in pairs:
        count = _count(pair.source_words)
        sources = np.tile(np.array(pair.source, np.int64), (count + 1, 1))
        for index, word in enumerate(pair.source_words):
            if word is not None:
                sources[word + 1, index] = random.choice(pieces)
        steps = torch.tensor([BOS, *pair.target[:-1]] if len(pair.target) else [], device=device)
        losses = torch.zeros(count + 1, _count(pair.target_words), dtype=torch.float64)
        words = torch.tensor([-1 if word is None else word for word in pair.target_words])
        rows = max(TOKENS // max(len(pair.source), len(steps), 1), 1)
        for begin in range(0, count + 1 if losses.numel() and count else 0, rows):
            batch = torch.from_numpy(sources[begin : begin + rows]).to(device)
            lengths = torch.full((len(batch),), batch.shape[1], device=device)
            features = model.decode(model.encode(batch, lengths), steps.expand(len(batch), -1))
            log_probs = model.output(features).double().log_softmax(-1)
            of_target = log_probs.gather(2, torch.tensor(pair.target, device=device).expand(len(batch), -1)[..., None])[
                ..., 0
            ].cpu()
            losses[begin : begin + rows].index_add_(1, words[words >= 0], -of_target[:, words >= 0])
        results.append((losses[1:] - losses[0]).T.numpy())
    return results


def rank_directions(
    forward: tuple[EncoderDecoder[Any], Sequence[TokenizedPair]],
    backward: tuple[EncoderDecoder[Any], Sequence[TokenizedPair]],
) -> list[tuple[AttentionSelector, AttentionSelector, float]]:
    """Rank all combinations of an attention of one run with one of a run for the other direction, best first.

    Args:
        forward: a model in evaluation mode, with pairs of sources and translations.
        backward: a model for the other direction, with the same pairs reversed and the same words.

    Returns:
        The selector of each run, and the error rate of one run's links against the other's: 1 − 2 |A ∩ B| / (|A| +
        |B|).

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
    """Return, by selector, the source word linked to each target word, both numbered across all pairs.

    −1 means no link.
    """
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
    """Return the offset of each sentence's words among those of all sentences, and the total, (N + 1,).

    The number of words of a sentence is the larger one of its two tokenizations.
    """
    return np.cumsum([0, *(max(map(_count, tokenizations)) for tokenizations in sentences)], dtype=np.int64)


def _count(words: Words) -> int:
    """Return the number of words that contain pieces."""
    return max((word for word in words if word is not None), default=-1) + 1
