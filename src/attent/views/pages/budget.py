"""The budget of a page: selection of the numbers of a scene that fit into its size.

These are all numbers if there is room; otherwise pooled maps, and the largest weights of each row and column.
"""

import math
from dataclasses import dataclass, replace
from typing import Literal

from attent.errors import ArgumentError
from attent.views.scene import LayerGroup, Scene

MEBIBYTE = 2**20
# Base64 encodes three bytes as four characters.
BASE64_FACTOR = 4 / 3
# Numbers are written in full precision if they take at most this share of the page.
EXACT_SHARE = 0.5
# The share of a page available for pooled maps.
POOLED_SHARE = 0.4
# Upper bound for the ratio to which deflate compresses pooled maps and largest weights.
DEFLATE_RATIO = 0.85
# Maximum number of largest weights per row and column.
MAX_TOP = 32
# Maximum number of rows or columns of a pooled map.
MAX_SIDE = 1024
# Bytes per largest weight, including its index.
TOP_BYTES = 4
# More weights than these take minutes to compute.
MAX_WEIGHTS = 2 * 10**9

NO_ROOM = "There is no room for norms and gradients beside the weights; attent explore shows them."

NumberFormat = Literal["float32", "float16"]


@dataclass(frozen=True)
class PagePlan:
    """The content of a page.

    Args:
        numbers: the number format of weights.
        side: the maximum number of rows or columns of a pooled map; 0 if maps are written in full.
        top: the number of largest weights written per row and column; 0 if maps are written in full.
    """

    numbers: NumberFormat
    side: int = 0
    top: int = 0

    @property
    def is_full(self) -> bool:
        """True if every number is written."""
        return not self.side

    def level(self, group: LayerGroup) -> int:
        """Return the number of times that a group's maps are halved."""
        return 0 if self.is_full else max(0, math.ceil(math.log2(max(group.shape[1:]) / self.side)))


def fit_measures(scene: Scene, size: float) -> Scene:
    """Return the scene, without norms and gradients if they would make the weights of a page less exact.

    Args:
        scene: the scene.
        size: the maximum size of all data, in bytes.

    Raises:
        ArgumentError: there are too many weights to compute.
    """
    if not any(group.measures for group in scene.groups):
        return scene
    bare = replace(scene, groups=tuple(replace(group, measures=()) for group in scene.groups))
    plan = plan_page(bare, size)
    try:
        fits = plan.is_full and plan_page(scene, size) == plan
    except ArgumentError:
        fits = False
    return scene if fits else replace(bare, notes=(*scene.notes, NO_ROOM))


def plan_page(scene: Scene, size: float) -> PagePlan:
    """Return the most exact plan that fits.

    Args:
        scene: the scene.
        size: the maximum size of all data, in bytes.

    Raises:
        ArgumentError: there are too many weights to compute.
    """
    counts = {group.name: len(group.layers) * math.prod(group.shape) for group in scene.all_groups}
    weights = sum(counts.values())
    if weights > MAX_WEIGHTS:
        largest = max(scene.all_groups, key=lambda group: counts[group.name])
        heads, queries, keys = largest.shape
        raise ArgumentError(
            f"{len(largest.layers)} layers of {heads} heads, {queries:,} x {keys:,} each, are too many weights for a "
            "page, which computes all of them: show fewer layers or a shorter text, or use attent explore, which "
            "computes only the weights on display"
        )
    if weights * 4 * BASE64_FACTOR <= EXACT_SHARE * size:
        return PagePlan("float32")
    if weights * 2 * BASE64_FACTOR <= size:
        return PagePlan("float16")
    maps = sum(len(group.layers) * group.shape[0] for group in scene.all_groups)
    side = min(math.isqrt(int(POOLED_SHARE * size / BASE64_FACTOR / DEFLATE_RATIO / maps)), MAX_SIDE)
    # the mean over heads counts as one more head
    lists = sum(len(group.layers) * (group.shape[0] + 1) * sum(group.shape[1:]) for group in scene.all_groups)
    pooled = sum(_pooled_bytes(group, side) for group in scene.all_groups) * BASE64_FACTOR * DEFLATE_RATIO
    top = int((size - pooled) / BASE64_FACTOR / DEFLATE_RATIO / TOP_BYTES / lists)
    return PagePlan("float16", max(side, 1), min(top, MAX_TOP))


def _pooled_bytes(group: LayerGroup, side: int) -> int:
    step = 2 ** PagePlan("float16", max(side, 1)).level(group)
    heads, queries, keys = group.shape
    return len(group.layers) * heads * math.ceil(queries / step) * math.ceil(keys / step)
