"""A sentence, and the same sentence with two words exchanged: whether a head follows the word or its position."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gallery.drawing import GRAY, KEY, QUERY, VALUE, matrix, plain, sheet
from gallery.elsewhere import NUMBER
from gallery.encoder import Encoder
from gallery.plates import Plate, Words
from gallery.sentences import Pair, pairs

SENTENCES = ("The cat sat on the mat", "The mat sat on the cat")
LOOKING, FIRST, SECOND = "sat", "cat", "mat"


def plate(encoder: Encoder, captions: Sequence[str]) -> Plate:
    """Draw two heads in both sentences.

    One has the largest weight from *sat* to *cat*, the other the largest excess over the mean at that offset.
    """
    words = [(LOOKING, FIRST), (LOOKING, SECOND)]
    sentences = [pairs(encoder, captions, sentence, words) for sentence in SENTENCES]
    subject = sentences[0][0]
    beyond = divmod(int((subject.weights - subject.others.mean).argmax()), subject.weights.shape[1])
    heads = list(dict.fromkeys([subject.best, beyond]))
    drawing = sheet(9.6, 3.4 * len(heads))
    panels = drawing.subplots(len(heads), 3, squeeze=False, width_ratios=(1, 1, 0.75))
    for row, (layer, head) in zip(panels, heads, strict=True):
        for axes, sentence in zip(row, sentences, strict=False):
            reading = sentence[0].reading
            cells = [pair.cell for pair in sentence]
            title = f"layer {layer}, head {head}"
            matrix(
                axes,
                reading.weights[layer, head],
                reading.pieces,
                reading.pieces,
                title,
                digits=2,
                marked=cells,
                size=7,
            )
        _bars(row[2], [pair for sentence in sentences for pair in sentence], layer, head)
    largest, excess = (_describe(sentences, layer, head) for layer, head in (subject.best, beyond))
    return Plate(
        "cat-and-mat",
        Words(
            f"*{SENTENCES[0]}*, and with *{FIRST}* and *{SECOND}* swapped",
            "For each of two heads, its matrix in both sentences, and bars of its weights for the two words in each, "
            "compared with the same offset elsewhere.",
            f"`attent.watch` on all-MiniLM-L6-v2 reading both sentences, and the {NUMBER} captions of Multi30k "
            "closest to them in length for the offsets.",
            f"The largest weight for *{subject.title}* is that of {largest} "
            f"The largest excess over the mean at this offset is that of {excess}",
            "That a head that attends from a verb to its subject knows what a subject is: the bars show what it gives "
            "the same offset regardless of the words, the columns which other words attend to the word. The second "
            "head was selected for its difference, the largest of all, which some head always has; and two sentences "
            "that differ in two words are one comparison.",
        ),
        drawing,
    )


def _bars(axes: Any, pairs: Sequence[Pair], layer: int, head: int) -> None:
    """Draw a head's weight for each pair of words, and its mean at the same offset in other sentences."""
    for number, pair in enumerate(pairs):
        weight, mean, high = (
            float(values[layer, head]) for values in (pair.weights, pair.others.mean, pair.others.high)
        )
        axes.barh(number - 0.17, weight, height=0.3, color=QUERY, label="here")
        axes.barh(number + 0.17, mean, height=0.3, color=VALUE, label="same offset elsewhere, mean")
        axes.plot([mean, high], [number + 0.17] * 2, color=KEY, linewidth=1.2, label="up to one pair in twenty")
    names = [f"{pair.title} ({pair.cell[1] - pair.cell[0]:+})" for pair in pairs]
    axes.set_yticks(range(len(pairs)), names)
    axes.invert_yaxis()
    axes.set_xlim(0, 1.02)
    axes.axhline(1.5, color=GRAY, linewidth=0.6)
    handles, labels = axes.get_legend_handles_labels()
    entries = dict(zip(labels, handles, strict=True))
    axes.legend(
        entries.values(), entries.keys(), frameon=False, fontsize=7, loc="lower center", bbox_to_anchor=(0.4, 1.0)
    )
    plain(axes, "weight; above the line the first sentence", "")


def _describe(sentences: Sequence[Sequence[Pair]], layer: int, head: int) -> str:
    """Describe a head's weights for both words in both sentences, and whether it follows the word or the position."""
    (cat, mat), (cat_moved, mat_moved) = (
        [float(pair.weights[layer, head]) for pair in sentence] for sentence in sentences
    )
    follows = "the position before the verb" if mat_moved > cat_moved else "the word"
    near, far = (float(pair.others.mean[layer, head]) for pair in sentences[0])
    subject = sentences[0][0]
    return (
        f"layer {layer}, head {head}: {cat:.2f}, and {mat:.2f} to *{SECOND}*; swapped, {cat_moved:.2f} to *{FIRST}* "
        f"and {mat_moved:.2f} to *{SECOND}*, so it follows {follows} more closely. Between other words, it gives "
        f"{near:.2f} at the shorter offset and {far:.2f} at the longer; the other words of the first sentence give "
        f"*{FIRST}* {subject.from_others(layer, head):.2f}."
    )
