"""Trees over words from weights between them, and their agreement with given trees: docs/what-weights-say.md.

    spanning_tree(weights.grouped(spans, spans)[0].mean(0).numpy())

A word's weight on another is the score of the other as its head (Raganato and Tiedemann 2018,
https://aclanthology.org/W18-5431). Any weights give a tree, even random ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from attent.errors import ArgumentError, ShapeError

# The head of a root.
ROOT = -1


class _Contraction(NamedTuple):
    """A graph whose cycle was contracted to one node, the last of the next graph.

    Args:
        heads: the best head of each node, (n,).
        cycle: the nodes of the cycle.
        rest: the other nodes, which are numbered in this order in the next graph.
        leaving: the best head within the cycle for each other node.
        entering: the node of the cycle that gets its head from outside, for each other node as that head.
    """

    heads: np.ndarray
    cycle: np.ndarray
    rest: np.ndarray
    leaving: np.ndarray
    entering: np.ndarray


def spanning_tree(scores: np.ndarray, root: int | None = None) -> list[int]:
    """Return the head of each word in the tree with the largest sum of scores; that of the root is −1.

    The maximum spanning arborescence by Chu and Liu (1965) and Edmonds (1967), in O(n³) time: each word takes its best
    head, and each cycle is contracted to one word.

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
    # one node more, the head of all roots: a root costs more than any choice of heads gains, so there is exactly one
    padded = np.full((count + 1, count + 1), -np.inf)
    padded[:count, :count] = scores
    padded[:count, count] = -1 - count * np.ptp(scores) + scores.min()
    if root is not None:
        padded[root, :count] = -np.inf
    heads = _arborescence(padded, count)[:count]
    return [ROOT if head == count else int(head) for head in heads]


def _arborescence(scores: np.ndarray, root: int) -> np.ndarray:
    """Return the head of each node, (n,); that of the root is the root itself."""
    contractions: list[_Contraction] = []
    while True:
        np.fill_diagonal(scores, -np.inf)
        heads = scores.argmax(1)
        heads[root] = root
        cycle = _cycle(heads, root)
        if not len(cycle):
            break
        rest = np.setdiff1d(np.arange(len(scores)), cycle)
        # an edge into the cycle replaces the edge within the cycle to the same node
        gains = scores[cycle][:, rest] - scores[cycle, heads[cycle]][:, None]
        leaving, entering = scores[rest][:, cycle].argmax(1), gains.argmax(0)
        contracted = np.full((len(rest) + 1, len(rest) + 1), -np.inf)
        contracted[:-1, :-1] = scores[np.ix_(rest, rest)]
        contracted[:-1, -1] = scores[rest, cycle[leaving]]
        contracted[-1, :-1] = gains.max(0)
        contractions.append(_Contraction(heads, cycle, rest, cycle[leaving], cycle[entering]))
        scores, root = contracted, int(np.searchsorted(rest, root))
    for outer in reversed(contractions):
        expanded, last = outer.heads, len(outer.rest)
        is_within = heads[:-1] == last
        expanded[outer.rest] = np.where(is_within, outer.leaving, outer.rest[np.minimum(heads[:-1], last - 1)])
        expanded[outer.entering[heads[-1]]] = outer.rest[heads[-1]]
        heads = expanded
    return heads


def _cycle(heads: np.ndarray, root: int) -> np.ndarray:
    """Return the nodes of a cycle, in ascending order; none if every node leads to the root."""
    visited = np.full(len(heads), -1)
    visited[root] = root
    for start in range(len(heads)):
        node = start
        while visited[node] < 0:
            visited[node] = start
            node = int(heads[node])
        if visited[node] == start and node != root:
            cycle = [node]
            while heads[cycle[-1]] != node:
                cycle.append(int(heads[cycle[-1]]))
            return np.sort(cycle)
    return np.empty(0, dtype=np.int64)


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
