import math
from unittest.mock import patch

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from attent.data.batches import BatchSize, Sequences
from attent.data.masked_lm import BlankedLines
from attent.models.encoder import EncoderModel
from attent.models.encoder_settings import EncoderSettings
from attent.training import meter
from attent.training.distributed import joined, silent
from attent.training.loop import train
from attent.training.masked_lm_loss import blank_loss, blanks_guessed
from attent.training.settings import TrainingSettings

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


def go(**values: object) -> tuple[dict[int, float], list[float]]:
    """Learn some lines together with whichever processes there are: the losses by update, and the weights."""
    torch.manual_seed(5)
    made, losses = model(), dict[int, float]()
    least = {"updates": 12, "batch_pairs": 3, "warmup": 2, "precision": "float32", "threads": 1, "learning_rate": 1e-2, "epsilon": 1e-4}
    with joined() as processes, patch.object(meter, "INTERVAL", 0.0):
        train(
            made,
            BlankedLines(Sequences([[4, 5, 6, 7, 8, 9, 10][: 1 + length % 7] for length in range(11)]), SIZE, 0.3, keys=1),
            TrainingSettings.model_validate(least | values),
            loss=blank_loss,
            log=lambda record: losses.update({record["update"]: record["loss"]} if "loss" in record else {}),
            progress=silent(),
            processes=processes,
        )
    return losses, torch.cat([weight.detach().flatten() for weight in made.parameters()]).tolist()


@pytest.mark.parametrize("sharded", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_processes_learn_together_what_one_alone_would(together, sharded: bool) -> None:
    """The last batch of each epoch has two lines, so that one of three processes has none."""
    losses, weights = go()
    (found, ours), *_ = together(3, go_sharded if sharded else go)
    assert list(found) == list(losses) == list(range(1, 13))
    assert found == pytest.approx(losses, abs=1e-5)
    assert ours == pytest.approx(weights, abs=1e-4)


def go_sharded() -> tuple[dict[int, float], list[float]]:
    return go(sharded=True)
