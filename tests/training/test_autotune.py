import json
import time

import pytest
import torch

from attent.training.autotune import ComputeConfig, Precision, autocast, benchmark, candidates, fastest
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


def test_the_faster_one_is_found_and_taken_in_turn() -> None:
    tried: list[Precision] = []

    def step(precision: Precision) -> None:
        tried.append(precision)
        time.sleep(0.1 if precision == "float32" else 0.09)

    seconds = benchmark(step, CPU, PACES)
    assert set(seconds) == set(PACES)
    assert tried == ["float32", "bfloat16"] * 6
    assert 0.1 <= seconds[PACES[0]] < 0.2


def test_what_is_far_slower_is_not_tried_again() -> None:
    tried: list[Precision] = []

    def step(precision: Precision) -> None:
        tried.append(precision)
        time.sleep(0.05 if precision == "float32" else 0.001)

    seconds = benchmark(step, CPU, PACES)
    assert fastest(seconds) == ComputeConfig("bfloat16", 1)
    assert tried == ["float32", "bfloat16"] * 2 + ["bfloat16"] * 4
    assert 0.05 <= seconds[PACES[0]] < 0.5


def test_where_several_processes_compute_a_step_all_try_what_the_first_one_tries() -> None:
    """Whatever their own clocks say.

    One that tried another way, or one time more, would wait for the others without end.
    """
    configs: list[list[ComputeConfig]] = []
    tried: dict[str, list[Precision]] = {"first": [], "second": []}

    def first(work):
        configs.append(work())
        return json.loads(json.dumps(configs[-1]))

    def step(precision: Precision) -> None:
        tried["first"].append(precision)
        time.sleep(0.05 if precision == "float32" else 0.001)

    benchmark(step, CPU, PACES, first)
    answers = iter(configs)
    benchmark(tried["second"].append, CPU, PACES, lambda work: next(answers))
    assert tried["first"] == tried["second"] == ["float32", "bfloat16"] * 2 + ["bfloat16"] * 4


@pytest.mark.parametrize(("second", "chosen"), [(0.5, 0), (0.46, 0), (0.44, 1)])
def test_what_is_preferred_gives_way_to_what_is_clearly_faster(second: float, chosen: int) -> None:
    assert fastest({PACES[0]: 0.5, PACES[1]: second}) == PACES[chosen]


@pytest.mark.usefixtures("two_threads")
def test_each_way_runs_on_its_threads_and_leaves_them_as_they_were() -> None:
    sizes: list[int] = []

    def step(precision: Precision) -> None:
        sizes.append(torch.get_num_threads())
        time.sleep(0.05)

    benchmark(step, CPU, [ComputeConfig("float32", 2), ComputeConfig("float32", 1)])
    assert sizes == [2, 1] * 6
    assert torch.get_num_threads() == 2


@pytest.mark.usefixtures("two_threads")
def test_only_what_the_settings_leave_open_is_tried() -> None:
    assert candidates(settings(), CPU) == [
        ComputeConfig("float32", 2),
        ComputeConfig("float32", 1),
        ComputeConfig("bfloat16", 2),
        ComputeConfig("bfloat16", 1),
    ]
    assert candidates(settings(precision="bfloat16", threads=1), CPU) == [ComputeConfig("bfloat16", 1)]
    assert candidates(settings(threads=2), CPU) == [ComputeConfig("float32", 2), ComputeConfig("bfloat16", 2)]
    assert candidates(settings(), torch.device("cuda")) == [ComputeConfig("float32", 2), ComputeConfig("bfloat16", 2)]
    # where autocast may be missing nobody tries it unasked
    assert candidates(settings(), torch.device("mps")) == [ComputeConfig("float32", 2)]
    assert candidates(settings(precision="bfloat16"), torch.device("mps")) == [ComputeConfig("bfloat16", 2)]


def test_random_numbers_are_given_back() -> None:
    expected = torch.rand(3)
    torch.manual_seed(0)
    benchmark(lambda _: torch.rand(5).sum(), CPU, PACES)
    assert torch.rand(3).equal(expected)


def test_products_run_in_the_precision_asked_for() -> None:
    left, right = torch.randn(3, 5), torch.randn(5, 2)
    with autocast(CPU, "bfloat16"):
        assert (left @ right).dtype == torch.bfloat16
    with autocast(CPU, "float32"):
        assert (left @ right).dtype == torch.float32
