from typing import get_args

import pytest

from attent.training.schedules import SCHEDULES, cosine, inverse_sqrt, linear, noam
from attent.training.settings import ScheduleName


def test_every_schedule_that_settings_name_is_there() -> None:
    assert set(SCHEDULES) == set(get_args(ScheduleName))


@pytest.mark.parametrize("name", SCHEDULES)
def test_the_rate_rises_in_a_line_during_the_warm_up(name: str) -> None:
    first, middle, last = (SCHEDULES[name](update, 0.0, 40, 128) for update in (10, 20, 40))
    assert middle == pytest.approx(2 * first)
    assert last == pytest.approx(4 * first)


@pytest.mark.parametrize("name", sorted(set(SCHEDULES) - {"noam"}))
def test_the_largest_factor_is_one(name: str) -> None:
    factors = [SCHEDULES[name](update, update / 1000, 100, 128) for update in range(1, 1001)]
    assert 0.85 < max(factors) <= 1
    assert SCHEDULES[name](1, 0.0, 0, 128) == 1


@pytest.mark.parametrize("name", sorted(set(SCHEDULES) - {"constant", "plateau"}))
def test_the_rate_falls_after_the_warm_up(name: str) -> None:
    factors = [SCHEDULES[name](update, update / 1000, 100, 128) for update in range(100, 1001)]
    assert factors == sorted(factors, reverse=True)
    assert factors[-1] < factors[0]


def test_noam_is_the_papers() -> None:
    # base model, warm-up 4000: the largest rate is 512^-0.5 · 4000^-0.5
    assert noam(4000, 0.0, 4000, 512) == pytest.approx(6.9877e-4, rel=1e-4)
    assert noam(16000, 0.0, 4000, 512) == pytest.approx(noam(4000, 0.0, 4000, 512) / 2)


def test_inverse_sqrt_halves_when_updates_are_four_times_the_warm_up() -> None:
    assert inverse_sqrt(400, 0.0, 100, 128) == pytest.approx(0.5)


def test_cosine_and_linear_reach_zero_at_the_end_and_stay_there() -> None:
    for schedule in (cosine, linear):
        assert schedule(500, 0.5, 10, 128) == pytest.approx(0.5)
        assert schedule(1000, 1.0, 10, 128) == pytest.approx(0.0)
        assert schedule(1001, 1.1, 10, 128) == pytest.approx(0.0)
