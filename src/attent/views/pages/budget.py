"""What of a scene a page of some size can hold: every number, or the maps pooled beside the largest weights of each row and column."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from attent.errors import ArgumentError
from attent.views.scene import LayerGroup, Scene

MEBIBYTE = 2**20
# Base64 writes three bytes as four.
WRITTEN = 4 / 3
# Numbers are written with all their bits where that takes no more than this share of the page.
EXACT_SHARE = 0.5
# Of what does not fit whole, how much pooled maps may take, and how far deflate is trusted to shrink them and the largest weights.
POOLED_SHARE, SHRUNK = 0.4, 0.85
MOST_KEPT, MOST_SIDE = 32, 1024
# A place of the largest: its number and its weight, in bytes.
PLACE = 4
# More weights than these take minutes to compute.
MOST_WEIGHTS = 2 * 10**9

Numbers = Literal["float32", "float16"]


@dataclass(frozen=True)
class Plan:
    """How a page holds a scene.

    Args:
        numbers: how weights are written.
        side: the most rows or columns that a pooled map may have; 0 where maps are whole.
        kept: how many of the largest weights of each row and column are written; 0 where maps are whole.
    """

    numbers: Numbers
    side: int = 0
    kept: int = 0

    @property
    def whole(self) -> bool:
        """Whether every number is there."""
        return not self.side

    def level(self, group: LayerGroup) -> int:
        """How often rows and columns are halved until a group's maps fit."""
        return 0 if self.whole else max(0, math.ceil(math.log2(max(group.shape[1:]) / self.side)))


def planned(scene: Scene, size: float) -> Plan:
    """The best that fits.

    Args:
        scene: what is shown.
        size: of all data, in bytes.

    Raises:
        ArgumentError: there are more weights than a page is made of.
    """
    weights = sum(len(group.layers) * math.prod(group.shape) for group in scene.groups)
    if weights > MOST_WEIGHTS:
        largest = max(scene.groups, key=lambda group: len(group.layers) * math.prod(group.shape))
        heads, queries, keys = largest.shape
        raise ArgumentError(
            f"{len(largest.layers)} layers of {heads} heads, {queries:,} x {keys:,} each, are too many weights for a page, which computes "
            f"every one: show fewer layers or a shorter text, or look at them with attent explore, which computes what is looked at"
        )
    if weights * 4 * WRITTEN <= EXACT_SHARE * size:
        return Plan("float32")
    if weights * 2 * WRITTEN <= size:
        return Plan("float16")
    maps = sum(len(group.layers) * group.shape[0] for group in scene.groups)
    side = min(math.isqrt(int(POOLED_SHARE * size / WRITTEN / SHRUNK / maps)), MOST_SIDE)
    # the mean over heads is one more
    places = sum(len(group.layers) * (group.shape[0] + 1) * sum(group.shape[1:]) for group in scene.groups)
    pooled = sum(_pooled(group, side) for group in scene.groups) * WRITTEN * SHRUNK
    kept = int((size - pooled) / WRITTEN / SHRUNK / PLACE / places)
    return Plan("float16", max(side, 1), min(kept, MOST_KEPT))


def _pooled(group: LayerGroup, side: int) -> int:
    """Bytes of a group's maps, pooled until they fit."""
    step = 2 ** Plan("float16", max(side, 1)).level(group)
    heads, queries, keys = group.shape
    return len(group.layers) * heads * math.ceil(queries / step) * math.ceil(keys / step)
