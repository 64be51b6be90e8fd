"""The loss of a translator."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from attent.axes import Logits, Tokens
from attent.data.batches import Batch, BatchSize, Bitext
from attent.data.tokenizer import PAD
from attent.models.encoder_decoder import EncoderDecoder
from attent.training.pace import Precision, autocast


def cross_entropy(logits: Logits, target: Tokens, label_smoothing: float = 0.0) -> Tensor:
    """The mean cross entropy of the target's tokens, in nats per token; PAD counts for nothing.

        −(1 − ε) log p(y) − ε/V Σ_v log p(v)

    Source: Szegedy et al. (2016), §7, arXiv 1512.00567; Vaswani et al. (2017), §5.4, arXiv 1706.03762.

    Args:
        logits: (B, T, V).
        target: the tokens to be told, (B, T).
        label_smoothing: ε, 0 to 1.

    Returns:
        A scalar, computed in float32.
    """
    return F.cross_entropy(logits.flatten(0, 1).float(), target.flatten(), ignore_index=PAD, label_smoothing=label_smoothing)


def loss_of(model: EncoderDecoder[Any], batch: Batch, label_smoothing: float, precision: Precision) -> tuple[Tensor, int]:
    """The loss of one batch, a scalar in nats per token, and the model width E that a schedule may ask for."""
    with autocast(batch.source.device, precision):
        features = model.decode(model.encode(batch.source, batch.source_lengths), batch.target_in)
        return cross_entropy(model.output(features), batch.target_out, label_smoothing), features.shape[-1]


@torch.no_grad()
def mean_loss(model: EncoderDecoder[Any], data: Bitext, size: BatchSize) -> float:
    """The mean cross entropy over all the tokens of some pairs, in nats per token, without smoothing and in float32.

    Args:
        model: in evaluation mode.
        data: the pairs, at least one.
        size: how many are looked at side by side.
    """
    device = next(model.parameters()).device
    batches = [batch for _, batch in data.once(size)]
    total = sum(loss_of(model, batch.to(device), 0.0, "float32")[0].item() * batch.tokens for batch in batches)
    return total / sum(batch.tokens for batch in batches)
