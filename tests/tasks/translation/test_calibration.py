"""The file of a run's confidence, and its regressions."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from attent.errors import RunError
from attent.models.settings import TransformerSettings
from attent.runs.config import RunConfig
from attent.tasks.translation.calibration import (
    CONFIDENCE,
    SENTENCE,
    WORD,
    Calibration,
    Regression,
    area_under_curve,
    calibration_error,
    read_calibration,
)

CONFIG = RunConfig(model=TransformerSettings(), digests={"model.safetensors": "ab" * 32})
VALID = Calibration(
    weights="ab" * 32,
    label="equals the reference",
    pairs=300,
    sentence=Regression(bias=0.5, weights=dict.fromkeys(SENTENCE, -0.25)),
    word=Regression(bias=1e-3, weights=dict.fromkeys(WORD, 0.125)),
    mean=[0.0, 1.0],
    scale=[1.0, 2.0],
    coverage=0.125,
)


def test_the_file_holds_what_was_fitted(tmp_path: Path) -> None:
    assert read_calibration(tmp_path, CONFIG) is None
    VALID.write(tmp_path)
    assert read_calibration(tmp_path, CONFIG) == VALID
    # coefficients for earlier weights are none for these
    changed = CONFIG.model_copy(update={"digests": {"model.safetensors": "cd" * 32}})
    assert read_calibration(tmp_path, changed) is None


def table(**changes: object) -> str:
    return json.dumps(VALID.model_dump() | changes)


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        "null",
        "\xff",
        "[" * 10_000,
        table(format=2),
        table(extra=1),
        table(coverage=-1),
        table(coverage=float("nan")),
        table(mean=[float("inf"), 0]),
        table(scale=[1.0, 0.0]),
        table(scale=[1.0]),
        table(mean=["x", 0]),
        table(mean=[0.0] * 20_000, scale=[1.0] * 20_000),
        table(label="x" * 201),
        table(weights="x" * 65),
        table(pairs=0),
        table(sentence={"bias": 0, "weights": {}}),
        table(sentence={"bias": 1e7, "weights": dict.fromkeys(SENTENCE, 0)}),
        table(sentence={"bias": 0, "weights": dict.fromkeys(WORD, 0)}),
        table(word={"bias": 0, "weights": dict.fromkeys(WORD, float("nan"))}),
        table().replace("0.125", "1e400"),
        table().replace("300", "9" * 5000),
        " " * 2**20 + table(),
    ],
)
def test_a_damaged_file_is_refused_in_one_line(tmp_path: Path, content: str) -> None:
    (tmp_path / CONFIDENCE).write_bytes(content.encode("latin-1"))
    with pytest.raises(RunError, match=r"confidence\.json is damaged: ") as error:
        read_calibration(tmp_path, CONFIG)
    assert "\n" not in str(error.value) and len(str(error.value)) < 500


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / CONFIDENCE).mkdir()
    with pytest.raises(RunError, match="is damaged"):
        read_calibration(tmp_path, CONFIG)


def test_a_regression_finds_the_coefficients_of_its_data() -> None:
    draw = np.random.default_rng(0)
    features = np.column_stack((draw.normal(3, 2, 20_000), draw.normal(-1, 0.5, 20_000), np.ones(20_000)))
    odds = 0.5 - 0.75 * features[:, 0] + 2 * features[:, 1]
    labels = draw.random(20_000) < 1 / (1 + np.exp(-odds))
    fitted = Regression.fit(("x", "y", "constant"), features, labels)
    assert [*fitted.weights.values()] == pytest.approx([-0.75, 2, 0], abs=0.08)
    values = fitted.probabilities(features)
    assert values.mean() == pytest.approx(labels.mean(), abs=1e-3)
    assert calibration_error(values, labels) < 0.01
    # separable data has finite coefficients, and no probability is 0 or 1
    certain = Regression.fit(("x",), np.arange(60.0)[:, None], np.arange(60) > 30)
    assert 0 < certain.probabilities(np.array([[-1e9], [1e9]])).min() < 1e-4
    by_hand = Regression(bias=1.0, weights={"x": 2.0, "y": -1.0})
    assert by_hand.probabilities(np.array([[0.5, 3.0]])) == pytest.approx([1 / (1 + math.e)])


def test_figures_by_hand() -> None:
    labels = np.array([False, False, True, True])
    assert area_under_curve(np.array([1.0, 2.0, 3.0, 4.0]), labels) == 1
    assert area_under_curve(np.array([4.0, 3.0, 2.0, 1.0]), labels) == 0
    # of four comparisons, two are won and one is a tie
    assert area_under_curve(np.array([1.0, 3.0, 3.0, 2.0]), labels) == (2 + 0.5) / 4
    # the bins [0.2, 0.3) and [0.9, 1]: |1 - 0.5| and |1 - 1.9| of four
    assert calibration_error(np.array([0.25, 0.25, 0.95, 0.95]), np.array([True, False, True, False])) == pytest.approx(
        (0.5 + 0.9) / 4
    )
