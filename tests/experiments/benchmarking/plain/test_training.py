from __future__ import annotations

import pytest
import torch
from torch import nn

from attent.data.batches import Batch
from attent.experiments.benchmarking.plain.training import update_of
from attent.training.settings import TrainingSettings

BATCH = Batch(*(torch.tensor(tokens) for tokens in ([[5]], [1], [[2, 4, 0]], [[4, 3, 0]], [2])), tokens=2)


class Table(nn.Module):
    """The logits are the parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.logits = nn.Parameter(torch.zeros(1, 3, 6))

    def forward(self, batch: Batch) -> torch.Tensor:
        return self.logits


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_one_update_of_adam_by_hand(precision) -> None:
    model = Table()
    settings = TrainingSettings(updates=1, batch_tokens=1, learning_rate=0.25, label_smoothing=0.0, clip=None)
    update_of(model, settings, precision)(BATCH)
    # the first step of Adam goes against each gradient's sign, as far as the rate; padding has no gradient
    expected = torch.full((3, 6), -0.25)
    expected[0, 4] = expected[1, 3] = 0.25
    expected[2] = 0
    torch.testing.assert_close(model.logits.detach()[0], expected, atol=1e-4, rtol=0)
