"""Choice of the attention for word alignment without gold links.

An aligning head attends to the source word that the model needs to produce a target word. Each source word in turn is
replaced by random words, and the log-probability that each target word loses measures its dependence on that source
word: the prediction difference of Li et al. 2019, On the Word Alignment from Neural Machine Translation,
https://aclanthology.org/P19-1124, who read links from it. The score of a head is the prediction difference of the
linked word divided by the largest of any source word.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from attent.alignment.aligner import TokenizedPair, Words, all_word_matrices
from attent.alignment.forced_decoding import AttentionSelector
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


def _count(words: Words) -> int:
    """Return the number of words that contain pieces."""
    return max((word for word in words if word is not None), default=-1) + 1
