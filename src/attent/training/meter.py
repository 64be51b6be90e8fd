"""What training did since it was last asked: loss and speed."""

from __future__ import annotations

import math
import time

import torch
from torch import Tensor

from attent.errors import AttentError

# Seconds between records; each needs the loss, for which an accelerator must be waited for.
INTERVAL = 1.0


class Meter:
    """Sums up the updates between two records.

    Args:
        device: where the losses are.
        seconds: spent before, in a run that goes on.
    """

    def __init__(self, device: torch.device, seconds: float = 0.0) -> None:
        self.recorded = time.monotonic()
        self.started = self.recorded - seconds
        self.losses, self.updates, self.tokens = torch.zeros((), device=device), 0, 0

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self.started

    @property
    def due(self) -> bool:
        """Whether it is time for a record."""
        return self.updates > 0 and time.monotonic() - self.recorded > INTERVAL

    def add(self, loss: Tensor, tokens: int) -> None:
        """Take one update into account.

        Args:
            loss: a scalar, in nats per token; it is not read here, which would make the update wait.
            tokens: how many target tokens it had.
        """
        self.losses, self.updates, self.tokens = self.losses + loss.detach(), self.updates + 1, self.tokens + tokens

    def record(self, update: int, learning_rate: float) -> dict[str, float]:
        """The mean loss in nats per token and the speed since the last record.

        Raises:
            AttentError: the loss is no longer finite.
        """
        now = time.monotonic()
        loss = float(self.losses) / max(self.updates, 1)
        if not math.isfinite(loss):
            raise AttentError(f"the loss is no longer finite at update {update}; a smaller learning_rate may help")
        speed = self.tokens / max(now - self.recorded, 1e-9)
        self.recorded, self.losses, self.updates, self.tokens = now, torch.zeros_like(self.losses), 0, 0
        return {
            "update": update,
            "loss": loss,
            "tokens_per_second": speed,
            "learning_rate": learning_rate,
            "seconds": now - self.started,
        }
