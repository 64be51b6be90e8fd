"""The cosine of the angle between query and key."""

from typing import ClassVar

from torch import Tensor
from torch.nn import functional as F

from attent.attention.base import DotScore, LoweredSide
from attent.errors import refuse


class Cosine(DotScore):
    """The cosine similarity over a temperature: score(q, k) = (q/|q|)ᵀ(k/|k|) / τ.

    Graves, Wayne and Danihelka 2014, "Neural Turing Machines", §3.3.1 eq. 5–6 (arXiv:1410.5401), whose key strength β
    is our 1/τ. A vector of length zero has cosine zero with everything.

    Args:
        temperature: τ > 0; scores lie in [−1/τ, 1/τ].

    Raises:
        ArgumentError: the temperature is not positive.
    """

    aliases: ClassVar[tuple[str, ...]] = ("cosine_similarity", "content_based")

    def __init__(self, temperature: float = 1.0) -> None:
        super().__init__()
        refuse((not temperature > 0, f"temperature must be > 0, got {temperature}"))
        self.temperature = temperature

    def scale(self, width: int) -> float:
        """Return 1/τ."""
        return 1.0 / self.temperature

    def lower_query(self, query: Tensor, center: Tensor | None = None) -> LoweredSide:
        """Return q/|q|."""
        return LoweredSide(F.normalize(query, dim=-1))

    def lower_key(self, key: Tensor, center: Tensor | None = None) -> LoweredSide:
        """Return k/|k|."""
        return LoweredSide(F.normalize(key, dim=-1))

    def steps(self, query: Tensor, key: Tensor) -> dict[str, Tensor]:
        """Return q/|q|, k/|k|, their cosines (B, H, Tq, Tk), and the scores."""
        unit_query, unit_key = F.normalize(query, dim=-1), F.normalize(key, dim=-1)
        cosines = unit_query @ unit_key.transpose(-2, -1)
        return {
            "unit_query": unit_query,
            "unit_key": unit_key,
            "cosines": cosines,
            "scores": cosines / self.temperature,
        }

    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        """Return the cosines over τ of queries (B, H, Tq, D) and keys (B, H, Tk, D): (B, H, Tq, Tk)."""
        return self.steps(query, key)["scores"]

    def extra_repr(self) -> str:
        """Return the temperature."""
        return f"temperature={self.temperature}"
