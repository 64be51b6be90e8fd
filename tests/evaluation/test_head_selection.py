from __future__ import annotations

import math
from collections.abc import Iterator
from random import Random

import numpy as np
import pytest
import torch
from torch import Tensor

from attent.data.tokenizer import CharTokenizer
from attent.errors import ShapeError
from attent.evaluation import head_selection
from attent.evaluation.aligner import TokenizedPair, align, all_selectors
from attent.evaluation.forced_decoding import AttentionSelector
from attent.evaluation.head_selection import Consistency, mutual_information, rank_by_consistency, rank_directions
from attent.models.settings import TransformerSettings
from attent.models.transformer import Transformer

TOKENIZER = CharTokenizer("abcdefgh")
ALIGNING, SHIFTED, BLUNT = AttentionSelector(0, 0, "produced"), AttentionSelector(0, 0, "read"), AttentionSelector(0, 1, "produced")


def pair(source: list[int], target: list[int]) -> TokenizedPair:
    return TokenizedPair(source, target, range(len(source)), range(len(target)))


def permuted_pairs() -> tuple[list[TokenizedPair], list[list[int]]]:
    """Targets are their sources in another order, each token 10 larger; and the source of each target token."""
    random, pairs, orders = Random(0), [], []
    for _ in range(60):
        source = random.sample(range(4, 14), 6)
        order = random.sample(range(6), 6)
        orders.append(order)
        pairs.append(pair(source, [source[index] + 10 for index in order]))
    return pairs, orders


def one_hot(indices: list[list[int]]) -> Tensor:
    return torch.eye(6, dtype=torch.float64)[torch.tensor(indices)]


def test_an_alignment_is_preferred_to_a_shifted_one_and_to_a_blunt_one(monkeypatch: pytest.MonkeyPatch) -> None:
    pairs, orders = permuted_pairs()
    matrices = {
        ALIGNING: one_hot(orders),
        SHIFTED: one_hot([[*order[1:], order[0]] for order in orders]),
        BLUNT: one_hot([[0] * 6 for _ in orders]),
    }

    def batches(model: object, given: object) -> Iterator[tuple[np.ndarray, AttentionSelector, Tensor]]:
        yield from ((np.arange(60), selector, weights) for selector, weights in matrices.items())

    monkeypatch.setattr(head_selection, "all_word_matrices", batches)
    ranking = dict(rank_by_consistency(None, pairs))  # pyright: ignore[reportArgumentType]
    assert next(iter(ranking)) == ALIGNING
    # a shift leaves the agreement of both sides as it is; words tell them from one another
    assert ranking[ALIGNING].agreement == ranking[SHIFTED].agreement == 1
    assert ranking[ALIGNING].score > 1 > ranking[SHIFTED].score
    # both what words tell and agreement count: of equal information for each link of the union, the attention that agrees more is better
    assert Consistency(20, 10, 30.0).score == 0.75 > Consistency(20, 5, 30.0).score
    assert ranking[BLUNT] == Consistency(60 * 6, 60, ranking[BLUNT].information)


def test_information_worked_by_hand() -> None:
    # the other half has 0-0 twice and 1-1 once: p(t=0) is (2 + 1) / (3 + 2)
    halves, sources, targets = np.array([0, 0, 0, 1, 1, 1]), np.array([0, 0, 1, 0, 1, 2]), np.array([0, 0, 1, 0, 0, 1])
    information = mutual_information(halves, sources, targets)
    assert information[3] == pytest.approx(math.log((2 + 0.6) / 3 / 0.6))
    assert information[4] == pytest.approx(math.log(0.6 / 2 / 0.6))
    # nothing is known of a source word that the other half has not
    assert information[5] == pytest.approx(0)
    assert mutual_information(np.array([0]), np.array([0]), np.array([0])).tolist() == [0]


def random_model(seed: int) -> Transformer:
    torch.manual_seed(seed)
    settings = TransformerSettings(encoder_layers=1, decoder_layers=2, width=16, feed_forward=17, heads=2)
    return Transformer(settings, TOKENIZER.size, TOKENIZER.size).eval()


def test_both_directions_are_judged_as_their_links_agree() -> None:
    forward, backward, random = random_model(1), random_model(2), Random(1)
    texts = [["".join(random.choices("abcdefgh", k=random.randint(1, 7))) for _ in range(2)] for _ in range(9)]
    pairs = [pair(*map(TOKENIZER.encode, both)) for both in texts]
    turned = [TokenizedPair(item.target, item.source, item.target_words, item.source_words) for item in pairs]
    ranking = rank_directions((forward, pairs), (backward, turned))
    assert len(ranking) == len(all_selectors([2, 2])) ** 2
    assert [rate for *_, rate in ranking] == sorted(rate for *_, rate in ranking)
    for first, second, rate in ranking[::37]:
        links = [set(item) for item in align(forward, pairs, first)]
        flipped = [{(source, target) for target, source in item} for item in align(backward, turned, second)]
        common = sum(len(one & other) for one, other in zip(links, flipped, strict=True))
        assert rate == pytest.approx(1 - 2 * common / sum(map(len, links + flipped)))
    with pytest.raises(ShapeError, match="need the same pairs, got 9 and 8"):
        rank_directions((forward, pairs), (backward, turned[1:]))


def test_pairs_with_an_empty_side_leave_nothing_to_choose_by() -> None:
    assert rank_by_consistency(random_model(1), [pair([], [4]), pair([4], [])]) == []
