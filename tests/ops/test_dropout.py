from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from attent.attention import attend
from attent.ops import native
from attent.ops.dropout import keep_mask


def mask(
    seed: int | Tensor, probability: float = 0.5, batch: int = 3, heads: int = 2, queries: int = 127, keys: int = 131
) -> Tensor:
    rows = torch.arange(queries)
    return keep_mask(rows, torch.arange(keys), heads, batch, probability, seed)


def agreement(first: Tensor, second: Tensor) -> float:
    """How far the share of equal entries is from that of independent fair coins, in standard deviations."""
    return float((first == second).double().mean() - 0.5) * 2 * math.sqrt(first.numel())


@pytest.mark.parametrize("probability", [0.1, 0.5, 0.9])
def test_the_share_kept(probability: float) -> None:
    stays = mask(7, probability)
    assert stays.shape == (3, 2, 127, 131)
    expected = 1 - probability
    deviation = math.sqrt(expected * probability / stays.numel())
    assert abs(stays.double().mean() - expected) < 5 * deviation
    # no row and no column is favoured: the largest of 762 and 786 deviations of 127 to 131 coins
    for axis, count in ((-1, 131), (-2, 127)):
        assert (stays.double().mean(axis) - expected).abs().max() < 5.5 * math.sqrt(expected * probability / count)


def test_all_and_nothing() -> None:
    assert mask(7, 0.0).all()
    assert not mask(7, 1.0).any()


@pytest.mark.usefixtures("level")
def test_the_extension_keeps_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    for probability in (0.0, 1e-9, 0.3, 0.999_999_999_9):
        for seed in (0, 2**40 + 5, torch.tensor([-3])):
            for queries, keys in ((1, 1), (35, 67), (0, 5), (5, 0)):
                actual = mask(seed, probability, queries=queries, keys=keys)
                with monkeypatch.context() as patch:
                    patch.setattr(native, "library", lambda: None)
                    assert torch.equal(actual, mask(seed, probability, queries=queries, keys=keys))


def test_sequences_heads_rows_columns_and_seeds_are_independent() -> None:
    single = mask(7)
    for second in (*(single.roll(1, axis) for axis in range(4)), mask(8), mask(2**31 - 8)):
        assert abs(agreement(single, second)) < 5
    # nor does the next seed begin with the next sequence's mask, head's or row's
    for axis, length in enumerate((3, 2, 127, 131)):
        assert abs(agreement(single.narrow(axis, 1, length - 1), mask(8).narrow(axis, 0, length - 1))) < 5


def test_the_mask_is_a_function_of_its_arguments() -> None:
    whole = mask(7)
    assert torch.equal(whole, mask(torch.tensor([7])))
    assert torch.equal(whole, mask(torch.tensor(7, dtype=torch.int32)))
    assert torch.equal(mask(-1), mask(torch.tensor(2**32 - 1)))
    # the lower 32 bits count
    assert torch.equal(whole, mask(7 + 2**32))
    assert torch.equal(whole, mask(7 + 2**70))
    rows = torch.tensor([5, 3])
    assert torch.equal(keep_mask(rows, torch.arange(11), 2, 3, 0.5, 7), whole[:, :, rows, :11])
    # more sequences, heads or keys change nothing for those there were
    assert torch.equal(mask(7, batch=5, heads=3, keys=137)[:3, :2, :, :131], whole)


def test_the_hash_worked_by_hand() -> None:
    def mixed(word: int) -> int:
        word = (word ^ word >> 16) * 0x7FEB352D % 2**32
        word = (word ^ word >> 15) * 0x846CA68B % 2**32
        return word ^ word >> 16

    seed, b, h, i, j = 12345, 2, 1, 3, 4
    row = mixed((mixed(seed) + 0x9E3779B1 * b + 0x85EBCA77 * h + 0xC2B2AE3D * i) % 2**32)
    bits = mixed((row + mixed(j + 0x5BD1E995)) % 2**32)
    # kept from the share on that its bits name, and dropped beyond
    assert mask(seed, bits / 2**32)[b, h, i, j]
    assert not mask(seed, (bits + 1) / 2**32)[b, h, i, j]


def test_kept_weights_are_scaled_up() -> None:
    value = torch.eye(7)
    query, key = torch.randn(5, 3), torch.randn(7, 3)
    weights, dropped = attend(query, key, value), attend(query, key, value, dropout=0.25, seed=3)
    stays = mask(3, 0.25, batch=1, heads=1, queries=5, keys=7)[0, 0]
    assert 0 < stays.sum() < 35
    torch.testing.assert_close(dropped, weights * stays / 0.75)
