import pytest
import torch

from attent.attention.capture.watch import watch
from attent.errors import ShapeError
from attent.models.encoder import EncoderModel
from attent.models.settings import EncoderSettings

INPUTS, OUTPUTS = 13, 11
LENGTHS = torch.tensor([5, 2, 3])


def make_model(**values: object) -> EncoderModel:
    base_settings = {"layers": 2, "width": 8, "feed_forward": 7, "heads": 2, "dropout": 0.0}
    return EncoderModel(EncoderSettings.model_validate(base_settings | values), INPUTS, OUTPUTS).eval()


def sequence(kind: str) -> torch.Tensor:
    return torch.randint(1, INPUTS, (3, 5)) if kind == "tokens" else torch.randn(3, 5, INPUTS)


@pytest.mark.parametrize(
    ("kind", "cls", "position"),
    [
        ("tokens", False, "sinusoidal"),
        ("tokens", True, "learned"),
        ("vectors", True, "sinusoidal"),
        ("vectors", False, "learned"),
        ("tokens", True, "rotary"),
        ("vectors", True, "none"),
    ],
)
def test_padding_changes_nothing(kind: str, cls: bool, position: str) -> None:
    model, inputs = make_model(input=kind, cls=cls, position=position), sequence(kind)
    result = model(inputs, LENGTHS)
    assert result.shape == (3, 5 + cls, 8)
    assert model.output(result[:, 0]).shape == (3, OUTPUTS)
    for row, length in enumerate(LENGTHS.tolist()):
        single = model(inputs[row : row + 1, :length], LENGTHS[row : row + 1])
        torch.testing.assert_close(result[row, : length + cls], single[0], rtol=1e-4, atol=1e-5)


def test_the_vector_in_front_stands_at_the_first_position_and_sees_all() -> None:
    model, inputs = make_model(input="vectors", cls=True, position="learned"), sequence("vectors")
    with watch(model) as captured:
        model(inputs, LENGTHS)
    weights = captured["encoder.layers.0.self_attention"][1, 0]
    assert weights.shape == (6, 6)
    # two of the five are real, and the one in front
    assert (weights[0, :3] > 0).all()
    assert weights[:, 3:].sum() == 0
    full = torch.tensor([5, 5, 5])
    assert not torch.allclose(model(inputs.flip(1), full)[:, 0], model(inputs, full)[:, 0])
    # without positions the order does not matter
    model = make_model(input="vectors", cls=True, position="none")
    torch.testing.assert_close(model(inputs.flip(1), full)[:, 0], model(inputs, full)[:, 0], rtol=1e-4, atol=1e-5)


def test_positions_have_an_end() -> None:
    model = make_model(position="learned", maximum_length=9)
    assert model.longest == 9
    assert make_model(position="learned", maximum_length=9, cls=True).longest == 8
    assert make_model().longest is None


def test_what_is_no_sequence_is_refused() -> None:
    with pytest.raises(
        ShapeError, match=r"a sequence must be \(B, T\) and lengths \(B,\), got \(3, 5, 13\) and \(3,\)"
    ):
        make_model()(sequence("vectors"), LENGTHS)
    with pytest.raises(ShapeError, match=r"a sequence must be \(B, T, D\) and lengths"):
        make_model(input="vectors")(sequence("tokens"), LENGTHS)
    with pytest.raises(ShapeError, match="vectors must have 13 numbers each, got 12"):
        make_model(input="vectors")(sequence("vectors")[..., :12], LENGTHS)


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_features_by_layer_are_those_of_fewer_layers(norm: str) -> None:
    model, tokens = make_model(norm=norm, position="learned"), sequence("tokens")
    embedded, first, last = model.by_layer(tokens, LENGTHS)
    torch.testing.assert_close(last, model(tokens, LENGTHS))
    assert model.positions is not None
    torch.testing.assert_close(embedded, model.positions(model.embedding(tokens)))
    del model.encoder.layers[1]
    torch.testing.assert_close(model.encoder.norm(first), model(tokens, LENGTHS))
