"""The Gaussian kernel's exponent."""

from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn

from attent.attention.base import DotScore, LoweredSide, Score
from attent.errors import ArgumentError

# The largest squared distances from the keys' mean, in units of σ, at which the expanded square keeps the digits of a
# score: scores grow with the number of features, and rounding takes 6e-8 of them in float32, 1e-16 in float64.
NEAR, NEAR_PER_FEATURE, NEAR_IN_FLOAT64 = 64.0, 4.0, 1e8


class Gaussian(DotScore):
    """Minus half the squared distance in units of σ: score(q, k) = −Σ_d (q_d − k_d)² / 2σ_d².

    Under softmax this is the regression of Nadaraya 1964 ("On Estimating Regression") and Watson 1964 ("Smooth
    Regression Analysis") with a Gaussian kernel of bandwidth σ.

    The lowered form expands the square about the keys' mean, because expanding about 0 would lose digits to
    cancellation for data far from 0. For queries or keys far from the mean, which would lose digits too,
    DistantGaussian replaces it.

    Args:
        sigma: the bandwidth, in the unit of the features, > 0: one number, or one per feature. An nn.Parameter is
            learned.

    Raises:
        ArgumentError: a bandwidth is not positive.
    """

    aliases: ClassVar[tuple[str, ...]] = ("nadaraya_watson", "rbf")

    # Python numbers, exact in every type, or a parameter or buffer
    sigma: float | list[float] | Tensor

    def __init__(self, sigma: float | Sequence[float] | Tensor = 1.0) -> None:
        super().__init__()
        value = sigma if isinstance(sigma, Tensor) else torch.tensor(sigma, dtype=torch.float64, device="cpu")
        if not bool((value > 0).all()):
            raise ArgumentError(f"sigma must be > 0, got {value.tolist()}")
        if isinstance(sigma, Tensor) and not isinstance(sigma, nn.Parameter):
            self.register_buffer("sigma", sigma)
        else:
            self.sigma = sigma if isinstance(sigma, Tensor) else value.tolist()

    def center(self, key: Tensor, visible: Tensor | None = None) -> Tensor | None:
        """Return the mean of the keys, (B, H, 1, D); it keeps the terms small."""
        if not key.shape[-2]:
            return None
        # a mean would spread the NaN of a hidden key
        key = key.detach().nan_to_num(0.0, 0.0, 0.0)
        if visible is None:
            return key.mean(-2, keepdim=True)
        weights = visible[..., None].to(key.dtype)  # (B|1, H|1, Tk, 1)
        return (key * weights).sum(-2, keepdim=True) / weights.sum(-2, keepdim=True).clamp(min=1.0)

    def _over_sigma(self, distance: Tensor) -> Tensor:
        """Return distances over σ."""
        if isinstance(self.sigma, float):
            return distance / self.sigma
        return distance / torch.as_tensor(self.sigma, dtype=distance.dtype, device=distance.device)

    def _lower(self, features: Tensor, center: Tensor | None) -> LoweredSide:
        scaled = self._over_sigma(features if center is None else features - center)
        return LoweredSide(scaled, -0.5 * scaled.square().sum(-1), center)

    def lower_query(self, query: Tensor, center: Tensor | None = None) -> LoweredSide:
        """Return (q − c)/σ, and −|(q − c)/σ|²/2 as the query's bias."""
        return self._lower(query, center)

    def lower_key(self, key: Tensor, center: Tensor | None = None) -> LoweredSide:
        """Return (k − c)/σ, and −|(k − c)/σ|²/2 as the key's bias."""
        return self._lower(key, self.center(key) if center is None else center)

    def symbols(self) -> dict[str, Tensor]:
        """Return σ if it is learned."""
        return {"σ": self.sigma} if isinstance(self.sigma, nn.Parameter) else {}

    def steps(self, query: Tensor, key: Tensor) -> dict[str, Tensor]:
        """Return (q − k)/σ of every pair (B, H, Tq, Tk, D), its squared length, and the scores."""
        difference = self._over_sigma(query[..., :, None, :] - key[..., None, :, :])
        squared_distance = difference.square().sum(-1)
        return {"difference": difference, "squared_distance": squared_distance, "scores": -0.5 * squared_distance}

    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        """Return −|(q − k)/σ|²/2 of queries (B, H, Tq, D) and keys (B, H, Tk, D): (B, H, Tq, Tk)."""
        return self.steps(query, key)["scores"]

    @torch.no_grad()
    def largest_squared_distance(self, query: Tensor, key: Tensor, visible: Tensor | None = None) -> Tensor:
        """Return the largest squared distance of queries and visible keys from the mean of these keys, in σ.

        Queries are (B, H, Tq, D), keys (B, G, Tk, D).
        """
        # hidden keys may hold NaN
        query, key = (
            side.to(torch.promote_types(side.dtype, torch.float32)).nan_to_num(0.0, 0.0, 0.0) for side in (query, key)
        )
        if visible is not None:
            key = key.masked_fill(~visible[..., None], 0.0)
        mean = self.center(key, visible)
        assert mean is not None
        if visible is not None:
            key = torch.where(visible[..., None], key, mean)
        query_mean = mean.repeat_interleave(query.shape[1] // mean.shape[1], 1)
        return torch.maximum(
            *(self._over_sigma(side).square().sum(-1).amax() for side in (query - query_mean, key - mean))
        )

    def for_inputs(self, query: Tensor, key: Tensor, visible: Tensor | None = None) -> Score:
        """Return a DistantGaussian if rounding squared distances would cost more digits than rounding scores.

        Distances are measured from the keys' mean.
        """
        near = NEAR_IN_FLOAT64 if query.dtype == torch.float64 else NEAR + NEAR_PER_FEATURE * key.shape[-1]
        return DistantGaussian(self) if self.largest_squared_distance(query, key, visible) > near else self

    def extra_repr(self) -> str:
        """Return the bandwidth."""
        return f"sigma={self.sigma.tolist() if isinstance(self.sigma, Tensor) else self.sigma}"


class DistantGaussian(Score):
    """The Gaussian for queries and keys far from the mean of the keys.

    score(q, k) = −Σ_d (q_d − k_d)² / 2σ_d², without a dot form.

    Args:
        gaussian: the score with the same σ.
    """

    def __init__(self, gaussian: Gaussian) -> None:
        super().__init__()
        self.gaussian = gaussian

    def symbols(self) -> dict[str, Tensor]:
        """Return σ if it is learned."""
        return self.gaussian.symbols()

    def steps(self, query: Tensor, key: Tensor) -> dict[str, Tensor]:
        """Return the steps of the Gaussian."""
        return self.gaussian.steps(query, key)

    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        """Return −|(q − k)/σ|²/2 of queries (B, H, Tq, D) and keys (B, H, Tk, D): (B, H, Tq, Tk)."""
        return self.gaussian(query, key)

    def score_lowered(self, query: LoweredSide, key: LoweredSide) -> Tensor:
        """Return the scores, computed in float64.

        The square is expanded about the keys' mean if that keeps enough digits, and otherwise computed feature by
        feature.
        """
        gaussian, dtype = self.gaussian, query.features.dtype
        queries, keys = query.features.double(), key.features.double()
        if gaussian.largest_squared_distance(queries, keys) < NEAR_IN_FLOAT64:
            lowered = gaussian.lower_key(keys)
            return gaussian.score_lowered(gaussian.lower_query(queries, lowered.center), lowered).to(dtype)
        queries, keys = gaussian._over_sigma(queries), gaussian._over_sigma(keys)
        squares = ((queries[..., :, None, d] - keys[..., None, :, d]).square() for d in range(queries.shape[-1]))
        return -0.5 * sum(squares).to(dtype)  # pyright: ignore[reportAttributeAccessIssue]

    def extra_repr(self) -> str:
        """Return the bandwidth."""
        return self.gaussian.extra_repr()
