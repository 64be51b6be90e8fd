"""Estimate the salary of a graduate with an average of 3.5.

The estimate is the mean salary of other graduates, each weighted by how close their average is.

    pip install '.[plot,regression]'  # in a clone of the repository
    python examples/salary.py [PICTURE.png]

The graduates are invented: 400 averages between 2 and 4, rounded to tenths, and starting salaries that rise with them,
plus noise.
"""

from __future__ import annotations

import sys

import numpy as np

import attent
from attent.views.palette import color, color_map

QUERY, SHOWN = 3.5, (3.0, 3.4, 3.5, 3.6, 4.0)

dice = np.random.default_rng(0)
averages = np.round(dice.uniform(2.0, 4.0, 400), 1)
salaries = 28_000 + 4_000 * (averages - 2.0) ** 2 + dice.normal(0.0, 3_000, 400)

model = attent.AttentionRegressor().fit(averages[:, None], salaries)
weights = model.weights([[QUERY]]).dense()[0].numpy()
(expected,) = model.predict([[QUERY]])

print(f"bandwidth {model.bandwidth_[0]:.3f}, learned by leave-one-out; typical error {model.loo_score_**0.5:,.0f}")
print(f"average {QUERY}: {expected:,.0f} a year\n\naverage  graduates  weight of all  weight of each")
for average in SHOWN:
    same = np.isclose(averages, average)
    print(f"{average:>7}  {same.sum():>9}  {weights[same].sum():>13.2g}  {weights[same].mean():>14.2g}")
print(f"3.4–3.6 together: {weights[(averages > 3.35) & (averages < 3.65)].sum():.4f}")

if len(sys.argv) > 1:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.0, 5.5), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
    line = np.linspace(2.0, 4.0, 201)
    # colors count multiples of uniform: a weight of 1/400 is white
    multiples, edge = weights * len(weights), color("quiet")
    shade = above.scatter(
        averages, salaries / 1000, c=multiples, s=14, cmap=color_map(), vmin=1, vmax=8, edgecolors=edge, linewidths=0.3
    )
    above.plot(line, model.predict(line[:, None]) / 1000, color=color("key"), label="m(average)")
    above.plot([QUERY], [expected / 1000], "o", color=color("key"), label=f"{QUERY}: {expected / 1000:.1f}")
    above.set_ylabel("starting salary, thousands (made up)")
    above.legend(frameon=False)
    figure.colorbar(shade, ax=above, label=f"weight for {QUERY}, × uniform")
    tenths = np.unique(averages)
    below.bar(tenths, [weights[averages == tenth].sum() for tenth in tenths], width=0.08, color=color("weight"))
    for average in SHOWN:
        share = weights[np.isclose(averages, average)].sum()
        below.annotate(f"{share:.3f}", (average, share), ha="center", va="bottom", fontsize=8)
    below.set_xlabel("average")
    below.set_ylabel(f"weight for {QUERY}")
    below.margins(y=0.15)
    figure.savefig(sys.argv[1], dpi=150)
    print(f"\n{sys.argv[1]}")
