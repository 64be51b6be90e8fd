import math

import pytest
import torch

from attent.decoding.beam import likeliest, settled
from attent.decoding.hypothesis import Hypothesis, length_penalty

NOBODY = torch.zeros(0, dtype=torch.long)


def test_worked_by_hand() -> None:
    so_far = torch.tensor([[-1.0, -2.0]])
    told = torch.tensor([[[-3.0, -0.5, -9.0], [-0.25, -4.0, -0.75]]])
    scores, places = likeliest(so_far, told, NOBODY, 0)
    assert scores.tolist() == [[-1.5, -2.25, -2.75, -4.0]]
    assert places.tolist() == [[1, 3, 5, 0]]


def test_equals_keep_their_order() -> None:
    so_far, told = torch.zeros(1, 3), torch.full((1, 3, 101), -2.0)
    told[0, 1, 7] = -1.0
    assert likeliest(so_far, told, NOBODY, 0)[1].tolist() == [[108, 0, 1, 2, 3, 4]]
    assert likeliest(so_far[:, :1], told[:, 2:], NOBODY, 0)[1].tolist() == [[0]]


@pytest.mark.parametrize("size", [1, 5, 32, 33, 64, 101])
@pytest.mark.parametrize("width", [1, 2, 5])
def test_blocks_find_what_sorting_finds(width: int, size: int) -> None:
    so_far, told = -torch.rand(7, width), -torch.randint(9, (7, width, size)).float()
    told[0, :, 1:] = -torch.inf
    scores, places = likeliest(so_far, told, NOBODY, 0)
    every = (so_far[..., None] + told).flatten(1)
    order = every.sort(descending=True, stable=True)
    count = 1 if width == 1 else min(2 * width, width * size)
    assert torch.equal(scores, order.values[:, :count])
    real = ~scores.isneginf()
    assert torch.equal(places[real], order.indices[:, :count][real])
    assert ((places >= 0) & (places < width * size)).all()


def test_the_order_is_that_of_the_numbers() -> None:
    told = torch.cat((torch.randn(1, 2, 37) * 10.0 ** torch.randint(-9, 9, (37,)), torch.full((1, 2, 3), -torch.inf)), 2)
    scores, _ = likeliest(torch.zeros(1, 2), told, NOBODY, 0)
    assert scores.tolist() == [sorted(told.flatten().tolist(), reverse=True)[:4]]


def test_it_is_settled_when_nothing_better_can_come() -> None:
    alpha, limit = 1.0, 7
    done = [Hypothesis((4,), -2.0, length_penalty(2, alpha)), Hypothesis((5, 4), -4.0, length_penalty(3, alpha))]
    # the longest translation divides by (5 + 8) / 6
    bound = done[1].score * (13 / 6)
    for running, expected in ((bound - 1e-9, True), (bound + 1e-9, False), (-math.inf, True)):
        assert settled(done, running, limit, width=4, wanted=2, alpha=alpha) is expected
    assert not settled(done, -99.0, limit, width=4, wanted=3, alpha=alpha)


@pytest.mark.parametrize("finished", [[], [Hypothesis((), -9.0, 1.0)]])
def test_alone_the_first_stop_ends_it(finished: list[Hypothesis]) -> None:
    assert settled(finished, -0.1, 9, width=1, wanted=1, alpha=1.0) is bool(finished)
