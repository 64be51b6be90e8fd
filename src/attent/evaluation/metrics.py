"""How good translations are, in the field's common measures, by the tool that everybody reports them with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF

from attent.decoding.score import PairScore
from attent.errors import ArgumentError, UnknownNameError

# Those of sacreBLEU's that need nothing to be fetched.
TOKENIZERS = ("13a", "char", "intl", "none", "zh")


@dataclass(frozen=True)
class MetricScore:
    """A score and what it was computed with.

    Args:
        score: 0 to 100.
        signature: sacreBLEU's, to be reported with the score.
    """

    score: float
    signature: str


def bleu(translations: Sequence[str], references: Sequence[str], tokenize: str = "13a", *, lowercase: bool = False) -> MetricScore:
    """BLEU of a corpus with one reference each.

    Sources: Papineni et al. (2002), https://aclanthology.org/P02-1040; Post (2018), arXiv 1804.08771.

    Args:
        translations: detokenised.
        references: as many.
        tokenize: how sacreBLEU cuts both into words; "none" where that has been done already.
        lowercase: whether both are compared in small letters.

    Raises:
        UnknownNameError: there is no such tokenizer.
        ArgumentError: there are none, or not as many of one as of the other.
    """
    if tokenize not in TOKENIZERS:
        raise UnknownNameError("tokenizer of sacreBLEU", tokenize, TOKENIZERS)
    # force: sacreBLEU would warn on text that looks tokenised, which is meant where this is asked for
    return _measured(BLEU(tokenize=tokenize, lowercase=lowercase, force=True), translations, references)


def chrf(translations: Sequence[str], references: Sequence[str], *, lowercase: bool = False) -> MetricScore:
    """chrF2 of a corpus with one reference each, in small letters if asked for. Source: Popović (2015), https://aclanthology.org/W15-3049."""
    return _measured(CHRF(lowercase=lowercase), translations, references)


def loss(scores: Sequence[PairScore]) -> float:
    """The mean negative log-probability of references, in nats per token, EOS included.

    Raises:
        ArgumentError: there are none.
    """
    if not scores:
        raise ArgumentError("a loss needs at least one score")
    return -sum(score.log_probability for score in scores) / sum(score.tokens for score in scores)


def _measured(metric: BLEU | CHRF, translations: Sequence[str], references: Sequence[str]) -> MetricScore:
    if not references or len(translations) != len(references):
        counts = f"{len(translations)} and {len(references)}"
        raise ArgumentError(f"a score needs as many translations as references, at least one, got {counts}")
    score = metric.corpus_score(list(translations), [list(references)]).score
    return MetricScore(score, str(metric.get_signature()))
