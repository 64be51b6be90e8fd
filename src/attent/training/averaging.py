"""Means of the weights along training, which translate better than the last weights alone."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import get_ema_multi_avg_fn

from attent.training.settings import TrainingSettings


class Average:
    """The weights that are kept of a training run.

        ema:   w̄ ← d w̄ + (1 − d) w,  d = min(decay, (1 + u) / (10 + u)) at update u
        last:  the mean of the last n weights that were set aside

    Source: Polyak & Juditsky (1992); the mean of the last checkpoints in Vaswani et al. (2017), §6.1, arXiv 1706.03762.

    Args:
        parameters: the weights that training changes in place.
        settings: which mean, and over what.
    """

    def __init__(self, parameters: Sequence[nn.Parameter], settings: TrainingSettings) -> None:
        self.parameters, self.settings = parameters, settings
        self.moving = _copies(parameters) if settings.averaging == "ema" else []
        self.aside: deque[list[Tensor]] = deque(maxlen=settings.last)

    @torch.no_grad()
    def add(self, update: int) -> None:
        """Take the weights after an update into account."""
        match self.settings.averaging:
            case "ema":
                decay = min(self.settings.ema_decay, (1 + update) / (10 + update))
                get_ema_multi_avg_fn(decay)(self.moving, list(self.parameters), update)
            case "last" if update % self.settings.last_every == 0:
                self.aside.append(_copies(self.parameters))
            case _:
                pass

    @torch.no_grad()
    def apply(self) -> None:
        """Put the mean in the place of the weights."""
        if self.settings.averaging == "ema":
            mean = self.moving
        elif self.aside:
            mean = [torch.stack(places).mean(0) for places in zip(*self.aside, strict=True)]
        else:
            return
        for parameter, value in zip(self.parameters, mean, strict=True):
            parameter.copy_(value)

    @contextmanager
    def applied(self) -> Iterator[None]:
        """The mean in the place of the weights, until the block ends."""
        if self.settings.averaging == "none":
            yield
            return
        last = _copies(self.parameters)
        self.apply()
        try:
            yield
        finally:
            with torch.no_grad():
                for parameter, value in zip(self.parameters, last, strict=True):
                    parameter.copy_(value)


def _copies(parameters: Sequence[nn.Parameter]) -> list[Tensor]:
    return [parameter.detach().clone() for parameter in parameters]
