"""The data of a page: the numbers of each layer, computed in one pass over its rows, and their encoding.

The data is a JSON description of the scene, with its numbers as deflated arrays in base64.
"""

from __future__ import annotations

import base64
import json
import zlib
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from attent.attention.maps.statistics import HeadStatistics, SpanPooler
from attent.views.pages.budget import MAX_TOP, PagePlan, fit_measures, plan_page
from attent.views.scene import LayerGroup, LayerWeights, Picture, Scene

# Maximum number of weights, over all heads, that are computed together.
CHUNK_WEIGHTS = 2**22
THUMBNAIL_SIDE = 48
LARGEST_HALF = 65504.0
EXPLORE = "attent explore shows every number."


@dataclass(frozen=True)
class Payload:
    """The data of a page.

    Args:
        description: a JSON description of the scene and of the formats of its numbers.
        packs: the encoded arrays by name.
    """

    description: str
    packs: dict[str, str]

    @property
    def size(self) -> int:
        """Bytes."""
        return len(self.description.encode("utf-8", "replace")) + sum(map(len, self.packs.values()))


def build_payload(scene: Scene, size: float) -> Payload:
    """Build the data of a page, with at most `size` bytes.

    Raises:
        ArgumentError: there are too many weights to compute.
    """
    scene = fit_measures(scene, size)
    plan = plan_page(scene, size)
    # numbers often compress better than the plan assumes
    bound = min(2 * plan.top, MAX_TOP)
    layers = {
        group.name: [summarize_layer(group, layer, level=plan.level(group), top=bound) for layer in group.layers]
        for group in scene.all_groups
    }
    payload = _encode(scene, plan, layers)
    if plan.top:
        lists = sum(len(pack) for name, pack in payload.packs.items() if name.endswith((".rows", ".columns")))
        plan = replace(plan, top=max(min(int(plan.top * (size - payload.size + lists) / lists), bound), 0))
        payload = _encode(scene, plan, layers)
    while payload.size > size and plan.top:
        plan = replace(plan, top=plan.top - 1)
        payload = _encode(scene, plan, layers)
    return payload


def _encode(scene: Scene, plan: PagePlan, layers: dict[str, list[LayerSummary]]) -> Payload:
    packs: dict[str, str] = {}
    description = scene.describe()
    for number, group in enumerate(scene.all_groups):
        description["groups"][number].update(_encode_group(plan, group, layers[group.name], packs, number))
    if any(layer.has_nan for summaries in layers.values() for layer in summaries):
        description["notes"].append("Rows of weights that are no numbers are drawn as zeros.")
    if scene.picture is not None:
        packs["picture"] = pack(rgb(scene.picture))
    return Payload(json.dumps(description, ensure_ascii=False, separators=(",", ":")), packs)


def _encode_group(
    plan: PagePlan, group: LayerGroup, layers: list[LayerSummary], packs: dict[str, str], number: int
) -> dict[str, Any]:
    """Add a group's numbers to the packs, and return their description."""
    thumbnails = [encode_bytes(layer.thumbnails) for layer in layers]
    packs[f"{number}.thumbnails"] = pack(*(codes for codes, _, _ in thumbnails))
    description: dict[str, Any] = {
        "numbers": plan.numbers,
        "level": plan.level(group),
        "kept": [min(plan.top, group.shape[2]), min(plan.top, group.shape[1])],
        "note": _note(plan, group),
        "summary": [
            [
                {name: None if mean is None else to_float32(mean) for name, mean in head.items()}
                for head in layer.statistics
            ]
            for layer in layers
        ],
        "thumbnails": {
            "height": layers[0].thumbnails.shape[1],
            "width": layers[0].thumbnails.shape[2],
            "tops": [largest for _, largest, _ in thumbnails],
            "signed": [is_signed for _, _, is_signed in thumbnails],
        },
    }
    maps: dict[str, Any] = {"tops": [], "signed": []}
    for position, layer in enumerate(layers):
        name = f"{number}.{position}"
        if plan.is_full:
            packs[f"{name}.map"] = pack(
                layer.weights.astype(np.float32) if plan.numbers == "float32" else to_half(layer.weights)
            )
            continue
        codes, largest, is_signed = encode_bytes(layer.weights)
        packs[f"{name}.map"] = pack(codes)
        maps["tops"].append(largest)
        maps["signed"].append(is_signed)
        if plan.top:
            for axis, (index, weights), length in (
                ("rows", layer.rows, group.shape[2]),
                ("columns", layer.columns, group.shape[1]),
            ):
                packs[f"{name}.{axis}"] = pack_top(index[..., : plan.top], weights[..., : plan.top], length)
    return description if plan.is_full else description | {"maps": maps}


def _note(plan: PagePlan, group: LayerGroup) -> str:
    """Return a note for the reader on pooled or rounded numbers."""
    if plan.is_full:
        return "" if plan.numbers == "float32" else f"Weights are 16-bit numbers, of three or four digits; {EXPLORE}"
    step = 2 ** plan.level(group)
    cells = f"the mean of each {step} × {step} weights," if step > 1 else "each weight"
    note = f"The map shows {cells} in 255 steps up to the head's largest. "
    if not plan.top:
        return f"{note}There is no room for single weights; {EXPLORE}"
    return f"{note}Tokens show the {plan.top} largest weights of each row and column, as 16-bit numbers; {EXPLORE}"


def rgb(picture: Picture) -> np.ndarray:
    """Return the pixels as bytes, (H, W, 3)."""
    pixels = picture.pixels
    if pixels.dtype != np.uint8:
        pixels = np.rint(np.clip(pixels, 0.0, 1.0) * 255).astype(np.uint8)
    return np.repeat(pixels, 3, 2) if pixels.shape[2] == 1 else pixels


