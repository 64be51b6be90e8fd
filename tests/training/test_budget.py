"""How long a training takes, and whether its warm-up fits it."""

from __future__ import annotations

import pytest

from attent.training.autotune import Budget, rate_fault
from attent.training.settings import TrainingSettings


def settings(**values: object) -> TrainingSettings:
    return TrainingSettings.model_validate(
        {"updates": 100, "batch_pairs": 3, "warmup": 0.1, "schedule": "cosine"} | values
    )


def test_updates_take_their_time_and_validations_theirs() -> None:
    # 100 updates of 2 s, and validations of 10 s after 30, 60, 90 and 100 of them
    budget = Budget(settings(validate_every=30), 16, epoch_updates=50, epoch_seconds=100, validation_seconds=10)
    assert budget.lines() == ["about 4:00 on this machine, with 4 validations: 100 updates of 2 s, 2 epochs"]


def test_minutes_hold_as_many_updates_as_fit() -> None:
    budget = Budget(settings(updates=None, minutes=4), 16, epoch_updates=50, epoch_seconds=100)
    assert (budget.updates, budget.epochs) == (120, 2.4)
    assert budget.lines() == ["about 4:00 on this machine, and 1 validation: 120 updates of 2 s, 2.4 epochs"]
    nearer = Budget(settings(updates=7, minutes=4), 16, epoch_updates=50, epoch_seconds=100)
    assert nearer.updates == 7
    late = Budget(settings(updates=None, minutes=4, warmup=537), 16, epoch_updates=50, epoch_seconds=100)
    fault = "warning: 120 updates are too few for a warm-up of 537 updates: the learning rate reaches 6% of its peak; "
    assert late.lines()[1].startswith(fault)


@pytest.mark.parametrize("schedule", ["noam", "inverse_sqrt", "cosine", "linear", "constant", "plateau"])
def test_a_rate_that_stays_below_half_its_peak_is_a_fault_in_every_schedule(schedule: str) -> None:
    training = settings(schedule=schedule, warmup=537, validate_every=9)
    fault = rate_fault(training, 147, 1.0, 16)
    assert fault is not None
    assert fault.startswith("147 updates are too few for a warm-up of 537 updates: the learning rate reaches ")
    assert "--set training.warmup=0.1 " in fault
    assert rate_fault(training, 5370, 1.0, 16) is None


def test_a_share_fits_whatever_ends_training_but_patience() -> None:
    assert all(rate_fault(settings(warmup=share), 11, 1.0, 16) is None for share in (0.02, 0.1, 0.2, 0.4))
    assert rate_fault(settings(warmup=0.4), 11, 0.1, 16) is not None
    assert rate_fault(settings(warmup=400), 0, 0.0, 16) is None
