"""The loop that trains a model of plain PyTorch, an update at a time."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attent.data.batches import Batch
from attent.data.tokenizer import PAD
from attent.training.autotune import Precision
from attent.training.settings import TrainingSettings


def update_of(model: nn.Module, settings: TrainingSettings, precision: Precision, *, compiled: bool = False) -> Callable[[Batch], None]:
    """One update of a module, wherever it lies: loss, gradients, clipping, Adam; 16 bits through autocast.

    Args:
        model: a batch → logits (B, Tt, V).
        settings: the optimizer's, the label smoothing and the clipping.
        precision: in which it computes.
        compiled: whether the loss goes through torch.compile.
    """
    parameters = list(model.train().parameters())
    device = parameters[0].device
    optimizer = torch.optim.Adam(parameters, lr=settings.learning_rate, betas=settings.betas)

    def loss(batch: Batch) -> Tensor:
        with torch.autocast(device.type, torch.bfloat16, enabled=precision == "bfloat16"):
            logits = model(batch)
        said = batch.target_out.flatten()
        return F.cross_entropy(logits.float().flatten(0, 1), said, ignore_index=PAD, label_smoothing=settings.label_smoothing)

    whole = torch.compile(loss, dynamic=True) if compiled else loss

    def update(batch: Batch) -> None:
        optimizer.zero_grad()
        whole(batch.to(device)).backward()
        if settings.clip is not None:
            nn.utils.clip_grad_norm_(parameters, settings.clip)
        optimizer.step()

    return update
