"""Means of the weights along training, which translate better than the last weights alone."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import get_ema_multi_avg_fn

from attent.training.settings import TrainingSettings


class WeightAverage:
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
        self.ema = _copies(parameters) if settings.averaging == "ema" else []
        self.snapshots: deque[list[Tensor]] = deque(maxlen=settings.last)

    @torch.no_grad()
    def add(self, update: int) -> None:
        """Take the weights after an update into account."""
        match self.settings.averaging:
            case "ema":
                decay = min(self.settings.ema_decay, (1 + update) / (10 + update))
                get_ema_multi_avg_fn(decay)(self.ema, list(self.parameters), update)
            case "last" if update % self.settings.last_every == 0:
                self.snapshots.append(_copies(self.parameters))
            case _:
                pass

    @torch.no_grad()
    def apply(self) -> None:
        """Put the mean in the place of the weights."""
        if self.settings.averaging == "ema":
            mean = self.ema
        elif self.snapshots:
            mean = [torch.stack(places).mean(0) for places in zip(*self.snapshots, strict=True)]
        else:
            return
        _copy(mean, self.parameters)

    def state(self) -> dict[str, Tensor]:
        """What the mean is made of, by name: for a checkpoint."""
        places = {"moving": self.ema} if self.ema else {f"{place}": copies for place, copies in enumerate(self.snapshots)}
        return {f"{place}/{number}": tensor for place, copies in places.items() for number, tensor in enumerate(copies)}

    def parameter_of(self, name: str) -> nn.Parameter:
        """The weight that a tensor of `state` is about."""
        return self.parameters[int(name.rpartition("/")[2])]

    @torch.no_grad()
    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Go on from what `state` returned.

        Raises:
            KeyError: something is missing in it.
        """
        if self.ema:
            _copy([state[f"moving/{number}"] for number in range(len(self.ema))], self.ema)
            return
        self.snapshots.clear()
        for place in range(len(state) // max(len(self.parameters), 1)):
            copies = _copies(self.parameters)
            _copy([state[f"{place}/{number}"] for number in range(len(copies))], copies)
            self.snapshots.append(copies)

    @contextmanager
    def average_parameters(self) -> Iterator[None]:
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
                _copy(last, self.parameters)


@contextmanager
def evaluation_weights(model: nn.Module, average: WeightAverage) -> Iterator[None]:
    """The model in evaluation mode with the weights that would be kept; back in training afterwards."""
    model.eval()
    with average.average_parameters(), torch.no_grad():
        yield
    model.train()


def _copies(parameters: Sequence[nn.Parameter]) -> list[Tensor]:
    return [parameter.detach().clone() for parameter in parameters]


def _copy(values: Sequence[Tensor], places: Sequence[Tensor]) -> None:
    for place, value in zip(places, values, strict=True):
        place.copy_(value)
