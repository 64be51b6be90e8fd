"""Grids of heads: every head of the encoder, and the cross-attention of a translator."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

import attent
from attent.views.build_scene import build_scene
from attent.views.palette import color_map
from attent.views.panel import kind_of
from gallery.drawing import bar, matrix, sheet
from gallery.encoder import Encoder, Reading
from gallery.plates import Plate, Words

SENTENCE = "When he saw his owner, the dog was happy, so he wagged his tail"
DATE = "fr | mardi 3 mars 2026"
# Above this mean weight, a head is marked with the sign of its target.
CALLED = 0.4
SIGNS = {"[CLS]": "C", "[SEP]": "S", "the previous token": "←", "the next token": "→", "itself": "="}


def kinds(reading: Reading) -> dict[str, Tensor]:
    """Return each head's mean weight over the words, by target, (layers, H)."""
    words = reading.weights[:, :, 1:-1]  # (layers, H, words, T)
    near = {
        name: words.diagonal(offset, -2, -1).mean(-1)
        for name, offset in (("the previous token", 0), ("itself", 1), ("the next token", 2))
    }
    return {"[CLS]": words[..., 0].mean(-1), "[SEP]": words[..., -1].mean(-1)} | near


def grid(encoder: Encoder) -> Plate:
    """Draw all heads of all layers as thumbnails, each with a sign for its main target."""
    (reading,) = encoder.read([SENTENCE])
    layers, heads = reading.weights.shape[:2]
    shares = kinds(reading)
    best, indices = torch.stack([*shares.values()]).max(0)
    names = list(shares)
    drawing = sheet(9.0, 5.4)
    panels = drawing.subplots(layers, heads)
    for layer in range(layers):
        for head in range(heads):
            axes = panels[layer][head]
            sign = SIGNS[names[indices[layer, head]]] if best[layer, head] > CALLED else ""
            axes.imshow(reading.weights[layer, head].numpy(), vmin=0, vmax=1, cmap=color_map(), interpolation="nearest")
            axes.set_title(f"{layer}.{head} {sign}", fontsize=8, pad=2)
            axes.set_xticks([])
            axes.set_yticks([])
    counts = {name: int(((indices == number) & (best > CALLED)).sum()) for number, name in enumerate(names)}
    summary = ", ".join(f"{count} {name} ({SIGNS[name]})" for name, count in counts.items())
    return Plate(
        "heads",
        Words(
            "Every head at once",
            f"{layers} rows of {heads} thumbnails, one for each head, with rows of tokens that attend to columns of "
            "tokens; dark is a large weight.",
            f"`attent.watch` on all-MiniLM-L6-v2 reading *{SENTENCE}*; the title of each thumbnail is layer.head.",
            f"A sign shows the target that gets more than {CALLED} of a head's attention on average over the words of "
            "this sentence, a pattern that does not depend on the words. "
            f"Of {layers * heads} heads: {summary}.",
            "That a head with such a pattern is useless, or that one without has discovered grammar: its behavior "
            "elsewhere, and the effect of its values, are not shown. Weight on [CLS] or [SEP] often means that there "
            "was nothing to look for.",
        ),
        drawing,
        build_scene(
            {f"layer.{layer}": weights for layer, weights in enumerate(reading.weights)}, reading.pieces, title=SENTENCE
        ),
    )


def cross(run: Path) -> Plate:
    """Draw the heads of a Transformer's cross-attention over a date."""
    maps = attent.load(run).map(DATE)
    cross_maps = {name: heat_map for name, heat_map in maps.items() if kind_of(name) == "cross"}
    drawing = sheet(9.0, 2.75 * len(cross_maps))
    heads = next(iter(cross_maps.values())).weights.shape[1]
    panels = drawing.subplots(len(cross_maps), heads, sharey=True)
    for layer, heat_map in enumerate(cross_maps.values()):
        for head, axes in enumerate(panels[layer]):
            matrix(
                axes, heat_map.weights[0, head], heat_map.rows, heat_map.columns, f"layer {layer}, head {head}", size=6
            )
    bar(drawing, list(panels.flatten()))
    largest = torch.cat([heat_map.weights[0] for heat_map in cross_maps.values()]).amax(-1).mean(-1).tolist()
    return Plate(
        "cross-attention",
        Words(
            "Multiple heads of a translator",
            (
                f"A grid of {len(cross_maps)} by {heads} matrices, rows of output characters and columns of input "
                "characters; dark is a large weight."
            ),
            "A Transformer trained on dates (`src/attent/configs/dates-demo.toml`, for its number of updates), then "
            f"`{DATE}`; each row refers to the character that it produces.",
            "The heads of a layer divide the work: they attend to different positions in the same row, and not all "
            "are equally sharp. The largest weight of a row is, on average, "
            f"{', '.join(f'{share:.2f}' for share in largest)}, in the order of layers and heads.",
            "That the sharpest head does the translation: the decoder combines all heads of both layers and its "
            "previous output. With another seed, the order and roles of the heads differ.",
        ),
        drawing,
        build_scene(maps, title=DATE),
    )
