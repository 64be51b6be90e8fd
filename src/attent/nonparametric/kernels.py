"""The kernels of kernel regression, each as a score and, where its support is compact, a mask."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor
from torch.nn import functional as F

from attent.attention.base import Mask, Pairs, Score
from attent.attention.scores.dot import Dot
from attent.attention.scores.gaussian import Gaussian
from attent.errors import ArgumentError, UnknownNameError

# The query, key, score and mask with which `attend` computes a kernel.
KernelParts = tuple[Tensor, Tensor, Score, Mask | None]


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

    def parts(self, query: Tensor, key: Tensor) -> KernelParts:
        """Return the arguments of `attend` for queries (Tq, D) and keys (Tk, D) in bandwidths."""
        return query, key, self.score, Within(query.detach(), key.detach(), border=self.border) if self.ends else None

    def fast_parts(self, query: Tensor, key: Tensor) -> KernelParts:
        """Return arguments that give the same weights in fewer operations, for queries and keys near 0.

        −|q − k|²/2 = (q, 1)·(k, −|k|²/2) − |q|²/2, whose last term cancels in the softmax.
        """
        if self is not KERNELS["gaussian"]:
            return self.parts(query, key)
        ones, squares = torch.ones_like(query[:, :1]), key.square().sum(-1, keepdim=True)
        # features in column order, where products with a few of them are faster
        return torch.cat((query, ones), -1), torch.cat((key.mT, -0.5 * squares.mT)).mT, Dot(), None

    def is_positive(self, distance: Tensor) -> Tensor:
        """Return a mask that is True where K(|u|) > 0."""
        if not self.ends:
            return torch.ones_like(distance, dtype=torch.bool)
        return distance <= 1.0 if self.border else distance < 1.0

    def exponent(self, distance: Tensor) -> Tensor:
        """Return Σ_d log K(|u_d|), (…), for distances (…, D) in bandwidths; −∞ where K is zero."""
        return self._log_within(distance).masked_fill(~self.is_positive(distance), -torch.inf).sum(-1)

    def _log_within(self, distance: Tensor) -> Tensor:
        return self.log(distance.clamp(max=1.0) if self.ends else distance)


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
            total = total + self.kernel._log_within(distance)  # pyright: ignore[reportPrivateUsage]
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
    name = ALIASES.get(kernel, kernel)
    if name not in KERNELS:
        raise UnknownNameError("kernel", kernel, (*KERNELS, *ALIASES))
    return KERNELS[name]
