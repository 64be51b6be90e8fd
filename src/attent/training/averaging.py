"""Averages of the weights during training, which translate better than the last weights."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import get_ema_multi_avg_fn

from attent.training.settings import TrainingSettings


class WeightAverage:
    """The average of the weights that a training run ends with.

        ema:   w̄ ← d w̄ + (1 − d) w,  d = min(decay, (1 + u) / (10 + u)) at update u
        last:  the mean of the last n snapshots of the weights

    Source: Polyak & Juditsky (1992); the mean of the last checkpoints in Vaswani et al. (2017), §6.1, arXiv 1706.03762.

    Args:
        parameters: the weights that training changes in place.
        settings: the kind of average, its decay or its snapshots.
    """

    def __init__(self, parameters: Sequence[nn.Parameter], settings: TrainingSettings) -> None:
        self.parameters, self.settings = parameters, settings
        self.ema = _clone(parameters) if settings.averaging == "ema" else []
        self.snapshots: deque[list[Tensor]] = deque(maxlen=settings.last)

    @torch.no_grad()
    def add(self, update: int) -> None:
        """Add the weights after an update to the average."""
        if self.settings.averaging == "ema":
            decay = min(self.settings.ema_decay, (1 + update) / (10 + update))
            get_ema_multi_avg_fn(decay)(self.ema, list(self.parameters), update)
        elif self.settings.averaging == "last" and update % self.settings.last_every == 0:
            self.snapshots.append(_clone(self.parameters))

    @torch.no_grad()
    def apply(self) -> None:
        """Overwrite the weights with their average."""
        if self.settings.averaging == "ema":
            _copy(self.ema, self.parameters)
        elif self.snapshots:
            _copy([torch.stack(tensors).mean(0) for tensors in zip(*self.snapshots, strict=True)], self.parameters)

    def state(self) -> dict[str, Tensor]:
        """Return the tensors of the average by name, for a checkpoint."""
        groups = (
            {"moving": self.ema} if self.ema else {f"{index}": tensors for index, tensors in enumerate(self.snapshots)}
        )
        return {
            f"{group}/{number}": tensor for group, tensors in groups.items() for number, tensor in enumerate(tensors)
        }

    def parameter_of(self, name: str) -> nn.Parameter:
        """Return the parameter that belongs to a tensor of `state`."""
        return self.parameters[int(name.rpartition("/")[2])]

    @torch.no_grad()
    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Restore what `state` returned.

        Raises:
            KeyError: a tensor is missing.
        """
        if self.ema:
            _copy([state[f"moving/{number}"] for number in range(len(self.ema))], self.ema)
            return
        self.snapshots.clear()
        for index in range(len(state) // max(len(self.parameters), 1)):
            snapshot = _clone(self.parameters)
            _copy([state[f"{index}/{number}"] for number in range(len(snapshot))], snapshot)
            self.snapshots.append(snapshot)

    @contextmanager
    def average_parameters(self) -> Iterator[None]:
        """Replace the weights by their average within the block."""
        if self.settings.averaging == "none":
            yield
            return
        weights = _clone(self.parameters)
        self.apply()
        try:
            yield
        finally:
            with torch.no_grad():
                _copy(weights, self.parameters)


def _clone(tensors: Sequence[Tensor]) -> list[Tensor]:
    return [tensor.detach().clone() for tensor in tensors]


def _copy(source: Sequence[Tensor], target: Sequence[Tensor]) -> None:
    for to, value in zip(target, source, strict=True):
        to.copy_(value)
