"""The interface of losses, and the loss of encoder–decoders for a batch and for a set of pairs."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from attent.models.ensemble import Ensemble
from attent.models.model import EncoderDecoder
from attent.ops.linear_cross_entropy import linear_cross_entropy
from attent.text.batches import Batch, BatchSize, Examples
from attent.text.tokenizer import PAD
from attent.training.autotune import Precision, autocast

# (model, batch of its task, label smoothing, precision) → the loss, a mean over the batch's answers in nats.
LossFunction = Callable[[Any, Any, float, Precision], Tensor]


def translation_cross_entropy(
    model: EncoderDecoder[Any], batch: Batch, label_smoothing: float, precision: Precision
) -> Tensor:
    """Return the mean cross entropy of a batch's target tokens in nats. PAD does not count.

    An ensemble has no smoothing.
    """
    with autocast(batch.source.device, precision):
        features = model.decode(model.encode(batch.source, batch.source_lengths), batch.target_in)
        target = batch.target_out.flatten()
        # The batch knows how many tokens are not padding, which avoids waiting for an accelerator.
        token_index = torch.nonzero_static(target != PAD, size=batch.tokens)[:, 0]
        features = features.flatten(0, 1)[token_index]
        if isinstance(model, Ensemble):
            return nn.functional.cross_entropy(model.output(features), target[token_index])
        layer = model.to_logits
        return linear_cross_entropy(features, layer.weight, layer.bias, target[token_index], label_smoothing)


@torch.no_grad()
def mean_loss(model: EncoderDecoder[Any], data: Examples[Batch], size: BatchSize) -> float:
    """Return the mean cross entropy of all target tokens in nats per token, without smoothing and in float32.

    Args:
        model: the model, in evaluation mode.
        data: the pairs, at least one.
        size: the batch size.
    """
    device = next(model.parameters()).device
    batches = [batch.trim_padding(model.longest) for _, batch in data.sorted_batches(size)]
    total = sum(
        translation_cross_entropy(model, batch.to(device), 0.0, "float32").item() * batch.tokens for batch in batches
    )
    return total / sum(batch.tokens for batch in batches)
