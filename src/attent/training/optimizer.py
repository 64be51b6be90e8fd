"""The optimizer, its state by the names of the parameters, and schedules of the learning rate.

Each schedule returns a factor of the largest rate for the update u (from 1), the progress p of training (0 to 1: updates or
minutes spent, by whichever limit is nearer), the warm-up w in updates, and the model width E. All but `noam` rise from 0 to 1
in the first w updates, factor u / w.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from attent.training.settings import TrainingSettings

KINDS: dict[str, type[torch.optim.Adam]] = {"adamw": torch.optim.AdamW, "adam": torch.optim.Adam}


def build_optimizer(parameters: list[nn.Parameter], settings: TrainingSettings) -> torch.optim.Adam:
    """Adam or AdamW that decays matrices alone, in one fused call an update.

    Source: Kingma & Ba (2015), algorithm 1, arXiv 1412.6980; Loshchilov & Hutter (2019), algorithm 2, arXiv 1711.05101.
    """
    matrices = [parameter for parameter in parameters if parameter.dim() > 1]
    vectors = [parameter for parameter in parameters if parameter.dim() < 2]
    groups = [{"params": matrices, "weight_decay": settings.weight_decay}, {"params": vectors, "weight_decay": 0.0}]
    kind = KINDS[settings.optimizer]
    return kind(groups, lr=settings.learning_rate, betas=settings.betas, eps=settings.epsilon, fused=True)


def optimizer_state(optimizer: torch.optim.Adam, parameters: Mapping[str, nn.Parameter]) -> dict[str, Tensor]:
    """Moments and steps, as `parameter/moment`; nothing before the first update."""
    return {
        f"{name}/{key}": value
        for name, parameter in parameters.items()
        for key, value in optimizer.state.get(parameter, {}).items()
        if isinstance(value, Tensor)
    }


def restore_optimizer(optimizer: torch.optim.Adam, parameters: Mapping[str, nn.Parameter], state: Mapping[str, Tensor]) -> None:
    """Go on from what `state_of` returned.

    Raises:
        KeyError: the state is of another parameter.
    """
    for place, value in state.items():
        name, _, key = place.rpartition("/")
        # A copy, for what is read from a file may lie at addresses at which sums come out otherwise.
        optimizer.state[parameters[name]][key] = value.clone().to(parameters[name].device)


Schedule = Callable[[int, float, int, int], float]


def noam(update: int, progress: float, warmup: int, width: int) -> float:
    """E^(−1/2) · min(u^(−1/2), u · w^(−3/2)).

    Source: Vaswani et al. (2017), §5.3, equation 3, arXiv 1706.03762; with a learning rate of 1 this is the paper's.
    """
    return width**-0.5 * min(update**-0.5, update * max(warmup, 1) ** -1.5)


def inverse_sqrt(update: int, progress: float, warmup: int, width: int) -> float:
    """√(w / u) after the warm-up: noam with the peak said outright.

    Source: Ott et al. (2019), fairseq's `inverse_sqrt`, arXiv 1904.01038.
    """
    return _warmup_factor(update, warmup) * math.sqrt(max(warmup, 1) / max(update, warmup, 1))


def cosine(update: int, progress: float, warmup: int, width: int) -> float:
    """½ (1 + cos π p), reaching 0 at the end.

    Source: Loshchilov & Hutter (2017), SGDR, equation 5 without restarts, arXiv 1608.03983.
    """
    return _warmup_factor(update, warmup) * (1 + math.cos(math.pi * min(progress, 1.0))) / 2


def linear(update: int, progress: float, warmup: int, width: int) -> float:
    """1 − p, reaching 0 at the end.

    Source: Devlin et al. (2018), appendix A.2, arXiv 1810.04805.
    """
    return _warmup_factor(update, warmup) * (1 - min(progress, 1.0))


def constant(update: int, progress: float, warmup: int, width: int) -> float:
    """1."""
    return _warmup_factor(update, warmup)


def plateau(update: int, progress: float, warmup: int, width: int) -> float:
    """1, times what the validations that found nothing better have left of it (`attent.training.early_stopping`)."""
    return _warmup_factor(update, warmup)


def _warmup_factor(update: int, warmup: int) -> float:
    return min(1.0, update / warmup) if warmup else 1.0


SCHEDULES: dict[str, Schedule] = {
    "noam": noam,
    "inverse_sqrt": inverse_sqrt,
    "cosine": cosine,
    "linear": linear,
    "constant": constant,
    "plateau": plateau,
}


def fraction_done(settings: TrainingSettings, updates: int, seconds: float) -> float:
    """How much of training is over, 0 to 1, by whichever limit is nearer."""
    by_updates = updates / settings.updates if settings.updates else 0.0
    by_time = seconds / (60 * settings.minutes) if settings.minutes else 0.0
    return max(by_updates, by_time)
