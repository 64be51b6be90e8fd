from typing import get_args

import pytest
import torch
from torch import nn

from attent.training.optimizer import (
    SCHEDULES,
    build_optimizer,
    cosine,
    inverse_sqrt,
    linear,
    noam,
    optimizer_state,
    restore_optimizer,
)
from attent.training.settings import ScheduleName, TrainingSettings


def settings(**values: object) -> TrainingSettings:
    return TrainingSettings.model_validate({"updates": 9, "batch_pairs": 8} | values)


def step(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad()
    model(torch.ones(2, 3)).square().sum().backward()
    optimizer.step()


def test_adamw_decays_weights_and_adam_adds_to_the_gradient() -> None:
    weights = {}
    for kind in ("adamw", "adam"):
        parameter = nn.Parameter(torch.full((1, 1), 2.0))
        parameter.grad = torch.zeros(1, 1)
        build_optimizer([parameter], settings(optimizer=kind, learning_rate=0.1, weight_decay=0.25)).step()
        weights[kind] = parameter.item()
    # 2 − 0.1 · 0.25 · 2, and a first step of one learning rate against the gradient 0.25 · 2
    assert weights == pytest.approx({"adamw": 1.95, "adam": 1.9})


def test_a_restored_one_goes_on_in_the_same_way() -> None:
    single = nn.Linear(3, 5)
    first = build_optimizer(list(single.parameters()), settings())
    assert optimizer_state(first, dict(single.named_parameters())) == {}
    step(single, first)
    two = nn.Linear(3, 5)
    two.load_state_dict(single.state_dict())
    second = build_optimizer(list(two.parameters()), settings())
    state = optimizer_state(first, dict(single.named_parameters()))
    assert set(state) == {f"{name}/{key}" for name in ("weight", "bias") for key in ("step", "exp_avg", "exp_avg_sq")}
    restore_optimizer(second, dict(two.named_parameters()), state)
    for model, optimizer in ((single, first), (two, second)):
        step(model, optimizer)
    assert torch.equal(single.weight, two.weight)
    with pytest.raises(KeyError, match="elsewhere"):
        restore_optimizer(second, dict(two.named_parameters()), {"elsewhere/step": torch.zeros(())})
    # a weight that is not trained has no state
    alone = build_optimizer([single.weight], settings())
    step(single, alone)
    assert {name.partition("/")[0] for name in optimizer_state(alone, dict(single.named_parameters()))} == {"weight"}


@pytest.mark.parametrize("name", SCHEDULES)
def test_the_rate_rises_in_a_line_during_the_warm_up(name: str) -> None:
    assert name in get_args(ScheduleName)
    assert len(SCHEDULES) == len(get_args(ScheduleName))
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
    assert inverse_sqrt(400, 0.0, 100, 128) == pytest.approx(0.5)


def test_cosine_and_linear_reach_zero_at_the_end_and_stay_there() -> None:
    for schedule in (cosine, linear):
        assert schedule(500, 0.5, 10, 128) == pytest.approx(0.5)
        assert schedule(1000, 1.0, 10, 128) == pytest.approx(0.0)
        assert schedule(1001, 1.1, 10, 128) == pytest.approx(0.0)
