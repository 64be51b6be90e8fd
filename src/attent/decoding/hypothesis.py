"""Results of a search, with their scores in parts."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Hypothesis:
    """A translation as tokens.

        score(Y) = log P(Y | X) / lp(Y)

    Source: Wu et al. (2016), equation 14, arXiv 1609.08144 (here without the coverage penalty).

    Args:
        tokens: the target, without BOS and EOS.
        log_probability: log P(Y | X) of the model itself, EOS included, in nats; constraints, temperature and filters do not change it.
        length_penalty: lp(Y), 1 or more.
    """

    tokens: tuple[int, ...]
    log_probability: float
    length_penalty: float

    @property
    def score(self) -> float:
        """Return the number that hypotheses are ranked by; higher is better."""
        return self.log_probability / self.length_penalty


@dataclass(frozen=True)
class Translation(Hypothesis):
    """A hypothesis and the text of its tokens."""

    text: str


def length_penalty(length: int, alpha: float) -> float:
    """Return the divisor of a log-probability that keeps short translations from winning: lp(Y) = ((5 + |Y|) / 6)^α.

    Source: Wu et al. (2016), equation 14, arXiv 1609.08144.

    Args:
        length: |Y|, the number of tokens, EOS included.
        alpha: 0 for no penalty.
    """
    return ((5 + length) / 6) ** alpha
