import pytest
import torch
from torch import nn

from attent.attention.positions.learned import Learned
from attent.attention.scores import Location, ScaledDot
from attent.layers.embeddings import TokenEmbedding
from attent.models.build import build
from attent.models.model import Model
from attent.models.settings import SETTINGS, TransformerSettings
from attent.models.transformer import Transformer, copy_by_depth
from attent.ops import packed_linear


class Doubled(Model):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 5)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        return packed_linear.linear(self.layer, features)


def test_what_was_laid_out_of_the_weights_is_forgotten_between_training_and_evaluation() -> None:
    """Changes through `.data` are not counted by PyTorch.

    A stale layout would go on computing with the old weights.
    """
    model, features = Doubled().eval(), torch.randn(2, 3)
    with torch.inference_mode():
        model(features)
        model.train()
        model.layer.weight.data.mul_(2)
        model.layer.bias.data.zero_()
        torch.testing.assert_close(model.eval()(features), features @ model.layer.weight.T)


def test_the_least_limit_counts() -> None:
    model = Doubled()
    assert model.longest is None
    model.positions = nn.ModuleList((Learned(3, 9), Learned(3, 7)))
    assert model.longest == 7
    model.scores = nn.ModuleList((Location(3, 5), ScaledDot()))
    assert model.longest == 5


def test_what_was_learnt_between_two_searches_is_used() -> None:
    settings = TransformerSettings(encoder_layers=1, decoder_layers=1, width=8, feed_forward=5, heads=2)
    model, source, lengths = Transformer(settings, 11, 11), torch.randint(4, 11, (3, 7)), torch.full((3,), 7)
    tokens = torch.tensor([2, 2, 2])
    optimizer = torch.optim.AdamW(model.parameters(), 0.1, fused=True)

    def logits() -> torch.Tensor:
        return model.output(model.step(model.start(model.encode(source, lengths)), tokens)[0])

    for _ in range(2):
        model.eval()
        with torch.inference_mode():
            actual = logits()
        with torch.no_grad():
            torch.testing.assert_close(actual, logits())
        model.train()
        logits().logsumexp(-1).sum().backward()
        optimizer.step()


@pytest.mark.parametrize(
    ("kind", "share"), [("transformer", "none"), ("transformer", "all"), ("rnn", "target"), ("rnn", "all")]
)
def test_embeddings_are_those_that_tokens_go_through(kind: str, share: str) -> None:
    values = {"kind": kind, "width": 8, "share_embeddings": share}
    model = build(SETTINGS[kind].model_validate(values), 11, 11)
    source, target = model.embeddings["source"], model.embeddings["target"]
    assert (source is target) == (share == "all")
    assert (target.weight is model.to_logits.weight) == (share != "none")
    assert {id(item) for item in (source, target)} == {
        id(module) for module in model.modules() if isinstance(module, TokenEmbedding)
    }


def make_model(encoder: int, decoder: int, seed: int) -> Transformer:
    torch.manual_seed(seed)
    settings = TransformerSettings(
        encoder_layers=encoder, decoder_layers=decoder, width=8, feed_forward=5, heads=2, share_embeddings="all"
    )
    model = Transformer(settings, 9, 9).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return model


@pytest.mark.parametrize(
    ("encoder", "decoder", "encoder_from", "decoder_from"),
    [(6, 1, [0, 1, 1, 2, 3, 3], [2]), (4, 4, [0, 1, 2, 3], [0, 1, 2, 3]), (2, 3, [1, 3], [0, 2, 3])],
)
def test_layers_come_from_the_same_relative_depth(
    encoder: int, decoder: int, encoder_from: list[int], decoder_from: list[int]
) -> None:
    start, model = make_model(4, 4, 1), make_model(encoder, decoder, 2)
    copy_by_depth(model, start)
    for actual, expected, depths in (
        (model.encoder, start.encoder, encoder_from),
        (model.decoder, start.decoder, decoder_from),
    ):
        for layer, depth in zip(actual.layers, depths, strict=True):
            torch.testing.assert_close(layer.state_dict(), expected.layers[depth].state_dict(), rtol=0, atol=0)
    assert model.source_embedding.tokens.weight is model.to_logits.weight
    tensors = start.state_dict()
    for name in ("source_embedding.tokens.weight", "to_logits.weight"):
        assert torch.equal(model.state_dict()[name], tensors[name])
    if (encoder, decoder) == (4, 4):
        torch.testing.assert_close(model.state_dict(), tensors, rtol=0, atol=0)
