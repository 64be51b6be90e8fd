import torch
from torch import nn

from attent.attention.scores import Location
from attent.models.model import Model
from attent.ops import packed_linear


class Doubled(Model):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 5)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        return packed_linear.linear(self.layer, features)


def test_what_was_laid_out_of_the_weights_is_forgotten_between_training_and_evaluation() -> None:
    """Changes through `.data` are not counted by PyTorch, and a stale layout would go on computing with the old weights."""
    model, features = Doubled().eval(), torch.randn(2, 3)
    with torch.inference_mode():
        model(features)
        model.train()
        model.layer.weight.data.mul_(2)
        model.layer.bias.data.zero_()
        torch.testing.assert_close(model.eval()(features), features @ model.layer.weight.T)


def test_a_model_need_not_say_its_units() -> None:
    assert Doubled().units == ()


def test_the_least_limit_counts() -> None:
    model = Doubled()
    assert model.limit() is None
    assert model.limit(None, 9, 7) == 7
    model.score = Location(3, 5)
    assert model.limit() == model.limit(None, 9) == 5
