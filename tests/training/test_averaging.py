import pytest
import torch
from torch import nn

from attent.training.optimizer import WeightAverage
from attent.training.settings import TrainingSettings


def settings(**values: object) -> TrainingSettings:
    return TrainingSettings.model_validate({"updates": 9, "batch_pairs": 8} | values)


def run(average: WeightAverage, weights: list[float]) -> None:
    for update, weight in enumerate(weights, start=1):
        with torch.no_grad():
            average.parameters[0].fill_(weight)
        average.add(update)


def test_ema_worked_by_hand() -> None:
    parameter = nn.Parameter(torch.zeros(2))
    average = WeightAverage([parameter], settings(averaging="ema", ema_decay=0.2))
    run(average, [1.0, 2.0])
    # d = min(0.2, 2/11) = 2/11, then min(0.2, 3/12) = 0.2, from a start of 0
    average.apply()
    assert parameter.tolist() == pytest.approx([0.2 * (9 / 11) + 0.8 * 2.0] * 2)


def test_last_is_the_mean_of_those_set_aside() -> None:
    parameter = nn.Parameter(torch.zeros(2))
    average = WeightAverage([parameter], settings(averaging="last", last=2, last_every=3))
    run(average, [float(update) for update in range(1, 11)])
    average.apply()
    assert parameter.tolist() == [(6 + 9) / 2] * 2
    # without any set aside
    parameter = nn.Parameter(torch.ones(2))
    WeightAverage([parameter], settings(averaging="last")).apply()
    assert parameter.tolist() == [1.0, 1.0]


@pytest.mark.parametrize("averaging", ["none", "ema", "last"])
def test_a_block_gives_the_weights_back(averaging: str) -> None:
    parameter = nn.Parameter(torch.zeros(2))
    average = WeightAverage([parameter], settings(averaging=averaging, last_every=1))
    run(average, [1.0, 2.0, 3.0])
    with average.average_parameters():
        assert parameter.tolist() == [3.0, 3.0] if averaging == "none" else parameter[0].item() < 3
    assert parameter.tolist() == [3.0, 3.0]
