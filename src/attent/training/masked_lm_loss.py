"""The loss of guessing blanks."""

from __future__ import annotations

import torch
from torch import Tensor

from attent.data.batches import BatchSize
from attent.data.masked_lm import BlankedBatch, BlankedLines
from attent.models.encoder import EncoderModel
from attent.ops.linear_cross_entropy import output_loss
from attent.training.autotune import Precision, autocast


def blank_loss(model: EncoderModel, batch: BlankedBatch, label_smoothing: float, precision: Precision) -> tuple[Tensor, int]:
    """The mean cross entropy of a batch's blanks in nats, and the model width E that a schedule may ask for.

        −1/N Σ_n log p(what stood at blank n | the line with its blanks)

    Source: Devlin et al. (2018), §3.1, arXiv 1810.04805.
    """
    with autocast(batch.lines.device, precision):
        features = model(batch.lines, batch.lengths).flatten(0, 1)[batch.places]
        layer = model.to_logits
        return output_loss(features, layer.weight, layer.bias, batch.told, label_smoothing), features.shape[-1]


@torch.no_grad()
def blanks_guessed(model: EncoderModel, data: BlankedLines, size: BatchSize) -> tuple[float, float]:
    """How well a model guesses the blanks of some lines, the same ones every time, all of them masked.

    Args:
        model: in evaluation mode.
        data: the lines, at least one.
        size: how many are looked at side by side.

    Returns:
        The mean cross entropy in nats per blank, and the share of blanks whose likeliest token is right, in per cent.
    """
    device, total, right, blanks = next(model.parameters()).device, 0.0, 0, 0
    for _, batch in data.once(size):
        batch = batch.to(device)
        logits = model.output(model(batch.lines, batch.lengths).flatten(0, 1)[batch.places])  # (N, V)
        total += float(torch.nn.functional.cross_entropy(logits, batch.told, reduction="sum"))
        right += int((logits.argmax(-1) == batch.told).sum())
        blanks += batch.tokens
    return total / blanks, 100 * right / blanks
