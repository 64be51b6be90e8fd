"""softmax(ssᵀ)s without projections: the share of each row on the diagonal."""

from __future__ import annotations

import torch

import attent
from gallery.drawing import KEY, QUERY, VALUE, bar, matrix, plain, sheet
from gallery.encoder import Encoder
from gallery.plates import Plate, Words

SENTENCE = "The cat sat on the mat"


def plate(encoder: Encoder) -> Plate:
    """Draw the weights of softmax(ssᵀ), softmax(ssᵀ/√E) and the first layer's heads over the same s.

    Their diagonals are drawn too.
    """
    (reading,) = encoder.read([SENTENCE])
    s = encoder.vectors(SENTENCE)
    weights = {
        "softmax(ssᵀ)": attent.attend(s, s, s, score="dot", return_map=True)[1].dense(),
        "softmax(ssᵀ/√E)": attent.attend(s, s, s, score="scaled_dot", return_map=True)[1].dense(),
        f"with W_Q and W_K: mean of layer 0's {reading.weights.shape[1]} heads": reading.weights[0].mean(0),
    }
    drawing = sheet(9.0, 6.6)
    panels = drawing.subplots(2, 2).flatten()
    for axes, (name, alpha) in zip(panels, weights.items(), strict=False):
        matrix(axes, alpha, reading.pieces, reading.pieces, name, digits=2)
    bar(drawing, list(panels[:3]))
    diagonals = {name.split(":")[0]: alpha.diagonal() for name, alpha in weights.items()}
    across = torch.arange(len(reading.pieces))
    for number, ((name, shares), color) in enumerate(zip(diagonals.items(), (QUERY, KEY, VALUE), strict=True)):
        panels[3].bar(across + 0.27 * (number - 1), shares.numpy(), width=0.25, color=color, label=name)
    panels[3].set_xticks(across.tolist(), reading.pieces, rotation=90)
    panels[3].legend(frameon=False, fontsize=7, loc="upper center", bbox_to_anchor=(0.5, 1.3), ncols=1)
    plain(panels[3], "", "share of the row on its diagonal")
    summary = "; ".join(
        f"{name} {shares.mean():.2f} on average, from {shares.min():.2f} to {shares.max():.2f}"
        for name, shares in diagonals.items()
    )
    return Plate(
        "self-attention",
        Words(
            "softmax(ssᵀ)s and its diagonal",
            "Three matrices over the tokens of a sentence, without a scale, with a scale, and with projections; bars "
            "of the weights on their diagonals.",
            '`attent.attend(s, s, s, score="dot")` and `"scaled_dot"`, where s is the input of the first layer of '
            "all-MiniLM-L6-v2 for "
            f"*{SENTENCE}* (E = {s.shape[1]}); and the layer's own heads.",
            f"The share of each row on its diagonal: {summary}. A vector is more similar to itself than to any other "
            "of similar length, so without projections a word attends to itself, and softmax(ssᵀ)s is nearly s. W_Q "
            "and W_K let it look for something else.",
            "That self-attention without projections is useless: if vectors are short or scaled down, weight moves "
            "from the diagonal to similar words. Nor is weight off the diagonal good in itself.",
        ),
        drawing,
    )
