import math

import pytest

from attent.search.search import Hypothesis, is_finished, length_penalty


def test_it_is_settled_when_nothing_better_can_come() -> None:
    alpha, limit = 1.0, 7
    done = [Hypothesis((4,), -2.0, length_penalty(2, alpha)), Hypothesis((5, 4), -4.0, length_penalty(3, alpha))]
    # the longest translation divides by (5 + 8) / 6
    bound = done[1].score * (13 / 6)
    for running, expected in ((bound - 1e-9, True), (bound + 1e-9, False), (-math.inf, True)):
        assert is_finished(done, running, limit, beam=4, n_best=2, alpha=alpha) is expected
    assert not is_finished(done, -99.0, limit, beam=4, n_best=3, alpha=alpha)


@pytest.mark.parametrize("finished", [[], [Hypothesis((), -9.0, 1.0)]])
def test_alone_the_first_stop_ends_it(finished: list[Hypothesis]) -> None:
    assert is_finished(finished, -0.1, 9, beam=1, n_best=1, alpha=1.0) is bool(finished)
