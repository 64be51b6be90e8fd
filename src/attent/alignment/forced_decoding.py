"""Attention to the source under forced decoding, in which a translator is given the target.

Step t of a decoder reads token y_{t−1}, starting with BOS, and produces y_t. Its attention to the source has one row,
which can be about either of two tokens:

- **the token produced**: row t is about y_t. The context of row t goes into p(y_t), in every kind of model.
- **the token read in**: row t is about y_{t−1}; the row of the next step belongs to y_t.

The default is the token produced. Bahdanau's decoder supports only that: its query s_{t−1} has not read y_{t−1} yet
(`BahdanauDecoder`), except with `token_in_query`. Luong's state and a Transformer's layer have read it, so a row can be
about either. Luong et al. (2015, footnote 14, arXiv 1508.04025) found location-based weights to be about the word
produced and content-based ones about the word read in; Garg et al. (2019, arXiv 1909.02074) read the word produced from
the penultimate layer; Chen et al. (2020, arXiv 2004.14837) found that the lower layers of a Transformer's decoder align
the word read in, with better results. `attent.alignment.aligner.rank_selectors` decides for a given model;
docs/alignments.md has our results.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import torch
from torch import Tensor

from attent.attention.capture.watch import watch
from attent.attention.maps.attention_map import AttentionMap
from attent.errors import check_index, check_known, refuse
from attent.models.ensemble import Ensemble
from attent.models.model import EncoderDecoder
from attent.runs.config import RunConfig
from attent.text.batches import KEY_MULTIPLE, ROW_MULTIPLE, BatchSize, Sequences, cut_batches, round_up
from attent.text.tokenizer import BOS

About = Literal["produced", "read"]
ABOUT: tuple[About, ...] = get_args(About)
ABOUT_LABELS: dict[About, str] = {"produced": "the token produced", "read": "the token read in"}
# Limits the weights of one batch to some ten megabytes per layer.
BATCH_TOKENS = 2048
BATCH = BatchSize(tokens=BATCH_TOKENS)
# Maximum weights of a layer, over all heads and rows, computed at a time.
MAX_WEIGHTS = 2**24


@dataclass(frozen=True)
class AttentionSelector:
    """Selects a layer, a head and the meaning of rows among a model's attention weights.

    Args:
        layer: zero-based index among the layers with attention to the source; the last by default.
        head: zero-based index of the head; the mean over heads by default.
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
        """Return the selector stored with a run, or the default if there is none.

        Args:
            config: the run's config; None for a model that does not come from a run.
        """
        chosen = None if config is None else config.alignment
        return cls() if chosen is None else cls(chosen.layer, chosen.head, chosen.about)

    def of(self, attentions: Mapping[str, Tensor]) -> Tensor:
        """Return the selected weights, (…, Tq, Tk), with a row for each target token except EOS.

        Args:
            attentions: attention to the source by layer name, (…, H, Tq + 1, Tk) each, with a row per step.

        Raises:
            ArgumentError: there is no such layer or no such head.
        """
        weights = self.of_layer(list(attentions.values())[self.layer_index(len(attentions))])
        return weights[..., :-1, :] if self.about == "produced" else weights[..., 1:, :]

    def layer_index(self, count: int) -> int:
        """Return the zero-based index of the selected layer among `count` layers.

        Raises:
            ArgumentError: there is no such layer.
        """
        return count - 1 if self.layer is None else check_index("layer", self.layer, count)

    def of_layer(self, weights: Tensor) -> Tensor:
        """Return the selected head's weights (…, T, Tk) from those of a layer, (…, H, T, Tk).

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
    """Yield the attention of each step to the source tokens under forced decoding.

    Weights depend neither on the batch nor on the order of the pairs, except for the last bits on processors whose
    matrix products depend on a row's index.

    Args:
        model: in evaluation mode.
        sources: source tokens of each pair.
        targets: target tokens of each pair, without BOS and EOS.

    Returns:
        Batches in any order, without pairs with an empty side: the pairs' indices (N,), and the padded weights (N, H,
        T, Tk) by layer name, with a row per step; the last step of a pair produces EOS.

    Raises:
        ArgumentError: the model has no attention to the source.
    """
    for rows, maps, *_ in forced_passes(model, sources, targets):
        steps = max(len(targets[row]) for row in rows.tolist()) + 1
        yield rows, {name: weights.dense().float().cpu()[: len(rows), :, :steps] for name, weights in maps.items()}


class ForcedPass(NamedTuple):
    """The results of forced decoding for a batch of pairs, padded to B pairs, T steps and Tk source tokens.

    Args:
        rows: the indices of the pairs, (N,).
        maps: the attention to the source by layer name, (B, H, T, Tk) each.
        memory: the encoded sources, (B, Tk, E).
        features: the decoder's features, of which the model's output layer makes logits, (B, T, D).
    """

    rows: np.ndarray
    maps: dict[str, AttentionMap]
    memory: Tensor
    features: Tensor

    def mean_weights(self) -> Tensor:
        """Return the attention to the source, mean over layers and heads, (N, T, Tk) in float32 on the CPU."""
        selector, count = AttentionSelector(), len(self.rows)
        return torch.stack([_of_rows(weights, selector, count) for weights in self.maps.values()]).mean(0)


@torch.no_grad()
def forced_passes(
    model: EncoderDecoder[Any], sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]
) -> Iterator[ForcedPass]:
    """Yield the results of forced decoding, batch by batch; arguments and errors as for `forced_batches`."""
    device = next(model.parameters()).device
    source, target = Sequences(sources), Sequences([[BOS, *target] for target in targets])
    lengths, order = np.maximum(source.lengths, target.lengths), _full_pairs(source, target)
    for rows in cut_batches(order[lengths[order].argsort(kind="stable")], lengths, BATCH):
        filled = _round_up_rows(rows, lengths)
        source_ids, target_ids = (
            torch.from_numpy(sequences.pad(filled, KEY_MULTIPLE)[:, : model.longest]).to(device)
            for sequences in (source, target)
        )
        with watch(model, own_thread=True) as maps:
            memory = model.encode(source_ids, torch.from_numpy(source.lengths[filled]).to(device))
            features = model.decode(memory, target_ids)
        attentions = {name: weights for name, weights in maps.items() if name.endswith("cross_attention")}
        refuse((not attentions, "a model without attention to the source has no alignment"))
        yield ForcedPass(rows, attentions, memory.features, features)


@torch.inference_mode()
def selected_batches(
    model: EncoderDecoder[Any],
    sources: Sequence[Sequence[int]],
    targets: Sequence[Sequence[int]],
    selector: AttentionSelector,
) -> Iterator[tuple[np.ndarray, Tensor]]:
    """Yield the selected attention of each target token to the source tokens, one batch of pairs at a time.

    See `forced_batches`. Those of an ensemble are the mean over its models. A model that can compute a single layer's
    attention computes nothing beyond that layer, and its targets are not padded to a multiple; this changes at most the
    last bits of a row. Computation runs in inference mode, in which the compiled library encodes sources without their
    padding.

    Args:
        model: in evaluation mode.
        sources: source tokens of each pair.
        targets: target tokens of each pair, without BOS and EOS.
        selector: layer, head and meaning of the rows.

    Returns:
        Batches in any order, without pairs with an empty side: the pairs' indices (N,), and the padded weights (N, Tq,
        Tk) in float32 on the CPU, with a row per target token.

    Raises:
        ArgumentError: the model has no attention to the source, or no such layer or head.
    """
    if isinstance(model, Ensemble):
        # each model may have other layers
        of_models = [selected_batches(own, sources, targets, selector) for own in model.members]
        for batches in zip(*of_models, strict=True):
            yield batches[0][0], torch.stack([weights for _, weights in batches]).mean(0)
        return
    layers = model.source_attention_layers
    if not layers:
        for rows, maps, *_ in forced_passes(model, sources, targets):
            steps = max(len(targets[row]) for row in rows.tolist())
            weights = _of_rows(list(maps.values())[selector.layer_index(len(maps))], selector, len(rows))
            yield rows, weights[:, :steps] if selector.about == "produced" else weights[:, 1 : steps + 1]
        return
    device, longest, layer = next(model.parameters()).device, model.longest, selector.layer_index(layers)
    source, target = Sequences(sources), Sequences([[BOS, *target] for target in targets])
    order = _full_pairs(source, target)
    # sources are padded anyway; adjacent targets of equal length need no padding
    order = order[np.lexsort((target.lengths[order], -(-source.lengths[order] // KEY_MULTIPLE)))]
    lengths = np.maximum(source.lengths, target.lengths)
    for rows in cut_batches(order, lengths, BATCH):
        filled = _round_up_rows(rows, lengths)
        source_ids = torch.from_numpy(source.pad(filled, KEY_MULTIPLE)[:, :longest]).to(device)
        tokens = torch.from_numpy(target.pad(filled)).to(device)
        # later tokens do not affect a step: the last one produces EOS, which no row is about
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
    """Return the selected attention of each target token to the source tokens; see `forced_batches`.

    Args:
        model: in evaluation mode.
        sources: source tokens of each pair.
        targets: target tokens of each pair, without BOS and EOS.
        selector: the last layer, the mean over heads and rows about the token produced by default.

    Returns:
        The weights of each pair, (Tq, Tk), with a row per target token; either side may be empty.
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
    """Return the selected head's weights (count, T, Tk) of the first pairs, computed in blocks of rows."""
    batch, heads, queries, keys = weights.shape
    step = max(1, MAX_WEIGHTS // (batch * heads * keys))
    if step >= queries:
        return selector.of_layer(weights.dense())[:count].float().cpu()
    tiles = (weights[..., begin : begin + step, :] for begin in range(0, queries, step))
    return torch.cat([selector.of_layer(tile)[:count].float().cpu() for tile in tiles], 1)


def _round_up_rows(rows: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Repeat the last row up to a multiple, so that matrix products do not depend on the number of rows.

    A pair that fills a batch by itself is always alone, and is not repeated, to save memory.
    """
    if lengths[rows[0]] > BATCH_TOKENS:
        return rows
    return np.pad(rows, (0, round_up(len(rows), ROW_MULTIPLE) - len(rows)), "edge")
