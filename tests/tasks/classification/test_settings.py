from typing import Any

import pytest
from pydantic import ValidationError

from attent.tasks.classification.settings import ImagesSettings, LabelledSettings


@pytest.mark.parametrize(
    ("value", "size"), [(32, (32, 32)), ("32", (32, 32)), ("24x32", (24, 32)), ([24, 32], (24, 32)), (None, None)]
)
def test_a_size_is_height_and_width(value: Any, size: tuple[int, int] | None) -> None:
    assert ImagesSettings(source="digits", size=value).size == size


@pytest.mark.parametrize("wrong", ["a", "1x2x3", 0, "-3", [1, 2, 3], 1.5])
def test_other_sizes_are_refused(wrong: Any) -> None:
    says = "must be N or HxW, such as 32 or 24x32, got" if wrong in ("a", "-3") else "size"
    with pytest.raises(ValidationError, match=says):
        ImagesSettings(source="digits", size=wrong)


def test_some_examples_are_left_to_train_on() -> None:
    with pytest.raises(ValidationError, match=r"validation \+ test must leave examples to train on, got 0\.5 \+ 0\.5"):
        ImagesSettings(source="digits", validation=0.5, test=0.5)


def test_settings_know_what_pictures_alone_have() -> None:
    settings = ImagesSettings(source="digits", seed=3, turn=5, size=8)
    assert settings.picture_settings == ["size", "turn"]
    assert (settings.augmentation.turn, settings.augmentation.seed) == (5, 3)


def test_standard_input_is_read_once() -> None:
    with pytest.raises(ValidationError, match="standard input"):
        LabelledSettings(train="-", test="-")
    assert LabelledSettings(train="-").size is None
    assert LabelledSettings(train="a.tsv", vocabulary=300).size == 300
