"""Training losses of each task, and the scores that validation computes from them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from attent.models.encoder import EncoderModel
from attent.models.language_model import LanguageModel
from attent.models.model import EncoderDecoder
from attent.ops.linear_cross_entropy import linear_cross_entropy
from attent.tasks.classification.examples import LabelledBatch
from attent.tasks.fill_mask.examples import MaskedBatch, MaskedLines
from attent.tasks.text_generation.examples import LanguageModelBatch, LanguageModelExamples
from attent.text.batches import Batch, BatchSize, Bitext
from attent.text.tokenizer import PAD
from attent.training.autotune import Precision, autocast

# (model, batch of its task, label smoothing, precision) → the loss, a mean over the batch's answers in nats.
LossFunction = Callable[[Any, Any, float, Precision], Tensor]


def translation_cross_entropy(
    model: EncoderDecoder[Any], batch: Batch, label_smoothing: float, precision: Precision, *, r_drop: float = 0.0
) -> Tensor:
    """Return the mean cross entropy of a batch's target tokens in nats. PAD does not count.

    With `r_drop` = α the model reads each pair twice, with different dropout, and the loss is

        ½ (CE(p) + CE(q)) + α/4 (KL(p‖q) + KL(q‖p))

    Source: Liang et al. (2021), eq. 4, arXiv 2106.14448, halved so that the loss does not depend on α where p = q.
    """
    source, lengths, target_in = batch.source, batch.source_lengths, batch.target_in
    if r_drop:
        source, lengths, target_in = (torch.cat([tensor, tensor]) for tensor in (source, lengths, target_in))
    with autocast(batch.source.device, precision):
        features = model.decode(model.encode(source, lengths), target_in)
        target, layer = batch.target_out.flatten(), model.to_logits
        # The batch knows how many tokens are no padding, so that an accelerator need not be waited for.
        token_index = torch.nonzero_static(target != PAD, size=batch.tokens)[:, 0]
        row_index = token_index
        if r_drop:
            # The two of a token in turn.
            row_index = torch.stack([token_index, token_index + len(target)], 1).flatten()
            token_index = token_index.repeat_interleave(2)
        features = features.flatten(0, 1)[row_index]
        return linear_cross_entropy(features, layer.weight, layer.bias, target[token_index], label_smoothing, r_drop)


@torch.no_grad()
def mean_loss(model: EncoderDecoder[Any], data: Bitext, size: BatchSize) -> float:
    """Return the mean cross entropy of all target tokens in nats per token, without smoothing and in float32.

    Args:
        model: in evaluation mode.
        data: at least one pair.
        size: of the batches.
    """
    device = next(model.parameters()).device
    batches = [batch.trim_padding(model.longest) for _, batch in data.sorted_batches(size)]
    total = sum(
        translation_cross_entropy(model, batch.to(device), 0.0, "float32").item() * batch.tokens for batch in batches
    )
    return total / sum(batch.tokens for batch in batches)


def masked_lm_cross_entropy(
    model: EncoderModel, batch: MaskedBatch, label_smoothing: float, precision: Precision
) -> Tensor:
    """Return the mean cross entropy of a batch's masked tokens in nats.

        −1/N Σ_n log p(token n | the line with its masks)

    Source: Devlin et al. (2018), §3.1, arXiv 1810.04805.
    """
    with autocast(batch.token_ids.device, precision):
        features = model(batch.token_ids, batch.lengths).flatten(0, 1)[batch.positions]
        layer = model.to_logits
        return linear_cross_entropy(features, layer.weight, layer.bias, batch.labels, label_smoothing)


@torch.no_grad()
def masked_lm_scores(model: EncoderModel, data: MaskedLines, size: BatchSize) -> tuple[float, float]:
    """Return the mean cross entropy of masked tokens in nats, and the percentage of them that the model predicts.

    The same tokens are masked on every call, and all of them by MASK.

    Args:
        model: in evaluation mode.
        data: at least one line.
        size: of the batches.
    """
    device, total, correct, tokens = next(model.parameters()).device, 0.0, 0, 0
    for _, batch in data.sorted_batches(size):
        batch = batch.to(device)
        logits = model.output(model(batch.token_ids, batch.lengths).flatten(0, 1)[batch.positions])  # (N, V)
        total += float(torch.nn.functional.cross_entropy(logits, batch.labels, reduction="sum"))
        correct += int((logits.argmax(-1) == batch.labels).sum())
        tokens += batch.tokens
    return total / tokens, 100 * correct / tokens


def language_model_cross_entropy(
    model: LanguageModel, batch: LanguageModelBatch, label_smoothing: float, precision: Precision
) -> Tensor:
    """Return the mean cross entropy of a batch's tokens, each predicted from those before it, in nats.

    PAD does not count. −1/N Σ_t log p(x_t | x_1 … x_{t−1})
    """
    with autocast(batch.inputs.device, precision):
        labels, layer = batch.labels.flatten(), model.to_logits
        token_index = torch.nonzero_static(labels != PAD, size=batch.tokens)[:, 0]
        features = model(batch.inputs).flatten(0, 1)[token_index]
        return linear_cross_entropy(features, layer.weight, layer.bias, labels[token_index], label_smoothing)


@torch.no_grad()
def language_model_loss(model: LanguageModel, data: LanguageModelExamples, size: BatchSize) -> float:
    """Return the mean cross entropy of all tokens in nats per token, without smoothing and in float32.

    Args:
        model: in evaluation mode.
        data: at least one row.
        size: of the batches.
    """
    device, total, tokens = next(model.parameters()).device, 0.0, 0
    for _, batch in data.sorted_batches(size):
        total += language_model_cross_entropy(model, batch.to(device), 0.0, "float32").item() * batch.tokens
        tokens += batch.tokens
    return total / tokens


def classification_cross_entropy(
    model: EncoderModel, batch: LabelledBatch, label_smoothing: float, precision: Precision
) -> Tensor:
    """Return the mean cross entropy of a batch's classes in nats.

        y = softmax(W z⁰);  loss = −log y[class]

    z⁰ are the features of the class token: Dosovitskiy et al. (2020), §3.1, eq. 4, arXiv 2010.11929.
    """
    batch = batch.trim_padding(model.longest)
    with autocast(batch.lengths.device, precision):
        features, layer = model(batch.sequence, batch.lengths)[:, 0], model.to_logits
        return linear_cross_entropy(features, layer.weight, layer.bias, batch.classes, label_smoothing)
