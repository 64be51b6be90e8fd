from __future__ import annotations

import pytest
import torch

from attent.experiments.comparing.gradients import layers, measure, reaching


def test_one_step_of_a_linear_recurrence_by_hand() -> None:
    # y_T = Σ 0.5^d x_{T−d}
    def layer(inputs: torch.Tensor) -> torch.Tensor:
        powers = 0.5 ** torch.arange(inputs.shape[1] - 1, -1, -1.0)
        return (inputs * powers[:, None]).sum(1, keepdim=True)

    torch.testing.assert_close(reaching(layer, width=3, length=4, sequences=2), torch.tensor([1.0, 0.5, 0.25, 0.125], dtype=torch.float64))


def test_recurrent_gradients_fade_and_those_of_attention_do_not() -> None:
    torch.manual_seed(0)
    found = {name: reaching(layer, width=16, length=40, sequences=8) for name, layer in layers(16).items()}
    assert list(found) == ["tanh RNN", "GRU", "LSTM", "LSTM, forget bias 1", "attention, causal"]
    for name in ("tanh RNN", "GRU", "LSTM"):
        assert found[name][30] < 1e-3 * found[name][0]
    assert found["LSTM, forget bias 1"][30] > 10 * found["LSTM"][30]
    assert found["attention, causal"][30] > 0.05 * found["attention, causal"][1]


def test_the_figure_is_the_same_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("attent.experiments.comparing.gradients.reaching", lambda layer: reaching(layer, length=9, sequences=2))
    assert measure().values() == measure().values()