def pack(*arrays: np.ndarray) -> str:
    """Encode concatenated little-endian arrays, deflated and in base64."""
    raw = b"".join(np.ascontiguousarray(array, array.dtype.newbyteorder("<")).tobytes() for array in arrays)
    return base64.b64encode(zlib.compress(raw)).decode("ascii")


def pack_top(index: np.ndarray, weights: np.ndarray, length: int) -> str:
    """Encode the largest weights of each row.

    All indices come first, in 16 bits if the length allows, then all weights as 16-bit floats.
    """
    return pack(index.astype(np.uint16 if length <= 2**16 else np.uint32), to_half(weights))


def encode_bytes(maps: np.ndarray) -> tuple[np.ndarray, list[float], bool]:
    """Encode maps (H, h, w) with one byte per number, relative to the largest magnitude in each map.

    Returns:
        The bytes (0 to 255, or if some numbers are negative, 1 to 255 with 128 for 0), the largest magnitude of each
        map, and whether some numbers are negative.
    """
    largest = np.abs(maps).max((1, 2), initial=0.0)
    shares = maps / np.where(largest > 0, largest, 1.0)[:, None, None]
    is_signed = bool((maps < 0).any())
    codes = np.rint(shares * 127) + 128 if is_signed else np.rint(shares * 255)
    return codes.astype(np.uint8), [to_float32(value) for value in largest], is_signed


def to_float32(value: float) -> float:
    """Round to the digits of a 32-bit float."""
    return float(f"{value:.7g}")


def to_half(weights: np.ndarray) -> np.ndarray:
    """Convert to 16-bit floats, clamping numbers that are too large."""
    return np.clip(weights, -LARGEST_HALF, LARGEST_HALF).astype(np.float16)


@dataclass(frozen=True)
class LayerSummary:
    """The numbers of one layer.

    Args:
        weights: the mean of each 2ⁿ x 2ⁿ block, (H, ⌈Tq / 2ⁿ⌉, ⌈Tk / 2ⁿ⌉) at level n; every weight at level 0.
        rows: indices and values of the largest weights of each row, (H + 1, Tq, top) each; the last head is the mean
            over heads.
        columns: the same for each column, (H + 1, Tk, top).
        thumbnails: the mean of each rectangle, (H, h, w).
        statistics: the `HeadStatistics` of each head by name.
        has_nan: whether some weights are NaN.
    """

    weights: np.ndarray
    rows: tuple[np.ndarray, np.ndarray]
    columns: tuple[np.ndarray, np.ndarray]
    thumbnails: np.ndarray
    statistics: list[dict[str, float | None]]
    has_nan: bool


def summarize_layer(group: LayerGroup, layer: LayerWeights, *, level: int, top: int) -> LayerSummary:
    """Compute the numbers of one layer of a group.

    Args:
        group: the group.
        layer: the layer.
        level: the level of the weights, see `LayerSummary`.
        top: the number of largest weights to return per row and column.
    """
    heads, queries, keys = group.shape
    scale = max(max(queries, keys) / THUMBNAIL_SIDE, 1.0)
    height, width = max(round(queries / scale), 1), max(round(keys / scale), 1)
    query_index, key_index = torch.arange(queries), torch.arange(keys)
    thumbnails = SpanPooler((1, heads), query_index * height // queries, key_index * width // keys)
    pool = SpanPooler((1, heads), query_index >> level, key_index >> level)
    row_tops: list[Tensor] = [
        torch.zeros(heads + 1, queries, min(top, keys), dtype=dtype) for dtype in (torch.int64, torch.float32)
    ]
    column_tops = _ColumnTops(heads + 1, keys, min(top, queries))
    statistics = HeadStatistics(heads, is_distribution=group.is_distribution, is_self_attention=group.is_self_attention)
    has_nan = False
    for rows in query_index.split(max(CHUNK_WEIGHTS // (heads * keys), 1)):
        weights = layer.rows(rows)  # (H, rows, Tk)
        if has_nan := has_nan or bool(weights.isnan().any()):
            weights = weights.nan_to_num(0.0)
        # sums of many weights need more digits than the weights
        batch = weights[None].double()
        thumbnails.add(batch, rows)
        pool.add(batch, rows)
        if top:
            with_mean = torch.cat((weights, weights.mean(0, keepdim=True)))
            values, index = with_mean.topk(min(top, keys), -1)
            row_tops[0][:, rows], row_tops[1][:, rows] = index, values
            column_tops.add(with_mean, rows)
        # the last query is at the position of the last key
        statistics.add(weights, rows + keys - queries)
    return LayerSummary(
        weights=pool.mean()[0].numpy(),
        rows=(row_tops[0].numpy(), row_tops[1].numpy()),
        columns=(column_tops.index.mT.numpy(), column_tops.weights.mT.numpy()),
        thumbnails=thumbnails.mean()[0].numpy(),
        statistics=statistics.named(),
        has_nan=has_nan,
    )


class _ColumnTops:
    """The largest weights of each column and their rows, updated as rows arrive.

    They are stored in `weights` and `index`, (H, top, Tk).
    """

    def __init__(self, heads: int, keys: int, top: int) -> None:
        self._top = top
        self.index = torch.zeros(heads, 0, keys, dtype=torch.int64)
        self.weights = torch.zeros(heads, 0, keys)

    def add(self, weights: Tensor, rows: Tensor) -> None:
        values, index = weights.topk(min(self._top, weights.shape[1]), 1)
        values, index = torch.cat((self.weights, values), 1), torch.cat((self.index, rows[index]), 1)
        self.weights, order = values.topk(min(self._top, values.shape[1]), 1)
        self.index = index.gather(1, order)
