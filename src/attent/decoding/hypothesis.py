"""What a search finds, with its score in parts."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Hypothesis:
    """One translation as tokens.

        score(Y) = log P(Y | X) / lp(Y)

    Source: Wu et al. (2016), equation 14, arXiv 1609.08144 (here without the coverage penalty).

    Args:
        tokens: the target, without BOS and EOS.
        log_probability: log P(Y | X), that of EOS included, in nats: the model's own, whatever constraints, temperature or
            filters there were.
        length_penalty: lp(Y), 1 or more.
    """

    tokens: tuple[int, ...]
    log_probability: float
    length_penalty: float

    @property
    def score(self) -> float:
        """What hypotheses are ranked by; higher is better."""
        return self.log_probability / self.length_penalty


@dataclass(frozen=True)
class Translation(Hypothesis):
    """A hypothesis and the text that its tokens stand for."""

    text: str


def length_penalty(length: int, alpha: float) -> float:
    """What a log-probability is divided by, lest short translations win: lp(Y) = ((5 + |Y|) / 6)^α.

    Source: Wu et al. (2016), equation 14, arXiv 1609.08144.

    Args:
        length: |Y|, the tokens whose log-probabilities are summed, EOS included.
        alpha: 0 for no penalty.
    """
    return ((5 + length) / 6) ** alpha
