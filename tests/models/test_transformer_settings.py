import pytest
from pydantic import ValidationError

from attent.models.transformer_settings import PRESETS, TransformerSettings


def test_presets_have_the_published_sizes() -> None:
    sizes = {name: TransformerSettings(preset=name) for name in PRESETS}
    assert {name: (s.encoder_layers, s.decoder_layers, s.width, s.feed_forward, s.heads) for name, s in sizes.items()} == {
        "tiny": (4, 4, 128, 256, 4),
        "small": (3, 3, 256, 1024, 4),
        "base": (6, 6, 512, 2048, 8),
    }


def test_what_is_said_beside_a_preset_wins() -> None:
    settings = TransformerSettings(preset="base", heads=4)
    assert (settings.width, settings.heads) == (512, 4)


def test_settings_survive_json() -> None:
    settings = TransformerSettings(preset="small", position="alibi", key_value_heads=2)
    assert TransformerSettings.model_validate_json(settings.model_dump_json()) == settings


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"preset": "tinny"}, "did you mean 'tiny'"),
        ({"heads": 3}, "heads must divide width = 128, got 3"),
        ({"key_value_heads": 3}, "key_value_heads must divide heads = 4, got 3"),
        ({"position": "rotary", "width": 100}, "heads = 4 have 25 each: set heads = 5 "),
        ({"position": "rotary", "width": 300, "key_value_heads": 2}, "heads = 4 have 75 each: set heads = 6 "),
        ({"position": "rotary", "width": 7, "heads": 1}, "heads = 1 have 7 each: set another width, or another position "),
        ({"widht": 3}, "widht"),
        ({"norm": "middle"}, "'post' or 'pre'"),
    ],
)
def test_wrong_values_are_refused(values: dict[str, object], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        TransformerSettings.model_validate(values)
