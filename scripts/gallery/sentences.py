"""Heads that attend from one word to another, and their weights at the same offset in other sentences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gallery.drawing import GRAY, KEY, QUERY, bar, matrix, plain, sheet
from gallery.elsewhere import NUMBER, Elsewhere, elsewhere, of_similar_length
from gallery.encoder import Encoder, Reading
from gallery.plates import Plate, Words

NAMED = 3
# Maximum pieces for which a matrix has room for numbers.
FEW = 10
CAUTION = (
    "The head was selected because its weight is the largest of all heads, and some head always has the largest. Above "
    "the dashed line, it gives these words more than their offset explains, which does not yet mean that it depends on "
    "their meaning; a weight does not show what was passed on, or that the model used it. One sentence is an example, "
    "not a finding."
)


@dataclass(frozen=True)
class Pair:
    """Every head's weight from one word to another, and at the same offset in other sentences.

    Args:
        reading: the reading of the sentence.
        source: the word of the query.
        target: the word of the key.
        others: the weights at the same offset in other sentences.
    """

    reading: Reading
    source: str
    target: str
    others: Elsewhere

    @property
    def cell(self) -> tuple[int, int]:
        """The row of the source word and the column of the target word."""
        return self.reading.find(self.source), self.reading.find(self.target)

    @property
    def weights(self) -> Any:
        """Each head's weight, (layers, H)."""
        return self.reading.weights[:, :, self.cell[0], self.cell[1]]

    @property
    def best(self) -> tuple[int, int]:
        """Layer and head of the largest weight."""
        return divmod(int(self.weights.argmax()), self.weights.shape[1])

    @property
    def title(self) -> str:
        """The pair as text, such as *happy → tail*."""
        return f"{self.source} → {self.target}"

    def from_others(self, layer: int, head: int) -> float:
        """Return the mean weight from the other words of the sentence to the target."""
        words = self.reading.weights[layer, head, 1:-1, self.cell[1]]
        return float((words.sum() - self.weights[layer, head]) / (len(words) - 1))

    def describe(self) -> str:
        """Describe the best head's weight here, in other sentences, and from the other words."""
        layer, head = self.best
        row, column = self.cell
        offset = column - row
        distance = f"{abs(offset)} {'token' if abs(offset) == 1 else 'tokens'} {'later' if offset > 0 else 'earlier'}"
        above, heads = int((self.weights > self.others.high).sum()), self.weights.numel()
        return (
            f"*{self.title}*, {distance}: layer {layer}, head {head} gives it {self.weights[layer, head]:.2f}; "
            f"between other words at this offset, the mean is {self.others.mean[layer, head]:.2f}, and one pair in "
            f"twenty has more than {self.others.high[layer, head]:.2f}; from the other words of the sentence, "
            f"*{self.target}* gets {self.from_others(layer, head):.2f} each. {above} of {heads} heads give "
            f"*{self.title}* more than 19 of 20 pairs elsewhere; by chance, {heads / 20:.1f} would."
        )


def pairs(encoder: Encoder, captions: Sequence[str], sentence: str, words: Sequence[tuple[str, str]]) -> list[Pair]:
    """Return pairs of words in a sentence, with captions of similar length for comparison."""
    (reading,) = encoder.read([sentence])
    others = of_similar_length(encoder, captions, len(reading.pieces))
    cells = [(reading.find(source), reading.find(target)) for source, target in words]
    return [
        Pair(reading, source, target, elsewhere(others, column - row))
        for (source, target), (row, column) in zip(words, cells, strict=True)
    ]


def plate(
    name: str, encoder: Encoder, captions: Sequence[str], sentence: str, words: Sequence[tuple[str, str]]
) -> Plate:
    """Draw the head with the largest weight for each pair of words, and all heads as a scatter plot.

    The scatter plot compares each head here and in other sentences.
    """
    word_pairs = pairs(encoder, captions, sentence, words)
    size = 0.24 * len(word_pairs[0].reading.pieces) + 1.5
    drawing = sheet(9.0, len(word_pairs) * size)
    panels = drawing.subplots(len(word_pairs), 2, squeeze=False, width_ratios=(1.15, 1))
    for (left, right), pair in zip(panels, word_pairs, strict=True):
        layer, head = pair.best
        title = f"layer {layer}, head {head}: most from {pair.title} (framed)"
        pieces = pair.reading.pieces
        is_short = len(pieces) <= FEW
        matrix(
            left,
            pair.reading.weights[layer, head],
            pieces,
            pieces,
            title,
            digits=2 if is_short else None,
            marked=[pair.cell],
        )
        left.set_xlabel("from rows to columns", fontsize=8)
        if not is_short:
            bar(drawing, left)
        scatter(right, pair)
    summary = " ".join(pair.describe() for pair in word_pairs)
    titles = " and ".join(pair.title for pair in word_pairs)
    return Plate(
        name,
        Words(
            f"*{sentence}*",
            f"For {titles}, a matrix of the head with the largest weight, and a scatter plot of all heads: the weight "
            "here against the mean at the same offset elsewhere.",
            f"`attent.watch` on all-MiniLM-L6-v2 reading the sentence, and the {NUMBER} captions of Multi30k closest "
            f"to it in length, which have {_number(word_pairs)} pairs of words at the same offsets.",
            "Each dot is a head. Vertical: the weight from the first word to the second; horizontal: the mean weight "
            "between other words at the same offset; the line to its right extends to the value that one pair in "
            f"twenty exceeds. On the dashed line, a head attends here as it does elsewhere. {summary}",
            CAUTION,
        ),
        drawing,
    )


def scatter(axes: Any, pair: Pair) -> None:
    """Draw all heads, with the weight here against the mean in other sentences; label the largest weights."""
    weights, mean, high = (values.flatten().tolist() for values in (pair.weights, pair.others.mean, pair.others.high))
    top = 1.08 * max(*weights, *mean, 0.1)
    axes.plot([0, top], [0, top], color=GRAY, linewidth=0.8, linestyle="--")
    axes.hlines(weights, mean, high, color=QUERY, alpha=0.25, linewidth=1)
    axes.plot(mean, weights, "o", color=QUERY, markersize=4, alpha=0.7, markeredgewidth=0)
    width = pair.weights.shape[1]
    for index in sorted(range(len(weights)), key=weights.__getitem__)[-NAMED:]:
        layer, head = divmod(index, width)
        axes.annotate(
            f"{layer}.{head}",
            (mean[index], weights[index]),
            xytext=(4, 3),
            textcoords="offset points",
            fontsize=8,
            color=KEY,
        )
    axes.set(xlim=(-0.02 * top, top), ylim=(-0.02 * top, top))
    row, column = pair.cell
    plain(
        axes,
        f"the same offset ({column - row:+}) elsewhere, mean",
        f"{pair.title}, here",
        f"{len(weights)} heads, layer.head",
    )


def _number(word_pairs: Sequence[Pair]) -> str:
    return " and ".join(f"{pair.others.pairs:,}" for pair in word_pairs)
