import pytest
import torch

from attent.errors import AttentError
from attent.training import meter
from attent.training.meter import Meter

CPU = torch.device("cpu")


def test_a_record_is_the_mean_since_the_last() -> None:
    made = Meter(CPU)
    made.add(torch.tensor(9.0), 5)
    assert made.record(1, 0.1)["loss"] == 9.0
    made.add(torch.tensor(1.0), 5)
    made.add(torch.tensor(2.0), 7)
    record = made.record(3, 0.1)
    assert (record["update"], record["loss"], record["learning_rate"]) == (3, 1.5, 0.1)
    assert record["tokens_per_second"] > 0
    assert made.seconds >= record["seconds"] > 0


def test_a_loss_keeps_no_graph() -> None:
    made = Meter(CPU)
    made.add(torch.tensor(1.0, requires_grad=True) * 2, 3)
    assert not made.losses.requires_grad


def test_a_record_is_due_after_the_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meter, "INTERVAL", 0.0)
    made = Meter(CPU)
    assert not made.due
    made.add(torch.tensor(1.0), 3)
    assert made.due


def test_a_loss_that_is_not_finite_ends_it() -> None:
    made = Meter(CPU)
    made.add(torch.tensor(float("nan")), 3)
    with pytest.raises(AttentError, match="no longer finite at update 7"):
        made.record(7, 0.1)
