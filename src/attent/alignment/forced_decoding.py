"""Attention to the source while a translator is given the target (forced decoding).

A row can be about either of two target tokens. Step t of a decoder reads token y_{t−1}, BOS first, and produces
y_t; its attention to the source has one row, which is about one of two tokens:

- **the token produced**: row t is about y_t. The context of row t goes into p(y_t), in every kind of model.
- **the token read in**: row t is about y_{t−1}; the row of the next step belongs to y_t.

The default is the token produced. Bahdanau's decoder allows no other: its query s_{t−1} has not read y_{t−1} yet
(`BahdanauDecoder`), except with `token_in_query`. Luong's state and a Transformer's layer have read it, so that a row
may be about either. Luong et al. (2015, footnote 14, arXiv 1508.04025) found location-based weights to be about the
word produced and content-based ones about the word read in; Garg et al. (2019, arXiv 1909.02074) read the word produced
from the penultimate layer; Chen et al. (2020, arXiv 2004.14837) found the lower layers of a Transformer's decoder to
align the word read in, and better. `attent.alignment.aligner.rank_selectors` decides for a given model;
docs/alignments.md has the results of ours.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor

from attent.attention.capture.watch import watch
from attent.attention.maps.attention_map import AttentionMap
from attent.errors import ArgumentError, check_index, check_known
from attent.models.model import EncoderDecoder
from attent.runs.config import RunConfig
from attent.text.batches import KEY_MULTIPLE, ROW_MULTIPLE, BatchSize, Sequences, cut_batches, round_up
from attent.text.tokenizer import BOS

About = Literal["produced", "read"]
ABOUT: tuple[About, ...] = get_args(About)
ABOUT_LABELS: dict[About, str] = {"produced": "the token produced", "read": "the token read in"}
# The weights of one batch then take at most some ten megabytes a layer.
BATCH_TOKENS = 2048
BATCH = BatchSize(tokens=BATCH_TOKENS)
# Weights of a layer, all heads and rows together, that are computed at a time.
MAX_WEIGHTS = 2**24


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

    @classmethod
    def of_run(cls, config: RunConfig | None) -> AttentionSelector:
        """Return the choice that is kept with a run; the default without one.

        Args:
            config: of the run; None for a model that did not come from one.
        """
        chosen = None if config is None else config.alignment
        return cls() if chosen is None else cls(chosen.layer, chosen.head, chosen.about)

    def of(self, attentions: Mapping[str, Tensor]) -> Tensor:
        """Return the selected weights, (…, Tq, Tk): a row for each target token but EOS.

        Args:
            attentions: to the source by name, (…, H, Tq + 1, Tk) each, a row for each step.

        Raises:
            ArgumentError: there is no such layer or no such head.
        """
        weights = self.of_layer(list(attentions.values())[self.layer_index(len(attentions))])
        return weights[..., :-1, :] if self.about == "produced" else weights[..., 1:, :]

    def layer_index(self, count: int) -> int:
        """Return the layer, from 0, of so many.

        Raises:
            ArgumentError: there is no such layer.
        """
        return count - 1 if self.layer is None else check_index("layer", self.layer, count)

    def of_layer(self, weights: Tensor) -> Tensor:
        """Return the weights (…, T, Tk) of the head among those of a layer, (…, H, T, Tk).

        Raises:
            ArgumentError: there is no such head.
        """
        return (
            weights.mean(-3)
            if self.head is None
            else weights[..., check_index("head", self.head, weights.shape[-3]), :, :]
        )

    def __str__(self) -> str:
        layer = "last layer" if self.layer is None else f"layer {self.layer}"
        head = "mean over heads" if self.head is None else f"head {self.head}"
        return f"{layer}, {head}, rows about {ABOUT_LABELS[self.about]}"


@torch.no_grad()
def forced_batches(
    model: EncoderDecoder[Any], sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]
) -> Iterator[tuple[np.ndarray, dict[str, Tensor]]]:
    """Return the attention of each step to the source's tokens, while the model is given the target.

    Weights depend neither on the batch nor on the order of the pairs, except for the last bits on processors whose
    matrix products depend on a row's index.

    Args:
        model: in evaluation mode.
        sources: tokens.
        targets: tokens, without BOS and EOS.

    Returns:
        Batches in any order, without pairs with an empty side: the pairs' indices (N,), and by the name of each layer
        the weights (N, H, T, Tk), padded, a row for each step; the last step of a pair produces EOS.

    Raises:
        ArgumentError: the model has no attention to the source.
    """
    for rows, maps in _forced_maps(model, sources, targets):
        steps = max(len(targets[row]) for row in rows.tolist()) + 1
        yield rows, {name: weights.dense().float().cpu()[: len(rows), :, :steps] for name, weights in maps.items()}


@torch.no_grad()
def _forced_maps(
    model: EncoderDecoder[Any], sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]
) -> Iterator[tuple[np.ndarray, dict[str, AttentionMap]]]:
    """Return the pairs' indices (N,) of a batch, and the maps of all layers' attention to the source, padded."""
    device = next(model.parameters()).device
    source, target = Sequences(sources), Sequences([[BOS, *target] for target in targets])
    lengths, order = np.maximum(source.lengths, target.lengths), _full_pairs(source, target)
    for rows in cut_batches(order[lengths[order].argsort(kind="stable")], lengths, BATCH):
        filled = _filled(rows, lengths)
        source_ids, target_ids = (
            torch.from_numpy(sequences.pad(filled, KEY_MULTIPLE)[:, : model.longest]).to(device)
            for sequences in (source, target)
        )
        with watch(model, own_thread=True) as maps:
            model.decode(model.encode(source_ids, torch.from_numpy(source.lengths[filled]).to(device)), target_ids)
        attentions = {name: weights for name, weights in maps.items() if name.endswith("cross_attention")}
        if not attentions:
            raise ArgumentError("a model without attention to the source has no alignment")
        yield rows, attentions


@torch.inference_mode()
def selected_batches(
    model: EncoderDecoder[Any],
    sources: Sequence[Sequence[int]],
    targets: Sequence[Sequence[int]],
    selector: AttentionSelector,
) -> Iterator[tuple[np.ndarray, Tensor]]:
    """Return the selected attention of each target token to the source's tokens, a batch of pairs at a time.

    See `forced_batches`. A model that computes a layer's attention by itself computes nothing beyond it, and pads
    targets by nothing: neither changes a row by more than the last bits. In inference mode, where the compiled library
    encodes sources without their padding.

    Args:
        model: in evaluation mode.
        sources: tokens.
        targets: tokens, without BOS and EOS.
        selector: layer, head and meaning of the rows.

    Returns:
        Batches in any order, without pairs with an empty side: the pairs' indices (N,), and the weights (N, Tq, Tk) in
        float32 on the CPU, padded, a row for each token of a target.

    Raises:
        ArgumentError: the model has no attention to the source, or not this layer or head.
    """
    layers = model.source_attention_layers
    if not layers:
        for rows, maps in _forced_maps(model, sources, targets):
            steps = max(len(targets[row]) for row in rows.tolist())
            weights = _of_rows(list(maps.values())[selector.layer_index(len(maps))], selector, len(rows))
            yield rows, weights[:, :steps] if selector.about == "produced" else weights[:, 1 : steps + 1]
        return
    device, longest, layer = next(model.parameters()).device, model.longest, selector.layer_index(layers)
    source, target = Sequences(sources), Sequences([[BOS, *target] for target in targets])
    order = _full_pairs(source, target)
    # sources are padded in any case; targets of one length side by side need no padding
    order = order[np.lexsort((target.lengths[order], -(-source.lengths[order] // KEY_MULTIPLE)))]
    lengths = np.maximum(source.lengths, target.lengths)
    for rows in cut_batches(order, lengths, BATCH):
        filled = _filled(rows, lengths)
        source_ids = torch.from_numpy(source.pad(filled, KEY_MULTIPLE)[:, :longest]).to(device)
        tokens = torch.from_numpy(target.pad(filled)).to(device)
        # what follows a step changes nothing: the last one produces EOS, which no row is about
        tokens = tokens[:, :-1] if selector.about == "produced" else tokens
        memory = model.encode(source_ids, torch.from_numpy(source.lengths[filled]).to(device))
        weights = _of_rows(model.source_attention(memory, tokens, layer), selector, len(rows))
        yield rows, weights if selector.about == "produced" else weights[:, 1:]


def source_attention(
    model: EncoderDecoder[Any],
    sources: Sequence[Sequence[int]],
    targets: Sequence[Sequence[int]],
    selector: AttentionSelector | None = None,
) -> list[Tensor]:
    """Return the selected attention of each target token to the source's tokens; see `forced_batches`.

    Args:
        model: in evaluation mode.
        sources: tokens.
        targets: tokens, without BOS and EOS.
        selector: the last layer, the mean over heads and rows about the token produced by default.

    Returns:
        For each pair (Tq, Tk), a row for each target token; either side may be empty.
    """
    maps = [torch.zeros(len(target), len(source)) for source, target in zip(sources, targets, strict=True)]
    for rows, batch in selected_batches(model, sources, targets, selector or AttentionSelector()):
        for row, weights in zip(rows.tolist(), batch, strict=True):
            maps[row] = weights[: len(targets[row]), : len(sources[row])]
    return maps


def _full_pairs(source: Sequences, target: Sequences) -> np.ndarray:
    """Return the indices of the pairs without an empty side; targets begin with BOS."""
    return (source.lengths * (target.lengths - 1)).nonzero()[0]


def _of_rows(weights: AttentionMap, selector: AttentionSelector, count: int) -> Tensor:
    """Return the weights (count, T, Tk) of the selected head of the first pairs, computed some rows at a time."""
    batch, heads, queries, keys = weights.shape
    step = max(1, MAX_WEIGHTS // (batch * heads * keys))
    if step >= queries:
        return selector.of_layer(weights.dense())[:count].float().cpu()
    rows = [
        selector.of_layer(weights[..., begin : begin + step, :])[:count].float().cpu()
        for begin in range(0, queries, step)
    ]
    return torch.cat(rows, 1)


def _filled(rows: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Return rows with the last one repeated up to a multiple, by which products do not depend on their number.

    A pair that fills a batch by itself is always alone, and is not repeated: its copies would take memory.
    """
    if lengths[rows[0]] > BATCH_TOKENS:
        return rows
    return np.pad(rows, (0, round_up(len(rows), ROW_MULTIPLE) - len(rows)), "edge")
