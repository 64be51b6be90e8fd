"""What a graduate is expected to earn, and whose salaries say so: examples/salary.py, which draws it itself."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

from gallery.examples import example
from gallery.plates import Plate, Words


def plate() -> Plate:
    """The example's own picture, and its numbers."""
    with tempfile.TemporaryDirectory() as folder:
        found = example("salary", str(Path(folder) / "salary.png"))
    averages, weights, query = found["averages"], found["weights"], found["QUERY"]
    shares = {average: float(weights[np.isclose(averages, average)].sum()) for average in found["SHOWN"]}
    said = ", ".join(f"{share:.3f} on {average}" for average, share in shares.items())
    return Plate(
        "salary",
        Words(
            "Grade point average to salary",
            "Above salaries over averages, shaded by their weight, with the regression's curve; below the weight of each average for "
            "the query.",
            "`attent.AttentionRegressor` (Nadaraya and Watson) on the 400 made-up graduates of `examples/salary.py`, its bandwidth "
            "learnt by leaving one out.",
            f"For an average of {query} it expects {found['expected']:,.0f}, with a bandwidth of {found['model'].bandwidth_[0]:.3f}. "
            f"The weights lie on those nearby: {said}. There are not equally many graduates of each average, so the weight of all of "
            "one differs more than that of each.",
            "Anything about graduates: they are made up. The typical error, left out one at a time, is "
            f"{found['model'].loo_score_ ** 0.5:,.0f}, so the curve is a mean, not a prediction for a person; and at either end, where "
            "all neighbours stand on one side, such means are known to be drawn towards the middle.",
        ),
        found["figure"],
    )
