"""Kernel regression of salary on grade point average, with its weights: the picture of examples/salary.py."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

from gallery.examples import example
from gallery.plates import Plate, Words


def plate() -> Plate:
    """Run the example, and return its picture with its numbers."""
    with tempfile.TemporaryDirectory() as folder:
        values = example("salary", str(Path(folder) / "salary.png"))
    averages, weights, query = values["averages"], values["weights"], values["QUERY"]
    shares = {average: float(weights[np.isclose(averages, average)].sum()) for average in values["SHOWN"]}
    summary = ", ".join(f"{share:.3f} on {average}" for average, share in shares.items())
    return Plate(
        "salary",
        Words(
            "Grade point average to salary",
            "Above salaries over averages, shaded by their weight, with the regression's curve; below the weight of "
            "each average for the query.",
            "`attent.AttentionRegressor` (Nadaraya and Watson) on the 400 made-up graduates of `examples/salary.py`, "
            "its bandwidth learnt by leaving one out.",
            f"For an average of {query} it expects {values['expected']:,.0f}, with a bandwidth of "
            f"{values['model'].bandwidth_[0]:.3f}. The weights lie on those nearby: {summary}. There are not equally "
            "many graduates of each average, so the weight of all of one differs more than that of each.",
            "Anything about graduates: they are made up. The typical error, left out one at a time, is "
            f"{values['model'].loo_score_ ** 0.5:,.0f}, so the curve is a mean, not a prediction for a person; and at "
            "either end, where all neighbors stand on one side, such means are known to be drawn towards the middle.",
        ),
        values["figure"],
    )
