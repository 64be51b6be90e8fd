"""Attention to the source while a translator is given the target (forced decoding), and the target token that a row is about.

Step t of a decoder reads token y_{t−1}, BOS first, and produces y_t; its attention to the source has one row. There are two answers
to the question which token that row is about:

- **the token produced**: row t is about y_t. The context of row t goes into p(y_t), in every kind of model.
- **the token read in**: row t is about y_{t−1}; the row of the next step belongs to y_t.

The default is the token produced. Bahdanau's decoder allows no other: its query s_{t−1} has not read y_{t−1} yet
(`BahdanauDecoder`), except with `token_in_query`. Luong's state and a Transformer's layer have read it, so that
a row may be about either. Luong et al. (2015, footnote 14, arXiv 1508.04025) found location-based weights to be about the word produced
and content-based ones about the word read in; Garg et al. (2019, arXiv 1909.02074) read the word produced from the penultimate
layer; Chen et al. (2020, arXiv 2004.14837) found the lower layers of a Transformer's decoder to align the word read in, and better.
`attent.evaluation.aligner.rank_selectors` decides for a given model; docs/alignments.md has the results of ours.
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
from attent.errors import ArgumentError, check_index, check_known
from attent.models.model import EncoderDecoder

About = Literal["produced", "read"]
ABOUT: tuple[About, ...] = get_args(About)
ABOUT_LABELS: dict[About, str] = {"produced": "the token produced", "read": "the token read in"}
# The weights of one batch then take at most some ten megabytes a layer.
BATCH = BatchSize(tokens=2048)


@dataclass(frozen=True)
class AttentionSelector:
    """Selects a layer, a head and the meaning of rows among a model's attention weights.

    Args:
        layer: of those with attention to the source, from 0; the last by default.
        head: from 0; the mean over heads by default.
        about: the target token that a row is about.

    Raises:
        UnknownNameError: `about` is neither "produced" nor "read".
    """

    layer: int | None = None
    head: int | None = None
    about: About = "produced"

    def __post_init__(self) -> None:
        check_known("token that a row is about", self.about, ABOUT)

    def of(self, attentions: Mapping[str, Tensor]) -> Tensor:
        """Return the selected weights, (Tq, Tk): a row for each target token but EOS.

        Args:
            attentions: to the source by name, (H, Tq + 1, Tk) each, a row for each step.

        Raises:
            ArgumentError: there is no such layer or no such head.
        """
        weights = list(attentions.values())[-1 if self.layer is None else check_index("layer", self.layer, len(attentions))]
        rows = weights.mean(0) if self.head is None else weights[check_index("head", self.head, len(weights))]
        return rows[:-1] if self.about == "produced" else rows[1:]

    def __str__(self) -> str:
        layer = "last layer" if self.layer is None else f"layer {self.layer}"
        head = "mean over heads" if self.head is None else f"head {self.head}"
        return f"{layer}, {head}, rows about {ABOUT_LABELS[self.about]}"


@torch.no_grad()
def forced_decoding(
    model: EncoderDecoder[Any], sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]
) -> Iterator[tuple[int, dict[str, Tensor]]]:
    """Return the attention of each step to the source's tokens, while the model is given the target.

    Weights depend neither on the batch nor on the order of the pairs, except for the last bits on processors whose matrix
    products depend on a row's index.

    Args:
        model: in evaluation mode.
        sources: tokens.
        targets: tokens, without BOS and EOS.

    Returns:
        In any order, for each pair without an empty side, its index and its attentions to the source by name, in the order
        of computation: (H, Tq + 1, Tk), a row for each step; the last step produces EOS.

    Raises:
        ArgumentError: the model has no attention to the source.
    """
    device = next(model.parameters()).device
    source, target = Sequences(sources), Sequences([[BOS, *target] for target in targets])
    lengths = np.maximum(source.lengths, target.lengths)
    order = (source.lengths * (target.lengths - 1)).nonzero()[0]
    order = order[lengths[order].argsort(kind="stable")]
    for rows in cut_batches(order, lengths, BATCH):
        filled = np.pad(rows, (0, round_up(len(rows), ROW_MULTIPLE) - len(rows)), "edge")
        source_ids, target_ids = (
            torch.from_numpy(sequences.pad(filled, KEY_MULTIPLE)[:, : model.longest]).to(device) for sequences in (source, target)
        )
        with watch(model) as maps:
            model.decode(model.encode(source_ids, torch.from_numpy(source.lengths[filled]).to(device)), target_ids)
        attentions = {name: weights.dense().float().cpu() for name, weights in maps.items() if name.endswith("cross_attention")}
        if not attentions:
            raise ArgumentError("a model without attention to the source has no alignment")
        for index, row in enumerate(rows.tolist()):
            yield row, {name: weights[index, :, : target.lengths[row], : source.lengths[row]] for name, weights in attentions.items()}


def source_attention(
    model: EncoderDecoder[Any],
    sources: Sequence[Sequence[int]],
    targets: Sequence[Sequence[int]],
    selector: AttentionSelector | None = None,
) -> list[Tensor]:
    """Return the selected attention of each target token to the source's tokens; see `forced_decoding`.

    Args:
        model: in evaluation mode.
        sources: tokens.
        targets: tokens, without BOS and EOS.
        selector: the last layer, the mean over heads and rows about the token produced by default.

    Returns:
        For each pair (Tq, Tk), a row for each target token; either side may be empty.
    """
    selector = selector or AttentionSelector()
    maps = [torch.zeros(len(target), len(source)) for source, target in zip(sources, targets, strict=True)]
    for row, attentions in forced_decoding(model, sources, targets):
        maps[row] = selector.of(attentions)
    return maps
