"""How the learning rate goes, as a factor of its largest value.

Each schedule is a function of the update u (from 1), the progress p of training (0 to 1: updates or minutes spent, by
whichever limit is nearer), the warm-up w in updates, and the model width E. All but `noam` rise from 0 to 1 in the
first w updates, factor u / w.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from attent.training.settings import TrainingSettings

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
    return _rise(update, warmup) * math.sqrt(max(warmup, 1) / max(update, warmup, 1))


def cosine(update: int, progress: float, warmup: int, width: int) -> float:
    """½ (1 + cos π p), reaching 0 at the end.

    Source: Loshchilov & Hutter (2017), SGDR, equation 5 without restarts, arXiv 1608.03983.
    """
    return _rise(update, warmup) * (1 + math.cos(math.pi * min(progress, 1.0))) / 2


def linear(update: int, progress: float, warmup: int, width: int) -> float:
    """1 − p, reaching 0 at the end.

    Source: Devlin et al. (2018), appendix A.2, arXiv 1810.04805.
    """
    return _rise(update, warmup) * (1 - min(progress, 1.0))


def constant(update: int, progress: float, warmup: int, width: int) -> float:
    """1."""
    return _rise(update, warmup)


def plateau(update: int, progress: float, warmup: int, width: int) -> float:
    """1, times what the validations that found nothing better have left of it (`attent.training.early_stopping`)."""
    return _rise(update, warmup)


def _rise(update: int, warmup: int) -> float:
    return min(1.0, update / warmup) if warmup else 1.0


SCHEDULES: dict[str, Schedule] = {
    "noam": noam,
    "inverse_sqrt": inverse_sqrt,
    "cosine": cosine,
    "linear": linear,
    "constant": constant,
    "plateau": plateau,
}


def share_done(settings: TrainingSettings, updates: int, seconds: float) -> float:
    """How much of training is over, 0 to 1, by whichever limit is nearer."""
    by_updates = updates / settings.updates if settings.updates else 0.0
    by_time = seconds / (60 * settings.minutes) if settings.minutes else 0.0
    return max(by_updates, by_time)
