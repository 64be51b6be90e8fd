"""Trees over words from weights between them, and their agreement with given trees."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from attent.errors import ArgumentError, ShapeError

# The head of a root.
ROOT = -1


def spanning_tree(scores: np.ndarray, root: int | None = None) -> list[int]:
    """Return the head of each word in the tree with the largest sum of scores; that of the root is −1.

    The maximum spanning arborescence by Chu and Liu (1965) and Edmonds (1967), from networkx: a sentence of 30 words
    takes a twentieth of a second, one of 100 words two seconds.

    Args:
        scores: (n, n), the score of word j as the head of word i in row i and column j; the diagonal is ignored.
        root: the word without a head; that of the best tree of all unless given.

    Raises:
        ArgumentError: there is no word, a score is not finite, or there is no such root.
        ShapeError: the scores are not square.
    """
    scores = np.array(scores, dtype=np.float64)
    if scores.ndim != 2 or scores.shape[0] != scores.shape[1]:
        raise ShapeError(f"scores of heads must be (n, n), got {scores.shape}")
    count = len(scores)
    if not count or not np.isfinite(scores).all():
        raise ArgumentError("a tree needs at least one word and finite weights")
    if root is not None and not 0 <= root < count:
        raise ArgumentError(f"root must be a word from 0 to {count - 1}, got {root}")
    # torch requires networkx
    import networkx

    graph = networkx.DiGraph()
    graph.add_weighted_edges_from(
        (head, word, scores[word, head]) for word in range(count) for head in range(count) if word not in (head, root)
    )
    # one node more, the head of all roots: a root costs more than any choice of heads gains, so there is exactly one
    cost = scores.min() - 1 - count * np.ptp(scores)
    graph.add_weighted_edges_from((ROOT, word, cost) for word in (range(count) if root is None else [root]))
    heads = {word: head for head, word in networkx.maximum_spanning_arborescence(graph).edges}
    return [heads[word] for word in range(count)]


def neighbor_heads(count: int, offset: int = -1) -> list[int]:
    """Return the heads of words that are each attached to a neighbor, the baseline for trees.

    Args:
        count: the number of words.
        offset: −1 attaches each word to the word before it, and the first is the root; 1 to the word after it, and the
            last is the root.

    Raises:
        ArgumentError: the offset is neither.
    """
    if offset not in (-1, 1):
        raise ArgumentError(f"offset must be -1 or 1, got {offset}")
    return [word + offset if 0 <= word + offset < count else ROOT for word in range(count)]


def attachment_score(heads: Sequence[int], gold: Sequence[int]) -> float:
    """Return the unlabeled attachment score: the share of words with the right head, from 0 to 1.

    Args:
        heads: the head of each word, numbered from 0; −1 for a root. Of several sentences, one after another.
        gold: the right heads.

    Raises:
        ShapeError: the numbers of words differ, or are 0.
    """
    if len(heads) != len(gold) or not len(gold):
        raise ShapeError(f"heads and gold heads must be of the same words, got {len(heads)} and {len(gold)}")
    return sum(head == right for head, right in zip(heads, gold, strict=True)) / len(gold)
