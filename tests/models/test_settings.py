import pytest
from pydantic import BaseModel, ConfigDict, ValidationError

from attent.models.rnn import RNN
from attent.models.rnn_settings import RnnSettings
from attent.models.settings import KINDS, ModelSettings, build, keys_of, kind_of
from attent.models.transformer import Transformer
from attent.models.transformer_settings import TransformerSettings


class Whole(BaseModel):
    model_config = ConfigDict(extra="forbid")

    model: ModelSettings


@pytest.mark.parametrize(
    ("values", "settings"),
    [
        ({}, TransformerSettings()),
        ({"kind": "transformer", "preset": "small"}, TransformerSettings(preset="small")),
        ({"kind": "rnn"}, RnnSettings()),
        ({"kind": "rnn", "preset": "lium", "cell": "lstm"}, RnnSettings(preset="lium", cell="lstm")),
    ],
)
def test_the_kind_decides_and_a_transformer_is_meant_where_none_is_named(values: dict[str, object], settings: BaseModel) -> None:
    whole = Whole.model_validate({"model": values})
    assert whole.model == settings
    assert Whole(model=settings) == whole
    assert Whole.model_validate_json(whole.model_dump_json()) == whole


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_wrong_is_found_under_its_own_name(kind: str) -> None:
    with pytest.raises(ValidationError) as caught:
        Whole.model_validate({"model": {"kind": kind, "widht": 3}})
    assert [(error["loc"], error["type"]) for error in caught.value.errors()] == [(("model", "widht"), "extra_forbidden")]


@pytest.mark.parametrize(("model", "message"), [({"kind": "rrn"}, "did you mean 'rnn'"), ({"kind": ["rnn"]}, "unknown kind"), (3, "model")])
def test_what_is_no_model_is_refused(model: object, message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        Whole.model_validate({"model": model})


def test_each_kind_has_its_keys() -> None:
    assert "heads" in keys_of({}) and "cell" not in keys_of({})
    assert "cell" in keys_of({"kind": "rnn"}) and "preset" in keys_of({"kind": "rnn"})
    assert kind_of({}) == "transformer"


def test_settings_become_their_model() -> None:
    assert type(build(TransformerSettings(width=8, feed_forward=5), 13, 11)) is Transformer
    model = build(RnnSettings(width=8), 13, 11)
    assert type(model) is RNN
    assert model.to_logits.weight.shape == (11, 128)
