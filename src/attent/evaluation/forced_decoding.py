"""How a model looks at the source while it is given the target (forced decoding), and which target token each row is about.

Step t of a decoder reads token y_{t−1}, BOS first, and produces y_t; its attention to the source has one row. What that row tells of is a
question of its own, and both answers are offered:

- **the token produced**: row t is about y_t. The context of row t goes into p(y_t), in every kind of model.
- **the token read in**: row t is about y_{t−1}, so that y_t is told of by the row of the step after it.

The default is the token produced. Bahdanau's decoder can have no other: the state that asks, s_{t−1}, has not read y_{t−1} yet
(`BahdanauDecoder`), unless `token_in_query` has it ask by that token too. Luong's state and a Transformer's layer have read it, so that
a row may be about either. Luong et al. (2015, footnote 14, arXiv 1508.04025) found location-based weights to be about the word produced
and content-based ones about the word read in; Garg et al. (2019, arXiv 1909.02074) read the word produced from a layer next to the
last; Chen et al. (2020, arXiv 2004.14837) found the lower layers of a Transformer's decoder to align the word read in, and better.
`attent.evaluation.ranking` tells for a model at hand; docs/alignments.md has what was found for ours.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor

from attent.attention.capture.watch import watch
from attent.data.batches import KEY_MULTIPLE, ROW_MULTIPLE, BatchSize, Sequences, cut_batches, round_up
from attent.data.tokenizer import BOS
from attent.errors import ArgumentError, UnknownNameError
from attent.models.encoder_decoder import EncoderDecoder

About = Literal["produced", "read"]
ABOUT: tuple[About, ...] = get_args(About)
# What a view says of each.
ABOUT_LABELS: dict[About, str] = {"produced": "the token produced", "read": "the token read in"}
# The weights of one batch are then at most some ten megabytes a layer.
BATCH = BatchSize(tokens=2048)


@dataclass(frozen=True)
class AttentionSelector:
    """Which of a model's weights are meant.

    Args:
        layer: of those that look at the source, from 0; the last unless given.
        head: from 0; the mean over heads unless given.
        about: which target token a row is about.

    Raises:
        UnknownNameError: a row is about nothing of that name.
    """

    layer: int | None = None
    head: int | None = None
    about: About = "produced"

    def __post_init__(self) -> None:
        if self.about not in ABOUT:
            raise UnknownNameError("token that a row is about", self.about, ABOUT)

    def of(self, attentions: Mapping[str, Tensor]) -> Tensor:
        """These weights, (Tq, Tk): a row for each target token, EOS not among them.

        Args:
            attentions: those that look at the source by name, (H, Tq + 1, Tk) each, a row for each step.

        Raises:
            ArgumentError: there is no such layer or no such head.
        """
        weights = list(attentions.values())[_checked("layer", self.layer, len(attentions))]
        heads = weights.mean(0) if self.head is None else weights[_checked("head", self.head, len(weights))]
        return heads[:-1] if self.about == "produced" else heads[1:]

    def __str__(self) -> str:
        layer = "last layer" if self.layer is None else f"layer {self.layer}"
        head = "mean over heads" if self.head is None else f"head {self.head}"
        return f"{layer}, {head}, rows about {ABOUT_LABELS[self.about]}"


def _checked(what: str, number: int | None, count: int) -> int:
    if number is not None and not 0 <= number < count:
        raise ArgumentError(f"{what} must be from 0 to {count - 1}, got {number}")
    return -1 if number is None else number


@torch.no_grad()
def forced_decoding(
    model: EncoderDecoder[Any], sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]
) -> Iterator[tuple[int, dict[str, Tensor]]]:
    """How each step looks at the source's tokens, while the model is given the target.

    Weights depend neither on the batch nor on the order of the pairs, but for the last bits on processors on which those of a matrix
    product depend on the place of a row.

    Args:
        model: in evaluation mode.
        sources: tokens.
        targets: tokens, without BOS and EOS.

    Returns:
        In any order, for each pair of which neither side is empty, its number and its attentions to the source by name, in the order
        of computation: (H, Tq + 1, Tk), a row for each step, of which the last produces EOS.

    Raises:
        ArgumentError: the model has no attention to the source.
    """
    device = next(model.parameters()).device
    read, given = Sequences(sources), Sequences([[BOS, *target] for target in targets])
    lengths = np.maximum(read.lengths, given.lengths)
    order = (read.lengths * (given.lengths - 1)).nonzero()[0]
    order = order[lengths[order].argsort(kind="stable")]
    for rows in cut_batches(order, lengths, BATCH):
        filled = np.concatenate((rows, rows[-1:].repeat(round_up(len(rows), ROW_MULTIPLE) - len(rows))))
        with watch(model) as seen:
            memory = model.encode(_padded(read, filled, model.longest).to(device), torch.from_numpy(read.lengths[filled]).to(device))
            model.decode(memory, _padded(given, filled, model.longest).to(device))
        attentions = {name: weights.dense().float().cpu() for name, weights in seen.items() if name.endswith("cross_attention")}
        if not attentions:
            raise ArgumentError("a model without attention to the source has no alignment")
        for place, row in enumerate(rows.tolist()):
            yield row, {name: some[place, :, : given.lengths[row], : read.lengths[row]] for name, some in attentions.items()}


def _padded(sequences: Sequences, rows: np.ndarray, longest: int | None) -> Tensor:
    return torch.from_numpy(sequences.pad(rows, KEY_MULTIPLE)[:, :longest])


def source_attention(
    model: EncoderDecoder[Any], sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]], look: AttentionSelector | None = None
) -> list[Tensor]:
    """How the source's tokens are looked at for each target token, as `forced` takes the pairs.

    Args:
        model: in evaluation mode.
        sources: tokens.
        targets: tokens, without BOS and EOS.
        look: which of the model's weights; those of the last layer, the mean over heads, about the token produced, unless given.

    Returns:
        For each pair (Tq, Tk), a row for each target token, and either may be 0.
    """
    look = look or AttentionSelector()
    maps = [torch.zeros(len(target), len(source)) for source, target in zip(sources, targets, strict=True)]
    for row, attentions in forced_decoding(model, sources, targets):
        maps[row] = look.of(attentions)
    return maps
