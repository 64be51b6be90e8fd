import pytest
import torch
from torch.nn import functional as F

from attent.data.labelled.examples import LabelledBatch
from attent.models.encoder import EncoderModel
from attent.models.encoder_settings import EncoderSettings
from attent.training.class_loss import class_loss

SETTINGS = EncoderSettings(
    input="vectors", cls=True, layers=1, width=8, feed_forward=7, heads=2, dropout=0.0, position="none", output_bias=True
)


def batch(count: int = 5) -> LabelledBatch:
    lengths = torch.tensor([3, 1, 7, 2, 5])[:count]
    return LabelledBatch(torch.randn(5, 7, 3)[:count], lengths, torch.tensor([0, 1, 3, 3, 2])[:count], count)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_it_is_the_cross_entropy_of_the_vector_in_front(smoothing: float) -> None:
    model, some = EncoderModel(SETTINGS, 3, 4), batch()
    loss, width = class_loss(model, some, smoothing, "float32")
    logits = model.output(model(some.sequence, some.lengths)[:, 0])
    torch.testing.assert_close(loss, F.cross_entropy(logits, some.classes, label_smoothing=smoothing))
    assert width == 8


def test_what_is_behind_the_end_does_not_count() -> None:
    model, some = EncoderModel(SETTINGS, 3, 4), batch()
    before = class_loss(model, some, 0.0, "float32")[0]
    some.sequence[1, 1:] = 1e3
    torch.testing.assert_close(class_loss(model, some, 0.0, "float32")[0], before)


def test_the_gradient_reaches_the_vector_in_front_and_the_projection() -> None:
    model = EncoderModel(SETTINGS, 3, 4).train()
    class_loss(model, batch(), 0.1, "float32")[0].backward()
    assert all(
        parameter.grad is not None and parameter.grad.abs().sum() > 0 for parameter in (model.cls, model.embedding.projection.weight)
    )
