import pytest
from pydantic import BaseModel, ConfigDict, ValidationError

from attent.models.settings import (
    SETTINGS,
    DecoderSettings,
    EncoderSettings,
    ModelSettings,
    RnnSettings,
    TransformerSettings,
    keys_of,
)


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
def test_the_kind_decides_and_a_transformer_is_meant_where_none_is_named(
    values: dict[str, object], settings: BaseModel
) -> None:
    whole = Whole.model_validate({"model": values})
    assert whole.model == settings
    assert Whole(model=settings) == whole
    assert Whole.model_validate_json(whole.model_dump_json()) == whole


@pytest.mark.parametrize("kind", SETTINGS)
def test_what_is_wrong_is_found_under_its_own_name(kind: str) -> None:
    with pytest.raises(ValidationError) as caught:
        Whole.model_validate({"model": {"kind": kind, "widht": 3}})
    assert [(error["loc"], error["type"]) for error in caught.value.errors()] == [
        (("model", "widht"), "extra_forbidden")
    ]


@pytest.mark.parametrize(
    ("model", "message"), [({"kind": "rrn"}, "did you mean 'rnn'"), ({"kind": ["rnn"]}, "unknown kind"), (3, "model")]
)
def test_what_is_no_model_is_refused(model: object, message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        Whole.model_validate({"model": model})


@pytest.mark.parametrize(
    ("kind", "values", "message"),
    [
        *((kind, {"preset": "tinny"}, "did you mean 'tiny'") for kind in ("transformer", "encoder", "decoder")),
        *((kind, {"heads": 3}, "heads must divide width = 128, got 3") for kind in ("transformer", "encoder")),
        ("transformer", {"key_value_heads": 3}, "key_value_heads must divide heads = 4, got 3"),
        ("transformer", {"position": "rotary", "width": 100}, "heads = 4 have 25 each: set another number of heads"),
        ("transformer", {"norm": "middle"}, "'post' or 'pre'"),
        ("encoder", {"decoder_layers": 2}, "decoder_layers"),
        ("encoder", {"input": "pictures"}, "'tokens' or 'vectors'"),
        ("rnn", {"preset": "liun"}, "did you mean 'lium'"),
        ("rnn", {"cell": "elman"}, "'gru' or 'lstm'"),
        ("rnn", {"attention": "self"}, "'none', 'bahdanau' or 'luong'"),
        ("rnn", {"width": 7}, "width must be even unless encoder_width is given, got 7"),
        ("rnn", {"attention": "none", "score": "dot"}, "need an attention"),
        ("rnn", {"attention": "luong", "token_in_query": True}, 'token_in_query needs attention = "bahdanau"'),
        ("rnn", {"kind": "transformer"}, "kind"),
        ("rnn", {"local": "m"}, 'local needs attention = "luong", got "bahdanau"'),
        *(
            ("rnn", {"scaled_score": True} | values, "scaled_score needs an attention with the score general")
            for values in ({"attention": "bahdanau"}, {"attention": "luong", "score": "dot"}, {"attention": "none"})
        ),
    ],
)
def test_wrong_values_are_refused(kind: str, values: dict[str, object], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        SETTINGS[kind].model_validate(values)


@pytest.mark.parametrize(
    ("name", "layers", "width", "feed_forward", "heads"),
    [("tiny", 4, 128, 256, 4), ("small", 3, 256, 1024, 4), ("base", 6, 512, 2048, 8)],
)
def test_presets_have_the_published_sizes(name: str, layers: int, width: int, feed_forward: int, heads: int) -> None:
    full = TransformerSettings(preset=name)
    assert (full.encoder_layers, full.decoder_layers) == (layers, layers)
    for part in (full, EncoderSettings(preset=name), DecoderSettings(preset=name)):
        assert (part.width, part.feed_forward, part.heads) == (width, feed_forward, heads)
    assert EncoderSettings(preset=name).encoder_layers == DecoderSettings(preset=name).layers == layers
    changed = TransformerSettings(preset=name, heads=1)
    assert (changed.width, changed.heads) == (width, 1)


def test_rnns_have_their_papers_scores_and_sizes() -> None:
    assert RnnSettings(attention="bahdanau").score_name == "additive"
    assert RnnSettings(attention="luong").score_name == "general"
    assert RnnSettings(attention="luong", score="dot").score_name == "dot"
    assert RnnSettings(width=10).memory_width == 10
    assert RnnSettings(width=10, encoder_width=7).memory_width == 14
    assert RnnSettings(width=10, sentences="vectors").memory_width == 10
    assert RnnSettings(width=10, sentences="words").memory_width == 20
    lium = RnnSettings(preset="lium", cell="lstm", attention="luong")
    assert (lium.embedding_width, lium.width, lium.memory_width) == (128, 256, 512)
    assert (lium.embedding_dropout, lium.context_dropout, lium.output_dropout) == (0.3, 0.5, 0.5)
    # what is set beside a preset wins
    assert (lium.cell, lium.attention) == ("lstm", "luong")


def test_what_is_written_names_the_kind_and_a_scale_and_sentences_only_where_they_are_set() -> None:
    assert SETTINGS["rnn"].model_validate({"width": 8}).model_dump(exclude_unset=True) == {"kind": "rnn", "width": 8}
    settings = RnnSettings(attention="luong", scaled_score=True)
    assert RnnSettings.model_validate(settings.model_dump()) == settings
    assert (
        not {"scaled_score", "sentences", "sentence_ends"}
        & RnnSettings(attention="luong").model_dump(mode="json").keys()
    )
    settings = RnnSettings(sentences="words", sentence_ends=(5, 9))
    assert RnnSettings.model_validate_json(settings.model_dump_json()) == settings
    assert "heads" in keys_of({}) and "cell" not in keys_of({})
    assert "cell" in keys_of({"kind": "rnn"}) and "preset" in keys_of({"kind": "rnn"})
