from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from attent.alignment import head_selection
from attent.alignment.aligner import TokenizedPair
from attent.alignment.forced_decoding import AttentionSelector
from attent.alignment.head_selection import prediction_differences, rank_by_differences
from attent.text.tokenizer import CharTokenizer

TOKENIZER = CharTokenizer("abcdefgh")
ALIGNING, SHIFTED, BLUNT = AttentionSelector(0, 0), AttentionSelector(0, 0, "read"), AttentionSelector(0, 1)


def pair(source: list[int], target: list[int]) -> TokenizedPair:
    return TokenizedPair(source, target, range(len(source)), range(len(target)))


class Mirror:
    """A model of ten words that produces them last to first, each token 10 larger."""

    def parameters(self) -> Iterator[Tensor]:
        yield torch.zeros(())

    def encode(self, source: Tensor, lengths: Tensor) -> Tensor:
        return source

    def decode(self, memory: Tensor, tokens: Tensor) -> Tensor:
        return memory.flip(1)[:, : tokens.shape[1]] + 10

    def output(self, features: Tensor) -> Tensor:
        return 9.0 * torch.nn.functional.one_hot(features, 30)


MIRROR: Any = Mirror()


def mirrored_pairs() -> list[TokenizedPair]:
    random = Random(0)
    sources = [random.sample(range(4, 14), 6) for _ in range(60)]
    return [pair(source, [token + 10 for token in reversed(source)]) for source in sources]


def test_an_alignment_is_preferred_to_a_shifted_one_and_to_a_blunt_one(monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = mirrored_pairs()
    links = {ALIGNING: [5, 4, 3, 2, 1, 0], SHIFTED: [4, 3, 2, 1, 0, 5], BLUNT: [0] * 6}

    def batches(model: object, value: object) -> Iterator[tuple[np.ndarray, AttentionSelector, Tensor]]:
        yield from ((np.arange(60), selector, torch.eye(6)[links[selector]].expand(60, -1, -1)) for selector in links)

    monkeypatch.setattr(head_selection, "all_word_matrices", batches)
    (first, best), (second, blunt), (third, shifted) = rank_by_differences(MIRROR, pairs)
    assert (first, second, third, best, shifted) == (ALIGNING, BLUNT, SHIFTED, 1, 0)
    # the first source word is what the last target word is made of
    assert blunt == pytest.approx(1 / 6, abs=0.02)
    # words that no source word makes a difference of are not judged
    monkeypatch.setattr(head_selection, "DEPENDENT", 10.0)
    assert rank_by_differences(MIRROR, pairs) == []


def test_differences_worked_by_hand() -> None:
    # of a word of two pieces both are replaced, here by the pieces 7 or 8; a piece of no word is neither replaced nor
    # lost
    spread, second = TokenizedPair([4, 5, 6], [16, 15, 14], [None, 0, 0], [0, 0, 1]), pair([7] * 40, [17] * 40)
    lost, of_other = prediction_differences(MIRROR, [spread, second])
    # each of the two target tokens had 9 nats more than any other token
    np.testing.assert_allclose(lost, [[18.0], [0.0]], atol=1e-9)
    assert of_other.shape == (40, 40)
    assert prediction_differences(MIRROR, [pair([], [4]), pair([4], [])])[0].shape == (1, 0)


def test_pairs_with_an_empty_side_leave_nothing_to_choose_by() -> None:
    assert rank_by_differences(MIRROR, [pair([], [4]), pair([4], [])]) == []
