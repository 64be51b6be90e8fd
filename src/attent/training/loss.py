"""The loss of a translator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from attent.data.batches import Batch, BatchSize, Bitext
from attent.data.tokenizer import PAD
from attent.models.encoder_decoder import EncoderDecoder
from attent.ops.linear_cross_entropy import output_loss
from attent.training.autotune import Precision, autocast

# What training is handed: of a model and one batch of its task, with the share of label smoothing and the precision, the loss, a mean
# of the batch's answers in nats, and the model width E that a schedule may ask for.
LossFunction = Callable[[Any, Any, float, Precision], tuple[Tensor, int]]


def loss_of(model: EncoderDecoder[Any], batch: Batch, label_smoothing: float, precision: Precision) -> tuple[Tensor, int]:
    """The loss of one batch, the mean of its tokens in nats, and the model width E that a schedule may ask for.

    PAD counts for nothing.
    """
    with autocast(batch.source.device, precision):
        features = model.decode(model.encode(batch.source, batch.source_lengths), batch.target_in)
        target, layer = batch.target_out.flatten(), model.to_logits
        # their number is known, so that an accelerator need not be waited for
        said = torch.nonzero_static(target != PAD, size=batch.tokens)[:, 0]
        features = features.flatten(0, 1)[said]
        return output_loss(features, layer.weight, layer.bias, target[said], label_smoothing), features.shape[-1]


@torch.no_grad()
def mean_loss(model: EncoderDecoder[Any], data: Bitext, size: BatchSize) -> float:
    """The mean cross entropy over all the tokens of some pairs, in nats per token, without smoothing and in float32.

    Args:
        model: in evaluation mode.
        data: the pairs, at least one.
        size: how many are looked at side by side.
    """
    device = next(model.parameters()).device
    batches = [batch.within(model.longest) for _, batch in data.once(size)]
    total = sum(loss_of(model, batch.to(device), 0.0, "float32")[0].item() * batch.tokens for batch in batches)
    return total / sum(batch.tokens for batch in batches)
