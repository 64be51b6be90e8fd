"""Metrics of translations: BLEU and chrF2 by sacreBLEU, exact match, and the loss of references."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from attent.errors import ArgumentError, check_known
from attent.search.score import PairScore

if TYPE_CHECKING:
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF

# The tokenizers of sacreBLEU that download nothing.
TOKENIZERS = ("13a", "char", "intl", "none", "zh")
# Those of languages that are written without spaces.
TOKENIZER_OF = {"zh": "zh", "yue": "zh", **dict.fromkeys(("ja", "th", "lo", "km", "my"), "char")}
PAIRED_RESAMPLES = 1000


@dataclass(frozen=True)
class MetricScore:
    """A score and its settings.

    Args:
        score: 0 to 100.
        signature: sacreBLEU's, to be reported with the score.
    """

    score: float
    signature: str


class PairedScore(NamedTuple):
    """A system's score in a paired bootstrap.

    Args:
        score: 0 to 100.
        half_interval: half the width of its 95 % interval.
        p_value: of its difference from the first system's score; None for the first.
    """

    score: float
    half_interval: float
    p_value: float | None


def bleu_tokenizer(language: str | None) -> str:
    """Return the tokenizer of sacreBLEU for a language, given by its code.

    13a, but for languages without spaces between words.
    """
    return TOKENIZER_OF.get(re.split("[-_]", (language or "").lower())[0], "13a")


def bleu(
    translations: Sequence[str], references: Sequence[str], tokenize: str = "13a", *, lowercase: bool = False
) -> MetricScore:
    """Return BLEU of a corpus with one reference each.

    Sources: Papineni et al. (2002), https://aclanthology.org/P02-1040; Post (2018), arXiv 1804.08771.

    Args:
        translations: detokenized.
        references: as many.
        tokenize: sacreBLEU's tokenizer for both; "none" for text that is already split into words.
        lowercase: True to compare both in lower case.

    Raises:
        UnknownNameError: there is no such tokenizer.
        ArgumentError: the numbers of translations and references differ, or are 0.
    """
    return _score(bleu_metric(tokenize, lowercase=lowercase), translations, references)


def bleu_interval(translations: Sequence[str], references: Sequence[str], tokenize: str = "13a") -> float:
    """Return half the width of BLEU's 95 % interval over resamples of the pairs.

    Source: Koehn (2004), https://aclanthology.org/W04-3250. For the arguments see `bleu`.
    """
    _check_counts("an interval", translations, references)
    score: Any = bleu_metric(tokenize, lowercase=False).corpus_score(
        list(translations), [list(references)], n_bootstrap=PAIRED_RESAMPLES
    )
    return score._ci


def chrf(translations: Sequence[str], references: Sequence[str], *, lowercase: bool = False) -> MetricScore:
    """Return chrF2 of a corpus with one reference each. Source: Popović (2015), https://aclanthology.org/W15-3049."""
    return _score(_chrf(lowercase=lowercase), translations, references)


def paired_bootstrap(
    systems: Mapping[str, Sequence[str]], references: Sequence[str], tokenize: str = "13a", *, lowercase: bool = False
) -> tuple[dict[str, dict[str, PairedScore]], dict[str, str]]:
    """Compare the BLEU and chrF2 of systems with those of the first, by sacreBLEU's paired bootstrap test.

    Source: Koehn (2004), https://aclanthology.org/W04-3250.

    Args:
        systems: the translations of the same sources by each system, by its name; at least two.
        references: as many.
        tokenize: sacreBLEU's tokenizer for BLEU.
        lowercase: True to compare in lower case.

    Returns:
        By metric and system the scores, and by metric sacreBLEU's signature.

    Raises:
        UnknownNameError: there is no such tokenizer.
        ArgumentError: the numbers of translations and references differ, or are 0.
    """
    from sacrebleu.significance import PairedTest

    metrics = {"BLEU": bleu_metric(tokenize, lowercase=lowercase), "chrF2": _chrf(lowercase=lowercase)}
    for translations in systems.values():
        _check_counts("a score", translations, references)
    named: list[tuple[str, Sequence[str]]] = [(name, list(translations)) for name, translations in systems.items()]
    test = PairedTest(named, metrics, [list(references)], test_type="bs", n_samples=PAIRED_RESAMPLES)
    signatures, columns = test()
    results: Any = columns
    scores: dict[str, dict[str, PairedScore]] = {}
    for metric in metrics:
        first = results[metric][0]
        scores[metric] = {
            # equal systems would have the smallest p there is: sacreBLEU counts differences larger than theirs, none of
            # which are
            name: PairedScore(
                float(r.score), float(r.ci), 1.0 if r is not first and r.score == first.score else r.p_value
            )
            for name, r in zip(systems, results[metric], strict=True)
        }
    return scores, {metric: str(signatures[metric]) for metric in metrics}


def exact_match(translations: Sequence[str], references: Sequence[str]) -> float:
    """Return the share of translations that equal their reference character by character, in per cent.

    Raises:
        ArgumentError: the numbers of translations and references differ, or are 0.
    """
    _check_counts("exact match", translations, references)
    return 100 * sum(map(str.__eq__, translations, references)) / len(references)


def loss(scores: Sequence[PairScore]) -> float:
    """Return the mean negative log-probability of references, in nats per token, EOS included.

    Raises:
        ArgumentError: there are no scores.
    """
    if not scores:
        raise ArgumentError("a loss needs at least one score")
    return -sum(score.log_probability for score in scores) / sum(score.tokens for score in scores)


def bleu_metric(tokenize: str, *, lowercase: bool) -> BLEU:
    """Return sacreBLEU's BLEU.

    Raises:
        UnknownNameError: there is no such tokenizer.
    """
    check_known("tokenizer of sacreBLEU", tokenize, TOKENIZERS)
    from sacrebleu.metrics.bleu import BLEU

    # force: sacreBLEU would warn about text that looks tokenized, which is intended with tokenize="none"
    return BLEU(tokenize=tokenize, lowercase=lowercase, force=True)


def _chrf(*, lowercase: bool) -> CHRF:
    from sacrebleu.metrics.chrf import CHRF

    return CHRF(lowercase=lowercase)


def _score(metric: BLEU | CHRF, translations: Sequence[str], references: Sequence[str]) -> MetricScore:
    _check_counts("a score", translations, references)
    score = metric.corpus_score(list(translations), [list(references)]).score
    return MetricScore(score, str(metric.get_signature()))


def _check_counts(name: str, translations: Sequence[str], references: Sequence[str]) -> None:
    if not references or len(translations) != len(references):
        counts = f"{len(translations)} and {len(references)}"
        raise ArgumentError(f"{name} needs as many translations as references, at least one, got {counts}")
