"""The kernels of kernel regression, each as a score and, where it ends at one bandwidth, a mask."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from attent.attention.base import Mask, Pairs, Score
from attent.attention.scores.dot import Dot
from attent.attention.scores.gaussian import Gaussian
from attent.errors import ArgumentError, UnknownNameError


class Parts(NamedTuple):
    """What `attend` takes of a kernel, its queries and its keys."""

    query: Tensor
    key: Tensor
    score: Score
    mask: Mask | None


@dataclass(frozen=True)
class Kernel:
    """A product kernel: K(u) = Π_d K(|u_d|), u being the distance in bandwidths, feature by feature.

    With the score Σ_d log K(|u_d|) and a mask where K is zero, softmax's weights are K(u) / Σ K(u): those of Nadaraya 1964
    ("On Estimating Regression") and Watson 1964 ("Smooth Regression Analysis").

    Args:
        log: |u| → log K(|u|), up to a constant, falling or level from 0 on; asked of |u| < 1 alone where the kernel ends there.
        ends: whether K is zero beyond |u| = 1.
        border: whether K is more than zero at |u| = 1.
    """

    log: Callable[[Tensor], Tensor]
    ends: bool = False
    border: bool = False

    def __reduce__(self) -> tuple[Callable[..., Kernel], tuple[object, ...]]:
        name = next((name for name, known in KERNELS.items() if known is self), None)
        return (Kernel, (self.log, self.ends, self.border)) if name is None else (kernel, (name,))

    @cached_property
    def score(self) -> Score:
        """The score of queries and keys in bandwidths."""
        return Gaussian(1.0) if self is KERNELS["gaussian"] else LogKernel(self)

    def parts(self, query: Tensor, key: Tensor) -> Parts:
        """What `attend` takes for queries (Tq, D) and keys (Tk, D) in bandwidths."""
        return Parts(query, key, self.score, Within(query.detach(), key.detach(), border=self.border) if self.ends else None)

    def quick(self, query: Tensor, key: Tensor) -> Parts:
        """The same weights in fewer operations, for queries and keys near 0.

        −|q − k|²/2 = (q, 1)·(k, −|k|²/2) − |q|²/2, of which softmax does not see the last.
        """
        if self is not KERNELS["gaussian"]:
            return self.parts(query, key)
        ones, squares = torch.ones_like(query[:, :1]), key.square().sum(-1, keepdim=True)
        # feature by feature in memory, for products with a few features are faster so
        beside = torch.cat((key.mT, -0.5 * squares.mT)).mT
        return Parts(torch.cat((query, ones), -1), beside, Dot(), None)

    def sees(self, distance: Tensor) -> Tensor:
        """Whether K(|u|) is more than zero."""
        if not self.ends:
            return torch.ones_like(distance, dtype=torch.bool)
        return distance <= 1.0 if self.border else distance < 1.0

    def exponent(self, distance: Tensor) -> Tensor:
        """Σ_d log K(|u_d|) of distances (…, D) in bandwidths, −∞ where K is zero: (…)."""
        # where it ends, its logarithm is not asked beyond
        logs = self.log(distance.clamp(max=1.0) if self.ends else distance).masked_fill(~self.sees(distance), -torch.inf)
        return logs.sum(-1)


class LogKernel(Score):
    """Σ_d log K(|q_d − k_d|) of a kernel, queries and keys in bandwidths; finite everywhere, so that it has gradients.

    Args:
        kernel: the kernel; where it ends, a mask has to hide what is beyond.
    """

    def __init__(self, kernel: Kernel) -> None:
        super().__init__()
        self.kernel = kernel

    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        """The scores (B, H, Tq, Tk) of queries (B, H, Tq, D) and keys (B, H, Tk, D)."""
        total = torch.zeros((), dtype=query.dtype, device=query.device)
        # feature by feature: all at once would hold Tq · Tk · D numbers
        for feature in range(query.shape[-1]):
            distance = (query[..., :, None, feature] - key[..., None, :, feature]).abs()  # (B, H, Tq, Tk)
            total = total + self.kernel.log(distance.clamp(max=1.0) if self.kernel.ends else distance)
        return total.expand(*query.shape[:-1], key.shape[-2])


@dataclass(frozen=True, eq=False)
class Within(Mask):
    """A query sees the keys that lie within one bandwidth of it in every feature.

    Args:
        query: (Tq, D) in bandwidths.
        key: (Tk, D) in bandwidths.
        border: whether the border itself belongs to it.
    """

    query: Tensor
    key: Tensor
    border: bool = False

    def allowed(self, pairs: Pairs) -> Tensor:
        """(1, 1, Tq, Tk) of this tile."""
        query, key = self.query[pairs.rows], self.key[pairs.columns]
        allowed = torch.ones(len(query), len(key), dtype=torch.bool, device=query.device)
        for feature in range(query.shape[-1]):
            distance = (query[:, None, feature] - key[None, :, feature]).abs()
            allowed &= distance <= 1.0 if self.border else distance < 1.0
        return allowed[None, None]

    def __repr__(self) -> str:
        return f"Within({len(self.query)} queries, {len(self.key)} keys)"


def _power(of: Callable[[Tensor], Tensor], exponent: float = 1.0) -> Callable[[Tensor], Tensor]:
    """|u| → exponent · log of(|u|), finite at the end."""

    def log(distance: Tensor) -> Tensor:
        return exponent * of(distance).clamp(min=torch.finfo(distance.dtype).tiny).log()

    return log


def _logistic(distance: Tensor) -> Tensor:
    # 1 / (eᵘ + 2 + e⁻ᵘ) = e⁻ᵘ / (1 + e⁻ᵘ)²
    return -distance - 2.0 * F.softplus(-distance)


# The gaussian's bandwidth is its standard deviation, the exponential's its mean distance, the others' where they end.
KERNELS: dict[str, Kernel] = {
    "gaussian": Kernel(lambda distance: -0.5 * distance.square()),
    "exponential": Kernel(lambda distance: -distance),
    "logistic": Kernel(_logistic),
    "uniform": Kernel(lambda distance: 0.0 * distance, ends=True, border=True),
    "triangular": Kernel(_power(lambda distance: 1.0 - distance), ends=True),
    "epanechnikov": Kernel(_power(lambda distance: 1.0 - distance.square()), ends=True),
    "biweight": Kernel(_power(lambda distance: 1.0 - distance.square(), 2.0), ends=True),
    "triweight": Kernel(_power(lambda distance: 1.0 - distance.square(), 3.0), ends=True),
    "tricube": Kernel(_power(lambda distance: 1.0 - distance.pow(3), 3.0), ends=True),
    "cosine": Kernel(_power(lambda distance: (math.pi / 2 * distance).cos()), ends=True),
}
ALIASES = {"rbf": "gaussian", "normal": "gaussian", "laplace": "exponential", "boxcar": "uniform", "quartic": "biweight"}


def kernel(given: str | Kernel) -> Kernel:
    """The kernel that is meant.

    Raises:
        UnknownNameError: nothing bears the name.
        ArgumentError: it is neither a name nor a Kernel.
    """
    if isinstance(given, Kernel):
        return given
    if not isinstance(given, str):
        raise ArgumentError(f"kernel must be a name or a Kernel, got {given!r}")
    name = ALIASES.get(given, given)
    if name not in KERNELS:
        raise UnknownNameError("kernel", given, (*KERNELS, *ALIASES))
    return KERNELS[name]
