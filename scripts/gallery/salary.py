"""Kernel regression of salary on grade point average, with its weights: the picture of examples/salary.py."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

from gallery.examples import example
from gallery.plates import Plate, Words


def plate() -> Plate:
    """Run the example and return its picture with its numbers."""
    with tempfile.TemporaryDirectory() as folder:
        values = example("salary", str(Path(folder) / "salary.png"))
    averages, weights, query = values["averages"], values["weights"], values["QUERY"]
    shares = {average: float(weights[np.isclose(averages, average)].sum()) for average in values["SHOWN"]}
    summary = ", ".join(f"{share:.3f} on {average}" for average, share in shares.items())
    return Plate(
        "salary",
        Words(
            "Grade point average to salary",
            "Top: salaries by grade average, shaded by weight, with the regression curve; bottom: the weight of each "
            "average for the query.",
            "`attent.AttentionRegressor` (Nadaraya and Watson) on the 400 made-up graduates of `examples/salary.py`, "
            "with a bandwidth learned by leave-one-out cross-validation.",
            f"For an average of {query}, it predicts {values['expected']:,.0f}, with a bandwidth of "
            f"{values['model'].bandwidth_[0]:.3f}. Nearby averages have the weight: {summary}. The averages are not "
            "equally frequent, so the total weights of the averages differ more than those of single graduates.",
            "Anything about graduates: they are made up. The typical leave-one-out error is "
            f"{values['model'].loo_score_ ** 0.5:,.0f}, so the curve is a mean, not a prediction for a person; and at "
            "either end, where all neighbors are on one side, such means are known to be biased toward the middle.",
        ),
        values["figure"],
    )
