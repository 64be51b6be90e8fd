"""Kernel regression by attention, and its kernels: each is a score and, where its support is compact, a mask."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from attent.attention.attend import attend
from attent.attention.base import Mask, Pairs, Score
from attent.attention.masks.excluded import Excluded
from attent.attention.scores.gaussian import Gaussian
from attent.errors import ArgumentError, check_known


@dataclass(frozen=True)
class Kernel:
    """A product kernel: K(u) = Π_d K(|u_d|), where u_d is the distance in feature d, in bandwidths.

    With the score Σ_d log K(|u_d|) and a mask where K is zero, the softmax gives the weights K(u) / Σ K(u) of Nadaraya
    1964 ("On Estimating Regression") and Watson 1964 ("Smooth Regression Analysis").

    Args:
        log: the function |u| → log K(|u|), up to a constant, non-increasing; if `ends`, it is called only for |u| ≤ 1.
        ends: True if K is zero beyond |u| = 1.
        border: True if K is positive at |u| = 1.
    """

    log: Callable[[Tensor], Tensor]
    ends: bool = False
    border: bool = False

    def __reduce__(self) -> tuple[Callable[..., Kernel], tuple[object, ...]]:
        name = next((name for name, kernel in KERNELS.items() if kernel is self), None)
        return (Kernel, (self.log, self.ends, self.border)) if name is None else (get_kernel, (name,))

    @cached_property
    def score(self) -> Score:
        """The score of queries and keys that are in units of the bandwidths."""
        return Gaussian(1.0) if self is KERNELS["gaussian"] else LogKernel(self)

    def mask(self, query: Tensor, key: Tensor) -> Mask | None:
        """Return the mask of the pairs of queries (Tq, D) and keys (Tk, D), in bandwidths, where K is positive."""
        return Within(query.detach(), key.detach(), border=self.border) if self.ends else None


class KernelEstimate(NamedTuple):
    """The estimates of the regression at queries."""

    mean: Tensor  # (m, outputs)
    has_keys: Tensor  # (m,) True where any key has a weight


def smooth(
    kernel: Kernel,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    left_out: Tensor | None = None,
    weight: Tensor | None = None,
) -> KernelEstimate:
    """Return the regression at queries, m(q) = Σᵢ K(q − xᵢ) wᵢ yᵢ / Σᵢ K(q − xᵢ) wᵢ.

    Args:
        kernel: the kernel.
        query: (m, D), in bandwidths.
        key: (n, D), likewise.
        value: (n, outputs).
        left_out: (m,) the index of the key that each query ignores.
        weight: (n,) the weight of each key, > 0; 1 if not given.
    """
    mask = kernel.mask(query, key)
    if left_out is not None:
        excluded = Excluded(left_out[:, None])
        mask = excluded if mask is None else mask & excluded
    # K(u) w = exp(log K(u) + log w)
    bias = None if weight is None else weight.log()[None, None, None]
    # an extra value of 1 shows whether there are any weights
    values = torch.cat((value, torch.ones_like(value[:, :1])), 1)
    context = attend(query, key, values, score=kernel.score, mask=mask, bias=bias, implementation="tiled")
    return KernelEstimate(context[:, :-1], context[:, -1].detach() > 0.5)


class LogKernel(Score):
    """The score Σ_d log K(|q_d − k_d|) of queries and keys in bandwidths; finite everywhere, so that gradients exist.

    Args:
        kernel: the kernel; if its support is compact, a mask must hide the pairs outside it.
    """

    def __init__(self, kernel: Kernel) -> None:
        super().__init__()
        self.kernel = kernel

    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        """Return the scores (B, H, Tq, Tk) of queries (B, H, Tq, D) and keys (B, H, Tk, D)."""
        total = torch.zeros((), dtype=query.dtype, device=query.device)
        # one feature at a time: all together would hold Tq · Tk · D numbers
        for feature in range(query.shape[-1]):
            distance = (query[..., :, None, feature] - key[..., None, :, feature]).abs()  # (B, H, Tq, Tk)
            total = total + self.kernel.log(distance.clamp(max=1.0) if self.kernel.ends else distance)
        return total.expand(*query.shape[:-1], key.shape[-2])


@dataclass(frozen=True, eq=False)
class Within(Mask):
    """A query sees the keys within one bandwidth of it in every feature.

    Args:
        query: (Tq, D) in bandwidths.
        key: (Tk, D) in bandwidths.
        border: True if keys at exactly one bandwidth are visible.
    """

    query: Tensor
    key: Tensor
    border: bool = False

    def allowed(self, pairs: Pairs) -> Tensor:
        """Return (1, 1, Tq, Tk), True where the key is within one bandwidth."""
        query, key = self.query[pairs.query_index], self.key[pairs.key_index]
        allowed = torch.ones(len(query), len(key), dtype=torch.bool, device=query.device)
        for feature in range(query.shape[-1]):
            distance = (query[:, None, feature] - key[None, :, feature]).abs()
            allowed &= distance <= 1.0 if self.border else distance < 1.0
        return allowed[None, None]

    def __repr__(self) -> str:
        return f"Within({len(self.query)} queries, {len(self.key)} keys)"


def _log_power(base: Callable[[Tensor], Tensor], exponent: float = 1.0) -> Callable[[Tensor], Tensor]:
    """Return the function |u| → exponent · log base(|u|), finite at the end of the support."""

    def log(distance: Tensor) -> Tensor:
        return exponent * base(distance).clamp(min=torch.finfo(distance.dtype).tiny).log()

    return log


def _logistic(distance: Tensor) -> Tensor:
    # 1 / (eᵘ + 2 + e⁻ᵘ) = e⁻ᵘ / (1 + e⁻ᵘ)²
    return -distance - 2.0 * F.softplus(-distance)


# The bandwidth of the Gaussian is its standard deviation, that of the exponential its mean distance, and that of the
# kernels with compact support the end of the support.
KERNELS: dict[str, Kernel] = {
    "gaussian": Kernel(lambda distance: -0.5 * distance.square()),
    "exponential": Kernel(lambda distance: -distance),
    "logistic": Kernel(_logistic),
    "uniform": Kernel(lambda distance: 0.0 * distance, ends=True, border=True),
    "triangular": Kernel(_log_power(lambda distance: 1.0 - distance), ends=True),
    "epanechnikov": Kernel(_log_power(lambda distance: 1.0 - distance.square()), ends=True),
    "biweight": Kernel(_log_power(lambda distance: 1.0 - distance.square(), 2.0), ends=True),
    "triweight": Kernel(_log_power(lambda distance: 1.0 - distance.square(), 3.0), ends=True),
    "tricube": Kernel(_log_power(lambda distance: 1.0 - distance.pow(3), 3.0), ends=True),
    "cosine": Kernel(_log_power(lambda distance: (math.pi / 2 * distance).cos()), ends=True),
}
ALIASES = {
    "rbf": "gaussian",
    "normal": "gaussian",
    "laplace": "exponential",
    "boxcar": "uniform",
    "quartic": "biweight",
}


def get_kernel(kernel: str | Kernel) -> Kernel:
    """Return the kernel with the given name; a Kernel is returned unchanged.

    Raises:
        UnknownNameError: no kernel has the name.
        ArgumentError: neither a name nor a Kernel.
    """
    if isinstance(kernel, Kernel):
        return kernel
    if not isinstance(kernel, str):
        raise ArgumentError(f"kernel must be a name or a Kernel, got {kernel!r}")
    check_known("kernel", kernel, (*KERNELS, *ALIASES))
    return KERNELS[ALIASES.get(kernel, kernel)]
