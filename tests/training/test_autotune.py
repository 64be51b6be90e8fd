"""How long a training takes, and whether its warm-up fits it."""

from __future__ import annotations

import json

import pytest
import torch

from attent.training.autotune import (
    Budget,
    ComputeConfig,
    Precision,
    autocast,
    benchmark,
    candidates,
    fastest,
    rate_fault,
)
from attent.training.settings import TrainingSettings

CPU = torch.device("cpu")
PACES = (ComputeConfig("float32", 1), ComputeConfig("bfloat16", 1))


def settings(**values: object) -> TrainingSettings:
    return TrainingSettings.model_validate({"updates": 5, "batch_pairs": 3} | values)


@pytest.fixture
def two_threads() -> object:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


class Steps:
    """Steps that take as long as they are told to, by the clock of the benchmark."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, seconds: dict[Precision, float]) -> None:
        self.now, self.seconds = 0.0, seconds
        self.tried: list[Precision] = []
        self.threads: list[int] = []
        monkeypatch.setattr("attent.training.autotune.time.perf_counter", lambda: self.now)

    def __call__(self, precision: Precision) -> None:
        self.tried.append(precision)
        self.threads.append(torch.get_num_threads())
        self.now += self.seconds[precision]


def test_the_faster_one_is_found_and_taken_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    step = Steps(monkeypatch, {"float32": 0.1, "bfloat16": 0.09})
    assert benchmark(step, CPU, PACES) == {PACES[0]: pytest.approx(0.1), PACES[1]: pytest.approx(0.09)}
    assert step.tried == ["float32", "bfloat16"] * 6


def test_where_several_processes_compute_a_step_all_try_what_the_first_one_tries(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whatever their own clocks say; and what is far slower is not tried again.

    One that tried another way, or one time more, would wait for the others without end.
    """
    configs: list[list[ComputeConfig]] = []

    def first(work):
        configs.append(work())
        return json.loads(json.dumps(configs[-1]))

    step, peer = Steps(monkeypatch, {"float32": 0.05, "bfloat16": 0.001}), list[Precision]()
    seconds = benchmark(step, CPU, PACES, first)
    assert fastest(seconds) == ComputeConfig("bfloat16", 1)
    assert seconds[PACES[0]] == pytest.approx(0.05)
    answers = iter(configs)
    benchmark(peer.append, CPU, PACES, lambda work: next(answers))
    assert step.tried == peer == ["float32", "bfloat16"] * 2 + ["bfloat16"] * 4


@pytest.mark.parametrize(("second", "chosen"), [(0.5, 0), (0.46, 0), (0.44, 1)])
def test_what_is_preferred_gives_way_to_what_is_clearly_faster(second: float, chosen: int) -> None:
    assert fastest({PACES[0]: 0.5, PACES[1]: second}) == PACES[chosen]


@pytest.mark.usefixtures("two_threads")
def test_each_way_runs_on_its_threads_and_leaves_them_and_random_numbers_as_they_were(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    step = Steps(monkeypatch, {"float32": 0.05, "bfloat16": 0.05})
    benchmark(step, CPU, [ComputeConfig("float32", 2), ComputeConfig("float32", 1)])
    assert step.threads == [2, 1] * 6
    assert torch.get_num_threads() == 2
    state = torch.get_rng_state()
    benchmark(lambda _: torch.rand(5).sum(), CPU, PACES)
    assert torch.get_rng_state().equal(state)


@pytest.mark.usefixtures("two_threads")
def test_only_what_the_settings_leave_open_is_tried() -> None:
    tried = [(config.precision, config.threads) for config in candidates(settings(), CPU)]
    assert tried == [("float32", 2), ("float32", 1), ("bfloat16", 2), ("bfloat16", 1)]
    assert candidates(settings(precision="bfloat16", threads=1), CPU) == [ComputeConfig("bfloat16", 1)]
    on_two = [ComputeConfig("float32", 2), ComputeConfig("bfloat16", 2)]
    assert candidates(settings(threads=2), CPU) == candidates(settings(), torch.device("cuda")) == on_two
    # where autocast may be missing nobody tries it unasked
    assert candidates(settings(), torch.device("mps")) == [ComputeConfig("float32", 2)]
    assert candidates(settings(precision="bfloat16"), torch.device("mps")) == [ComputeConfig("bfloat16", 2)]


def test_products_run_in_the_precision_asked_for() -> None:
    left, right = torch.randn(3, 5), torch.randn(5, 2)
    with autocast(CPU, "bfloat16"):
        assert (left @ right).dtype == torch.bfloat16
    with autocast(CPU, "float32"):
        assert (left @ right).dtype == torch.float32


def make_settings(**values: object) -> TrainingSettings:
    return TrainingSettings.model_validate(
        {"updates": 100, "batch_pairs": 3, "warmup": 0.1, "schedule": "cosine"} | values
    )


def test_updates_take_their_time_and_minutes_hold_as_many_as_fit() -> None:
    # 100 updates of 2 s, and validations of 10 s after 30, 60, 90 and 100 of them
    budget = Budget(make_settings(validate_every=30), 16, epoch_updates=50, epoch_seconds=100, validation_seconds=10)
    assert budget.lines() == ["about 4:00 on this machine, with 4 validations: 100 updates of 2 s, 2 epochs"]
    budget = Budget(make_settings(updates=None, minutes=4), 16, epoch_updates=50, epoch_seconds=100)
    assert (budget.updates, budget.epochs) == (120, 2.4)
    assert budget.lines() == ["about 4:00 on this machine, and 1 validation: 120 updates of 2 s, 2.4 epochs"]
    nearer = Budget(make_settings(updates=7, minutes=4), 16, epoch_updates=50, epoch_seconds=100)
    assert nearer.updates == 7
    late = Budget(make_settings(updates=None, minutes=4, warmup=537), 16, epoch_updates=50, epoch_seconds=100)
    fault = "warning: 120 updates are too few for a warm-up of 537 updates: the learning rate reaches 6% of its peak; "
    assert late.lines()[1].startswith(fault)


@pytest.mark.parametrize("schedule", ["noam", "inverse_sqrt", "cosine", "linear", "constant", "plateau"])
def test_a_rate_that_stays_below_half_its_peak_is_a_fault_in_every_schedule(schedule: str) -> None:
    training = make_settings(schedule=schedule, warmup=537, validate_every=9)
    fault = rate_fault(training, 147, 1.0, 16)
    assert fault is not None
    assert fault.startswith("147 updates are too few for a warm-up of 537 updates: the learning rate reaches ")
    assert "--set training.warmup=0.1 " in fault
    assert rate_fault(training, 5370, 1.0, 16) is None


def test_a_share_fits_whatever_ends_training_but_patience() -> None:
    assert all(rate_fault(make_settings(warmup=share), 11, 1.0, 16) is None for share in (0.02, 0.1, 0.2, 0.4))
    assert rate_fault(make_settings(warmup=0.4), 11, 0.1, 16) is not None
    assert rate_fault(make_settings(warmup=400), 0, 0.0, 16) is None
