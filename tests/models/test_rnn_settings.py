import pytest
from pydantic import ValidationError

from attent.models.rnn_settings import PRESETS, RnnSettings


def test_the_recipe_of_lium_has_its_published_sizes() -> None:
    lium = RnnSettings(preset="lium")
    assert (lium.embedding_width, lium.width, lium.memory_width) == (128, 256, 512)
    assert (lium.embedding_dropout, lium.context_dropout, lium.output_dropout) == (0.3, 0.5, 0.5)


@pytest.mark.parametrize("name", PRESETS)
def test_what_is_said_beside_a_preset_wins(name: str) -> None:
    settings = RnnSettings(preset=name, cell="lstm", attention="luong")
    assert (settings.cell, settings.attention, settings.width) == ("lstm", "luong", PRESETS[name]["width"])


@pytest.mark.parametrize(("attention", "score"), [("bahdanau", "additive"), ("luong", "general")])
def test_each_attention_has_its_papers_score(attention: str, score: str) -> None:
    assert RnnSettings(attention=attention).score_name == score
    assert RnnSettings(attention=attention, score="dot").score_name == "dot"


def test_the_memory_is_as_wide_as_the_state_unless_told() -> None:
    assert RnnSettings(width=10).memory_width == 10
    assert RnnSettings(width=10, encoder_width=7).memory_width == 14


def test_settings_survive_json_and_name_their_kind() -> None:
    settings = RnnSettings(preset="lium", attention="luong", score="concat", attention_hidden=3)
    assert RnnSettings.model_validate_json(settings.model_dump_json()) == settings
    assert RnnSettings(width=4).model_dump(exclude_unset=True) == {"kind": "rnn", "width": 4}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"preset": "liun"}, "did you mean 'lium'"),
        ({"cell": "elman"}, "'gru' or 'lstm'"),
        ({"attention": "self"}, "'none', 'bahdanau' or 'luong'"),
        ({"width": 7}, "width must be even unless encoder_width is given, got 7"),
        ({"attention": "none", "score": "dot"}, "need an attention"),
        ({"attention": "luong", "token_in_query": True}, 'token_in_query needs attention = "bahdanau", got "luong"'),
        ({"widht": 4}, "widht"),
        ({"kind": "transformer"}, "kind"),
    ],
)
def test_wrong_values_are_refused(values: dict[str, object], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        RnnSettings.model_validate(values)
