"""Which heads look from one word to another, and what those heads give the same offset in other sentences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gallery.drawing import BLUE, GREY, RED, bar, matrix, plain, sheet
from gallery.elsewhere import NUMBER, Elsewhere, alike, elsewhere
from gallery.encoder import Encoder, Reading
from gallery.plates import Plate, Words

NAMED = 3
# At most so many pieces have room for numbers.
FEW = 10
CAUTION = (
    "The head was picked because its weight is the largest of all heads', and some head always has the largest. Above the dashed line "
    "it gives these words more than their offset explains, which is not yet what the words mean; a weight does not say what was passed "
    "on, nor that the model used it. One sentence is an example, not a finding."
)


@dataclass(frozen=True)
class Pair:
    """How every head looks from one word to another, and at the same offset elsewhere.

    Args:
        reading: of the sentence.
        source: the word that looks.
        target: the word that is looked at.
        others: the same offset in other sentences.
    """

    reading: Reading
    source: str
    target: str
    others: Elsewhere

    @property
    def cell(self) -> tuple[int, int]:
        """Row and column."""
        return self.reading.place(self.source), self.reading.place(self.target)

    @property
    def here(self) -> Any:
        """Each head's weight, (layers, H)."""
        return self.reading.weights[:, :, self.cell[0], self.cell[1]]

    @property
    def best(self) -> tuple[int, int]:
        """Layer and head of the largest weight."""
        return divmod(int(self.here.argmax()), self.here.shape[1])

    @property
    def title(self) -> str:
        """Such as *happy → tail*."""
        return f"{self.source} → {self.target}"

    def from_others(self, layer: int, head: int) -> float:
        """What the other words of the sentence give the word that is looked at, on average."""
        words = self.reading.weights[layer, head, 1:-1, self.cell[1]]
        return float((words.sum() - self.here[layer, head]) / (len(words) - 1))

    def said(self) -> str:
        """What the best head gives here, elsewhere, and from the other words."""
        layer, head = self.best
        row, column = self.cell
        offset = column - row
        where = f"{abs(offset)} {'piece' if abs(offset) == 1 else 'pieces'} {'on' if offset > 0 else 'back'}"
        above, heads = int((self.here > self.others.high).sum()), self.here.numel()
        return (
            f"*{self.title}*, {where}: layer {layer}, head {head} gives it {self.here[layer, head]:.2f}; between other words at this "
            f"offset {self.others.mean[layer, head]:.2f} on average, and more than {self.others.high[layer, head]:.2f} for one pair in "
            f"twenty; *{self.target}* gets {self.from_others(layer, head):.2f} from each other word of the sentence. {above} of {heads} "
            f"heads give *{self.title}* more than they give 19 of 20 pairs elsewhere; of words like any others {heads / 20:.1f} would."
        )


def pairs(encoder: Encoder, captions: Sequence[str], sentence: str, words: Sequence[tuple[str, str]]) -> list[Pair]:
    """Pairs of words in a sentence, held against captions of about its length."""
    (reading,) = encoder.read([sentence])
    others = alike(encoder, captions, len(reading.pieces))
    places = [(reading.place(source), reading.place(target)) for source, target in words]
    return [
        Pair(reading, source, target, elsewhere(others, column - row))
        for (source, target), (row, column) in zip(words, places, strict=True)
    ]


def plate(name: str, encoder: Encoder, captions: Sequence[str], sentence: str, words: Sequence[tuple[str, str]]) -> Plate:
    """For each pair of words the head that looks so most, all words as its queries, beside all heads here and elsewhere."""
    found = pairs(encoder, captions, sentence, words)
    size = 0.24 * len(found[0].reading.pieces) + 1.5
    drawing = sheet(9.0, len(found) * size)
    places = drawing.subplots(len(found), 2, squeeze=False, width_ratios=(1.15, 1))
    for (left, right), pair in zip(places, found, strict=True):
        layer, head = pair.best
        title = f"layer {layer}, head {head}: most from {pair.title} (framed)"
        pieces = pair.reading.pieces
        few = len(pieces) <= FEW
        matrix(left, pair.reading.weights[layer, head], pieces, pieces, title, digits=2 if few else None, marked=[pair.cell])
        left.set_xlabel("rows look at columns", fontsize=8)
        if not few:
            bar(drawing, left)
        scatter(right, pair)
    said = " ".join(pair.said() for pair in found)
    titles = " and ".join(pair.title for pair in found)
    return Plate(
        name,
        Words(
            f"*{sentence}*",
            f"For {titles} a matrix of the head that looks so most, and a scatter of all heads: the weight here against the mean at the "
            "same offset elsewhere.",
            f"`attent.watch` on all-MiniLM-L6-v2 reading the sentence, and the {NUMBER} captions of Multi30k nearest to it in length, "
            f"which have {_number(found)} pairs of words at the same offsets.",
            "Each dot is a head: upward what it gives the two words here, to the right what it gives two other words that stand as far "
            "apart; the line to its right ends where one pair of twenty is above. On the dashed line a head looks here as it does "
            f"anywhere. {said}",
            CAUTION,
        ),
        drawing,
    )


def scatter(axes: Any, pair: Pair) -> None:
    """All heads: here upward, elsewhere to the right; those that look here most by name."""
    here, mean, high = (each.flatten().tolist() for each in (pair.here, pair.others.mean, pair.others.high))
    top = 1.08 * max(*here, *mean, 0.1)
    axes.plot([0, top], [0, top], color=GREY, linewidth=0.8, linestyle="--")
    axes.hlines(here, mean, high, color=BLUE, alpha=0.25, linewidth=1)
    axes.plot(mean, here, "o", color=BLUE, markersize=4, alpha=0.7, markeredgewidth=0)
    width = pair.here.shape[1]
    for place in sorted(range(len(here)), key=here.__getitem__)[-NAMED:]:
        layer, head = divmod(place, width)
        axes.annotate(f"{layer}.{head}", (mean[place], here[place]), xytext=(4, 3), textcoords="offset points", fontsize=8, color=RED)
    axes.set(xlim=(-0.02 * top, top), ylim=(-0.02 * top, top))
    row, column = pair.cell
    plain(axes, f"the same offset ({column - row:+}) elsewhere, mean", f"{pair.title}, here", f"{len(here)} heads, layer.head")


def _number(found: Sequence[Pair]) -> str:
    return " and ".join(f"{pair.others.pairs:,}" for pair in found)
