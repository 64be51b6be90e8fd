"""The optimizer, and its state by the names of the parameters."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from attent.training.settings import TrainingSettings

KINDS: dict[str, type[torch.optim.Adam]] = {"adamw": torch.optim.AdamW, "adam": torch.optim.Adam}


def optimizer_of(parameters: list[nn.Parameter], settings: TrainingSettings) -> torch.optim.Adam:
    """Adam or AdamW that decays matrices alone, in one fused call an update.

    Source: Kingma & Ba (2015), algorithm 1, arXiv 1412.6980; Loshchilov & Hutter (2019), algorithm 2, arXiv 1711.05101.
    """
    matrices = [parameter for parameter in parameters if parameter.dim() > 1]
    vectors = [parameter for parameter in parameters if parameter.dim() < 2]
    groups = [{"params": matrices, "weight_decay": settings.weight_decay}, {"params": vectors, "weight_decay": 0.0}]
    kind = KINDS[settings.optimizer]
    return kind(groups, lr=settings.learning_rate, betas=settings.betas, eps=settings.epsilon, fused=True)


def state_of(optimizer: torch.optim.Adam, parameters: Mapping[str, nn.Parameter]) -> dict[str, Tensor]:
    """Moments and steps, as `parameter/moment`; nothing before the first update."""
    return {
        f"{name}/{key}": value
        for name, parameter in parameters.items()
        for key, value in optimizer.state.get(parameter, {}).items()
        if isinstance(value, Tensor)
    }


def restore(optimizer: torch.optim.Adam, parameters: Mapping[str, nn.Parameter], state: Mapping[str, Tensor]) -> None:
    """Go on from what `state_of` returned.

    Raises:
        KeyError: the state is of another parameter.
    """
    for place, value in state.items():
        name, _, key = place.rpartition("/")
        # A copy, for what is read from a file may lie at addresses at which sums come out otherwise.
        optimizer.state[parameters[name]][key] = value.clone().to(parameters[name].device)
