from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from gallery import digits, runs


def test_the_same_map_has_all_of_its_weight_in_common() -> None:
    first, second = torch.tensor([0.5, 0.5, 0.0]), torch.tensor([0.0, 0.1, 0.1])
    same = dict.fromkeys(digits.KINDS, first)
    assert digits._common([same, same]) == [1.0, 1.0]
    assert digits._common([same, {"mean": second, "rolled out": first}]) == pytest.approx([0.5, 1.0])


def test_weight_on_dark_patches_is_told() -> None:
    picture = np.zeros((4, 4, 1), np.uint8)
    picture[:2, :2] = 200
    assert digits._dark(picture, torch.tensor([0.2, 0.1, 0.1, 0.0]), (2, 2)) == pytest.approx(0.5)


@pytest.mark.slow
def test_a_run_of_a_few_updates_is_drawn(tmp_path: Path) -> None:
    pytest.importorskip("sklearn", reason="scikit-learn is not installed")
    plate = digits.plate(runs.run(runs.DIGITS, tmp_path, updates=2))
    assert len([axes for axes in plate.drawing.axes if axes.images]) >= 3 * 11
    assert "on the 359 test images" in plate.words.ran
