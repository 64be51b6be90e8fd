from __future__ import annotations

import pytest
from pydantic import ValidationError

from attent.explorer.explorer import HeadRequest, TileRequest, TranslateRequest


def test_the_mean_over_heads_is_named() -> None:
    assert HeadRequest.model_validate({"group": "cross", "layer": "1", "head": "mean"}).head is None
    assert HeadRequest.model_validate({"group": "cross", "layer": "1", "head": "3"}) == HeadRequest(
        group="cross", layer=1, head=3
    )


@pytest.mark.parametrize(
    "wrong", [{"head": "median"}, {"head": -1}, {"layer": 1.5}, {"level": -2}, {"how": "min"}, {"more": 1}]
)
def test_nothing_else_is_taken(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        TileRequest.model_validate({"group": "a", "layer": 0, "head": 0, "level": 0, "y": 0, "x": 0, **wrong})


def test_a_prefix_is_of_whole_numbers() -> None:
    assert TranslateRequest(text="a", prefix=[4, 5]).prefix == (4, 5)
    for wrong in ([4, -5], ["x"], "45", [None]):
        with pytest.raises(ValidationError):
            TranslateRequest(text="a", prefix=wrong)
