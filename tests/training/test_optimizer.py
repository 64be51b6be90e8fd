import pytest
import torch
from torch import nn

from attent.training.optimizer import optimizer_of, restore, state_of
from attent.training.settings import TrainingSettings


def settings(**values: object) -> TrainingSettings:
    return TrainingSettings.model_validate({"updates": 9, "batch_pairs": 8} | values)


def step(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad()
    model(torch.ones(2, 3)).square().sum().backward()
    optimizer.step()


@pytest.mark.parametrize(("kind", "expected"), [("adamw", torch.optim.AdamW), ("adam", torch.optim.Adam)])
def test_the_settings_name_it(kind: str, expected: type) -> None:
    assert type(optimizer_of(list(nn.Linear(3, 5).parameters()), settings(optimizer=kind))) is expected


def test_adamw_decays_weights_and_adam_adds_to_the_gradient() -> None:
    weights = {}
    for kind in ("adamw", "adam"):
        parameter = nn.Parameter(torch.full((1, 1), 2.0))
        parameter.grad = torch.zeros(1, 1)
        optimizer_of([parameter], settings(optimizer=kind, learning_rate=0.1, weight_decay=0.25)).step()
        weights[kind] = parameter.item()
    # 2 − 0.1 · 0.25 · 2, and a first step of one learning rate against the gradient 0.25 · 2
    assert weights == pytest.approx({"adamw": 1.95, "adam": 1.9})


def test_a_restored_one_goes_on_in_the_same_way() -> None:
    one = nn.Linear(3, 5)
    first = optimizer_of(list(one.parameters()), settings())
    assert state_of(first, dict(one.named_parameters())) == {}
    step(one, first)
    two = nn.Linear(3, 5)
    two.load_state_dict(one.state_dict())
    second = optimizer_of(list(two.parameters()), settings())
    state = state_of(first, dict(one.named_parameters()))
    assert set(state) == {f"{name}/{key}" for name in ("weight", "bias") for key in ("step", "exp_avg", "exp_avg_sq")}
    restore(second, dict(two.named_parameters()), state)
    for model, optimizer in ((one, first), (two, second)):
        step(model, optimizer)
    assert torch.equal(one.weight, two.weight)


def test_a_state_of_another_model_is_refused() -> None:
    model = nn.Linear(3, 5)
    with pytest.raises(KeyError, match="elsewhere"):
        restore(optimizer_of(list(model.parameters()), settings()), dict(model.named_parameters()), {"elsewhere/step": torch.zeros(())})


def test_a_weight_that_is_not_trained_has_no_state() -> None:
    model = nn.Linear(3, 5)
    model.bias.requires_grad_(False)
    optimizer = optimizer_of([model.weight], settings())
    step(model, optimizer)
    assert {name.partition("/")[0] for name in state_of(optimizer, dict(model.named_parameters()))} == {"weight"}
