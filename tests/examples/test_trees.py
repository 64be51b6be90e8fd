from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from trees import ROOT, attachment_score, neighbor_heads, spanning_tree

from attent.attention import attend
from attent.errors import ArgumentError, ShapeError


def is_tree(heads: list[int]) -> bool:
    """Whether there is one root, to which every word leads."""
    if heads.count(ROOT) != 1:
        return False
    for word in range(len(heads)):
        for _ in heads:
            word = heads[word] if word != ROOT else ROOT
        if word != ROOT:
            return False
    return True


def total(scores: np.ndarray, heads: list[int]) -> float:
    return sum(scores[word, head] for word, head in enumerate(heads) if head != ROOT)


def best_total(scores: np.ndarray, root: int | None) -> float:
    """The largest total over all trees, by trying each head of each word."""
    every = itertools.product(range(ROOT, len(scores)), repeat=len(scores))
    trees = (list(heads) for heads in every if root is None or heads[root] == ROOT)
    return max(total(scores, heads) for heads in trees if is_tree(heads))


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5])
def test_no_tree_has_a_larger_total(count: int) -> None:
    dice = np.random.default_rng(count)
    for trial in range(12):
        scores = dice.random((count, count)) if trial % 2 else dice.normal(size=(count, count)) * 100
        for root in (None, *range(count)) if trial < 4 else (None, trial % count):
            heads = spanning_tree(scores, root)
            assert is_tree(heads)
            assert root is None or heads[root] == ROOT
            assert total(scores, heads) == pytest.approx(best_total(scores, root), rel=1e-12)


def test_cycles_within_cycles_are_contracted() -> None:
    # 0 and 1 choose each other, then together 2, which has chosen 0
    scores = np.array([[0, 9, 4, 1], [8, 0, 4, 0], [5, 3, 0, 2], [2, 1, 1, 0]])
    assert spanning_tree(scores, 3) == [1, 2, 3, ROOT]  # 9 + 4 + 2
    assert spanning_tree(scores) == [1, ROOT, 0, 0]  # 9 + 5 + 2


def test_many_words_form_a_tree() -> None:
    scores = np.random.default_rng(0).random((300, 300))
    heads = spanning_tree(scores)
    assert is_tree(heads)
    # a word gives up its best head only to break a cycle
    assert total(scores, heads) > 0.98 * (scores - np.diag(scores.diagonal())).max(1).sum()


@pytest.mark.parametrize("weights", [np.zeros((4, 4)), np.full((4, 4), 0.25)])
def test_equal_weights_form_a_tree(weights: np.ndarray) -> None:
    assert is_tree(spanning_tree(weights)) and is_tree(spanning_tree(weights, 2))


def test_weights_of_a_map_have_a_tree() -> None:
    scores = torch.tensor([[0.0, 9.0, 0.0], [0.0, 0.0, 0.0], [0.0, 9.0, 0.0]])  # both neighbors look at word 1
    weights = attend(scores, torch.eye(3), torch.eye(3), score="dot", return_map=True)[1]
    assert spanning_tree(weights.dense().numpy()) == [1, ROOT, 1]


def test_faults_are_named() -> None:
    for root in (2, -1):
        with pytest.raises(ArgumentError, match=f"root must be a word from 0 to 1, got {root}"):
            spanning_tree(np.zeros((2, 2)), root)
    for scores in (np.array([[0.0, np.nan], [0.0, 0.0]]), np.zeros((0, 0))):
        with pytest.raises(ArgumentError, match="at least one word and finite weights"):
            spanning_tree(scores)
    with pytest.raises(ShapeError, match=r"must be \(n, n\), got \(2, 3\)"):
        spanning_tree(np.zeros((2, 3)))


def test_heads_are_scored_beside_the_neighbor() -> None:
    gold = [1, ROOT, 3, 1]  # she ate the pizza
    assert neighbor_heads(4) == [ROOT, 0, 1, 2] and neighbor_heads(4, 1) == [1, 2, 3, ROOT]
    assert [attachment_score(heads, gold) for heads in (gold, neighbor_heads(4), neighbor_heads(4, 1))] == [1, 0, 0.5]
    with pytest.raises(ShapeError, match="of the same words, got 4 and 3"):
        attachment_score(gold, gold[:3])
    with pytest.raises(ArgumentError, match="offset must be -1 or 1, got 2"):
        neighbor_heads(4, 2)
