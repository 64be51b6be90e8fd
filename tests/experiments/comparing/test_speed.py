from __future__ import annotations

from attent.experiments.comparing.speed import measure, step


def test_both_models_are_timed_at_each_length() -> None:
    figure = measure((4, 8), rounds=1, seconds=0.0, tokens=16)
    assert [[point.x for point in line.points] for line in figure.series] == [[4.0, 8.0]] * 2
    assert all(point.y > 0 for line in figure.series for point in line.points)


def test_a_step_may_be_taken_again() -> None:
    work = step("bahdanau", 4, 8)
    work()
    work()
