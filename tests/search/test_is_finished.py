import math

import pytest

from attent.search.search import Hypothesis, is_finished, length_penalty
from attent.search.settings import SearchSettings


def test_it_is_settled_when_nothing_better_can_come() -> None:
    done = [Hypothesis((4,), -2.0, length_penalty(2, 1.0)), Hypothesis((5, 4), -4.0, length_penalty(3, 1.0))]
    settings = SearchSettings(beam=4, n_best=2, length_penalty=1.0)
    # the longest translation divides by (5 + 8) / 6
    bound = done[1].score * (13 / 6)
    for running, expected in ((bound - 1e-9, True), (bound + 1e-9, False), (-math.inf, True)):
        assert is_finished(done, running, 7, settings) is expected
    assert not is_finished(done, -99.0, 7, settings.model_copy(update={"n_best": 3}))


@pytest.mark.parametrize("finished", [[], [Hypothesis((), -9.0, 1.0)]])
def test_alone_the_first_stop_ends_it(finished: list[Hypothesis]) -> None:
    assert is_finished(finished, -0.1, 9, SearchSettings(length_penalty=1.0)) is bool(finished)
