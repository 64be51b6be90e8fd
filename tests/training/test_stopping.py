from collections.abc import Sequence

import pytest

from attent.errors import UnknownNameError
from attent.training.optimizer import EarlyStopping, EarlyStoppingState
from attent.training.settings import TrainingSettings


def judge(name: str, scores: Sequence[float], **values: object) -> EarlyStopping:
    stopping = EarlyStopping(
        TrainingSettings.model_validate({"updates": 9, "batch_pairs": 8, "validate_every": 1} | values)
    )
    for number, score in enumerate(scores, start=1):
        stopping.step(10 * number, {name: score})
    return stopping


def test_a_loss_is_better_when_it_is_lower_and_anything_else_when_it_is_higher() -> None:
    assert judge("loss", [3.0, 2.0, 2.5], keep_best=2).state.best == [(2.0, 20), (2.5, 30)]
    assert judge("exact match", [3.0, 2.0, 2.5], keep_best=2).state.best == [(3.0, 10), (2.5, 30)]


def test_of_equals_the_later_is_kept_but_it_is_nothing_better() -> None:
    built = judge("exact match", [50.0, 50.0])
    assert (built.state.best, built.state.waiting) == ([(50.0, 20)], 1)


def test_patience_counts_validations_in_a_row_without_anything_better() -> None:
    assert not judge("loss", [3.0, 4.0, 2.0, 5.0], patience=2).should_stop
    assert judge("loss", [3.0, 4.0, 2.0, 5.0, 2.0], patience=2).should_stop
    assert not judge("loss", [3.0] * 9).should_stop


def test_the_plateau_worked_by_hand() -> None:
    # better at 1 and 2; 3, 4 are borne, 5 lets the rate fall; 6, 7 are borne, 8 lets it fall again
    scales = [
        judge(
            "loss", [3.0, 2.0, 2.1, 2.2, 2.3, 2.4, 2.5, 2.6][:last], schedule="plateau", plateau_patience=2
        ).state.scale
        for last in range(1, 9)
    ]
    assert scales == [1.0, 1.0, 1.0, 1.0, 0.5, 0.5, 0.5, 0.25]
    assert judge("loss", [1.0] * 9).state.scale == 1.0


def test_a_score_can_be_chosen_by_name() -> None:
    stopping = EarlyStopping(TrainingSettings(updates=9, batch_pairs=8, judge_by="exact match"))
    stopping.step(1, {"loss": 3.0, "exact match": 10.0})
    stopping.step(2, {"loss": 2.0, "exact match": 5.0})
    assert stopping.state.best == [(10.0, 1)]
    with pytest.raises(UnknownNameError, match=r"unknown training\.judge_by, 'exact match'.*known: loss"):
        stopping.step(3, {"loss": 1.0})


def test_no_scores_decide_nothing() -> None:
    built = judge("loss", [2.0])
    built.step(20, {})
    assert built.state == EarlyStoppingState(best=[(2.0, 10)], validated=20, best_scores={"loss": 2.0})


def test_the_scores_of_the_weights_that_are_kept() -> None:
    verdict = judge("loss", [2.0, 1.0, 3.0]).state
    assert (verdict.scores_of(20), verdict.scores_of(30)) == ({"loss": 1.0}, {"loss": 3.0})
    # of a run that began before the best ones were remembered
    assert verdict.model_copy(update={"best_scores": {}}).scores_of(20) == {"loss": 3.0}
