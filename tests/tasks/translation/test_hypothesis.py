import pytest

from attent.search.search import Hypothesis, length_penalty


def test_worked_by_hand() -> None:
    assert length_penalty(1, 0.6) == 1
    assert length_penalty(13, 2.0) == 9
    assert length_penalty(13, 0.0) == 1
    assert length_penalty(13, 2.0, "length") == 169
    assert Hypothesis((4,) * 12, -18.0, length_penalty(13, 2.0)).score == pytest.approx(-2)
