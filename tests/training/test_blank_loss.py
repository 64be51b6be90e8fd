import math

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from attent.data.batches import BatchSize, Sequences
from attent.data.blanks import BlankedLines
from attent.models.encoder import EncoderModel
from attent.models.encoder_settings import EncoderSettings
from attent.training.blank_loss import blank_loss, blanks_guessed

SIZE = 11
DATA = BlankedLines(Sequences([[4, 5, 6], [7], [8, 9, 10, 4, 5, 6, 7, 8, 9, 10, 4]]), SIZE, 0.3, keys=1)
SETTINGS = EncoderSettings(layers=1, width=8, feed_forward=7, heads=2, dropout=0.0)


def model() -> EncoderModel:
    return EncoderModel(SETTINGS, SIZE + 1, SIZE)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_loss_is_the_cross_entropy_of_the_blanks_alone(smoothing: float) -> None:
    made, batch = model(), DATA.drawn(np.arange(3), 1, 0)
    loss, width = blank_loss(made, batch, smoothing, "float32")
    logits = made.output(made(batch.lines, batch.lengths)).flatten(0, 1)[batch.places]
    torch.testing.assert_close(loss, F.cross_entropy(logits, batch.told, label_smoothing=smoothing))
    assert width == 8
    loss.backward()
    assert all(weight.grad is not None and weight.grad.isfinite().all() for weight in made.parameters())


def test_without_a_blank_there_is_nothing_to_learn() -> None:
    made = model()
    loss, _ = blank_loss(made, DATA.drawn(np.arange(3), 1, 0).silent(), 0.1, "float32")
    loss.backward()
    assert loss.item() == 0
    assert all(not weight.grad.any() for weight in made.parameters())


def test_a_model_that_knows_nothing_guesses_as_one_does() -> None:
    made = model().eval()
    torch.nn.init.zeros_(made.to_logits.weight)
    loss, right = blanks_guessed(made, DATA, BatchSize(2))
    assert loss == pytest.approx(math.log(SIZE), abs=1e-5)
    assert right == 0
