import pytest
from pydantic import ValidationError

from attent.models.encoder_settings import EncoderSettings
from attent.models.transformer_settings import PRESETS


def test_presets_are_the_encoders_of_published_sizes() -> None:
    sizes = {name: EncoderSettings(preset=name) for name in PRESETS}
    assert {name: (s.layers, s.width, s.feed_forward, s.heads) for name, s in sizes.items()} == {
        "tiny": (4, 128, 256, 4),
        "small": (3, 256, 1024, 4),
        "base": (6, 512, 2048, 8),
    }
    assert EncoderSettings(preset="base", layers=2).layers == EncoderSettings(layers=2).encoder_layers == 2


def test_what_was_set_names_its_kind() -> None:
    assert EncoderSettings.model_validate({"width": 8}).model_dump(exclude_unset=True) == {"kind": "encoder", "width": 8}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"preset": "tinny"}, "did you mean 'tiny'"),
        ({"heads": 3}, "heads must divide width = 128, got 3"),
        ({"decoder_layers": 2}, "decoder_layers"),
        ({"input": "pictures"}, "'tokens' or 'vectors'"),
    ],
)
def test_wrong_values_are_refused(values: dict[str, object], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        EncoderSettings.model_validate(values)
