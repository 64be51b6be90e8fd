"""The sinusoidal position matrix, and the dot products of its rows."""

from __future__ import annotations

from typing import Any

import torch
from comparison.results import COLORS, DASHES
from matplotlib.colors import LinearSegmentedColormap

from attent.attention.positions.sinusoidal import waves
from attent.views.palette import color
from gallery.drawing import GRAY, KEY, QUERY, plain, sheet
from gallery.plates import Plate, Words

LENGTH, WIDTH = 100, 64
FROM = (10, 50, 90)


def plate() -> Plate:
    """Draw the matrix, some of its columns, and the dot product of a row with every other."""
    table = waves(torch.arange(LENGTH), WIDTH)  # (T, E)
    products = table @ table.T / (WIDTH / 2)
    drawing = sheet(9.0, 4.4)
    sides: Any = drawing.subfigures(1, 2)
    left, right = sides
    axes = left.subplots()
    signed = LinearSegmentedColormap.from_list("signed", [KEY, color("paper"), QUERY])
    image = axes.imshow(table.numpy(), cmap=signed, vmin=-1, vmax=1, aspect="auto", interpolation="nearest")
    plain(axes, "feature: sines at even, cosines at odd numbers", "position")
    scale = left.colorbar(image, ax=axes, fraction=0.04, pad=0.02)
    scale.ax.tick_params(labelsize=8)
    above, below = right.subplots(2, 1)
    for feature, hue, dash in zip((0, WIDTH // 4, WIDTH // 2), COLORS, DASHES, strict=False):
        above.plot(table[:, feature].numpy(), color=hue, linestyle=dash, linewidth=1.2, label=f"feature {feature}")
    above.legend(frameon=False, fontsize=8, loc="upper right", ncols=3, bbox_to_anchor=(1.0, 1.25))
    plain(above, "position", "value")
    for position, style in zip(FROM, ("-", "--", ":"), strict=True):
        offsets = torch.arange(LENGTH) - position
        below.plot(
            offsets.numpy(),
            products[position].numpy(),
            color=QUERY,
            linestyle=style,
            linewidth=1.3,
            label=f"from {position}",
        )
    below.axvline(0, color=GRAY, linewidth=0.6)
    below.legend(frameon=False, fontsize=8)
    plain(below, "offset", "PE(p)·PE(p + offset) / (E/2)")
    deviation = max(float((products[first, first + 5] - products[0, 5]).abs()) for first in range(LENGTH - 5))
    return Plate(
        "positions",
        Words(
            "The sinusoidal position matrix",
            "Left: a matrix of waves with increasing wavelength from left to right; right: three of its columns, and "
            "the dot product of rows by offset, highest at 0.",
            (
                f"`attent.attention.positions.sinusoidal.waves` for {LENGTH} positions and {WIDTH} features; nothing "
                "is trained."
            ),
            "Each pair of features is a wave, from a few positions long to many thousands. The dot product of two "
            f"rows depends only on their offset: at an offset of 5, it differs by at most {deviation:.0e} between "
            "positions, and the three curves coincide where they overlap. A row with itself has 1, with the "
            f"next {products[0, 1]:.2f}, with the tenth {products[0, 10]:.2f}.",
            "That a model that adds these rows to its embeddings attends by offset: the learned W_Q and W_K, and the "
            "features of the words, come in between. Nor does the curve decrease monotonically: it rises again at "
            "some offsets.",
        ),
        drawing,
    )
