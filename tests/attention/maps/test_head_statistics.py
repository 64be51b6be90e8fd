from __future__ import annotations

import math

import pytest
import torch

from attent.attention.attend import attend
from attent.attention.maps.head_statistics import HEAD_STATISTICS, HeadStatistics


def named(statistics: HeadStatistics, head: int = 0) -> dict[str, float]:
    return dict(zip(HEAD_STATISTICS, statistics.means()[head].tolist(), strict=True))


def test_statistics_by_hand() -> None:
    statistics = HeadStatistics(1, is_distribution=True, is_self_attention=True)
    dense = torch.tensor([[1.0, 0.0, 0.0], [0.5, 0.5, 0.0], [0.0, 0.25, 0.75]])[None]
    for row in range(3):
        statistics.add(dense[:, row : row + 1], torch.tensor([row]))
    means = named(statistics)
    assert means["first"] == pytest.approx(1.5 / 3)
    assert means["previous"] == pytest.approx((0.5 + 0.25) / 3)
    assert means["same"] == pytest.approx((1 + 0.5 + 0.75) / 3)
    assert means["distance"] == pytest.approx((0.5 + 0.25) / 3)
    assert means["entropy"] == pytest.approx((math.log(2) - 0.25 * math.log(0.25) - 0.75 * math.log(0.75)) / 3)


def test_they_are_the_means_of_those_of_the_map() -> None:
    query, key = torch.randn(1, 3, 5, 4), torch.randn(1, 3, 7, 4)
    weights = attend(query, key, key, return_map=True)[1]
    statistics = HeadStatistics(3, is_distribution=True, is_self_attention=True)
    statistics.add(weights.dense()[0], torch.arange(2, 7))
    for head in range(3):
        means = named(statistics, head)
        assert means["entropy"] == pytest.approx(weights.entropy()[0, head].mean().item(), rel=1e-5)
        assert means["distance"] == pytest.approx(weights.distance()[0, head].mean().item(), rel=1e-5)


def test_a_row_that_sees_nothing_counts_in_no_mean() -> None:
    statistics = HeadStatistics(1, is_distribution=True, is_self_attention=True)
    statistics.add(torch.tensor([[[0.0, 0.0], [0.5, 0.5]]]), torch.arange(2))
    torch.testing.assert_close(statistics.means()[0], torch.tensor([math.log(2), 0.5, 0.5, 0.5, 0.5], dtype=torch.float64))


@pytest.mark.parametrize(("is_distribution", "meaningless"), [(True, ["distance", "previous", "same"]), (False, [*HEAD_STATISTICS])])
def test_numbers_without_a_meaning_are_nan(is_distribution: bool, meaningless: list[str]) -> None:
    statistics = HeadStatistics(1, is_distribution=is_distribution, is_self_attention=False)
    statistics.add(torch.full((1, 4, 6), 1 / 6), torch.arange(2, 6))
    assert [name for name, value in named(statistics).items() if math.isnan(value)] == meaningless
