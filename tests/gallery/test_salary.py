from __future__ import annotations

import pytest
from gallery import salary


def test_the_plate_is_the_example_s_picture_and_its_numbers() -> None:
    pytest.importorskip("sklearn", reason="scikit-learn is not installed")
    plate = salary.plate()
    assert len(plate.drawing.axes) == 3
    assert "For an average of 3.5, it predicts 37,2" in plate.words.seen
    assert "0.000 on 3.0" in plate.words.seen
