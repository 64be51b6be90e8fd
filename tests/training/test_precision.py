import time

import torch

from attent.training.precision import Precision, autocast, faster, measured

CPU = torch.device("cpu")


def test_the_faster_one_is_found_and_taken_in_turn() -> None:
    tried: list[Precision] = []

    def step(precision: Precision) -> None:
        tried.append(precision)
        time.sleep(0.02 if precision == "float32" else 0.001)

    seconds = measured(step, CPU)
    assert faster(seconds) == "bfloat16"
    assert tried == ["float32", "bfloat16"] * 4
    assert 0.02 <= seconds["float32"] < 0.2


def test_of_equals_it_is_float32() -> None:
    assert faster({"float32": 0.5, "bfloat16": 0.5}) == "float32"


def test_random_numbers_are_given_back() -> None:
    expected = torch.rand(3)
    torch.manual_seed(0)
    measured(lambda _: torch.rand(5).sum(), CPU)
    assert torch.rand(3).equal(expected)


def test_products_run_in_the_precision_asked_for() -> None:
    left, right = torch.randn(3, 5), torch.randn(5, 2)
    with autocast(CPU, "bfloat16"):
        assert (left @ right).dtype == torch.bfloat16
    with autocast(CPU, "float32"):
        assert (left @ right).dtype == torch.float32
