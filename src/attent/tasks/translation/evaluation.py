"""Evaluation of translations: BLEU and chrF2 by sacreBLEU, exact match and loss; judges of a translator's heads."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from attent.alignment.ablation import LOSS, HeadJudge, Metric
from attent.alignment.aligner import align
from attent.alignment.error_rate import Agreement, agreement
from attent.attention.maps.attention_map import AttentionMap
from attent.errors import ArgumentError, check_known
from attent.search.score import PairScore
from attent.search.settings import GREEDY, SearchSettings
from attent.tasks.dates.corpus import TARGET_YEAR, gold_links, tokenize_dates
from attent.tasks.evaluation import Evaluation, Results, Say
from attent.tasks.translation.translator import Translator
from attent.text.readers import read_with_references
from attent.text.text import Pair

if TYPE_CHECKING:
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF

# The tokenizers of sacreBLEU that download nothing.
TOKENIZERS = ("13a", "char", "intl", "none", "zh")
# The tokenizers for languages that are written without spaces.
TOKENIZER_OF = {"zh": "zh", "yue": "zh", **dict.fromkeys(("ja", "th", "lo", "km", "my"), "char")}


@dataclass(frozen=True)
class MetricScore:
    """A score and its settings.

    Args:
        score: 0 to 100.
        signature: sacreBLEU's signature, to report with the score.
    """

    score: float
    signature: str


def bleu_tokenizer(language: str | None) -> str:
    """Return sacreBLEU's tokenizer for a language code.

    This is 13a, except for languages without spaces between words.
    """
    return TOKENIZER_OF.get(re.split("[-_]", (language or "").lower())[0], "13a")


def bleu(
    translations: Sequence[str], references: Sequence[str], tokenize: str = "13a", *, lowercase: bool = False
) -> MetricScore:
    """Return BLEU of a corpus with one reference each.

    Sources: Papineni et al. (2002), https://aclanthology.org/P02-1040; Post (2018), arXiv 1804.08771.

    Args:
        translations: detokenized translations.
        references: one reference per translation.
        tokenize: sacreBLEU's tokenizer for both; "none" for text that is already split into words.
        lowercase: True to compare both in lower case.

    Raises:
        UnknownNameError: there is no such tokenizer.
        ArgumentError: the numbers of translations and references differ, or are 0.
    """
    return _score(bleu_metric(tokenize, lowercase=lowercase), translations, references)


def chrf(translations: Sequence[str], references: Sequence[str], *, lowercase: bool = False) -> MetricScore:
    """Return chrF2 of a corpus with one reference each. Source: Popović (2015), https://aclanthology.org/W15-3049."""
    return _score(_chrf(lowercase=lowercase), translations, references)


def sentence_chrf(translation: str, reference: str) -> float:
    """Return chrF2 of a sentence, 0 to 100; source as for `chrf`."""
    return _chrf(lowercase=False).sentence_score(translation, [reference]).score


def exact_match(translations: Sequence[str], references: Sequence[str]) -> float:
    """Return the share of translations that equal their reference character by character, in percent.

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


def evaluate_translations(
    translator: Translator,
    source: str | Path,
    target: str | Path,
    settings: SearchSettings,
    tokenize: str,
    say: Say,
    *,
    lowercase: bool = False,
) -> Evaluation:
    """Translate the lines of a file and evaluate the translations against references.

    Args:
        translator: translates the lines.
        source: the file of lines.
        target: the file of references.
        settings: search settings.
        tokenize: sacreBLEU's tokenizer.
        say: shows a message to the user.
        lowercase: whether to compute BLEU and chrF2 on lowercased text.

    Raises:
        ArgumentError: the files have different numbers of lines, or none.
    """
    lines, references = read_with_references(source, target)
    say(f"translating {len(lines):,} lines of {source}")
    sources = [translator.read(line) for line in lines]
    translations = translator.translate(sources, settings)
    bleu_score = bleu(translations, references, tokenize, lowercase=lowercase)
    chrf_score = chrf(translations, references, lowercase=lowercase)
    readable = [pair for pair in zip(lines, references, strict=True) if translator.can_read(*pair)]
    if len(readable) < len(lines):
        say(
            f"{len(lines) - len(readable):,} pairs have more tokens than this model can read: the loss is over "
            "the others"
        )
    values = {
        "pairs": len(references),
        "refusals": sum(source.refusal is not None for source in sources),
        "bleu": bleu_score.score,
        "bleu_signature": bleu_score.signature,
        "chrf": chrf_score.score,
        "chrf_signature": chrf_score.signature,
        "exact_match": exact_match(translations, references),
        "loss": loss(translator.score(readable)) if readable else None,
    }
    pairs = f"{values['pairs']:,} pairs" + (
        f", {values['refusals']:,} of them not translated" if values["refusals"] else ""
    )
    lines = [
        f"BLEU         {values['bleu']:6.2f}    {values['bleu_signature']}",
        f"chrF2        {values['chrf']:6.2f}    {values['chrf_signature']}",
        f"exact match  {values['exact_match']:6.2f} %",
        f"loss         {values['loss']:7.3f} nats per token, {pairs}" if values["loss"] is not None else "loss  none",
    ]
    return Evaluation(values, lines)


def evaluate_generated(
    translator: Translator, held_out: Mapping[str, Sequence[Pair]], search: SearchSettings = GREEDY
) -> Results:
    """Return the scores of each test set of dates: exact match and year alignment in percent, and AER, 0 to 1.

    Year alignment is the share of the year's digits whose steps attend most to the year in the source; AER is the
    alignment error rate against the links of `gold_links`. Both use the last layer and the mean over its heads; a model
    without attention to the source has neither.
    """
    return {name: _scores(translator, pairs, search) for name, pairs in held_out.items() if pairs}


def _scores(translator: Translator, pairs: Sequence[Pair], search: SearchSettings) -> dict[str, float]:
    translations = translator.translate([pair.source for pair in pairs], search)
    scores: dict[str, float] = {
        "pairs": len(pairs),
        "exact_match": exact_match(translations, [pair.target for pair in pairs]),
    }
    if any(name.endswith("cross_attention") for name, _ in translator.model.named_modules()):
        tokenizers = translator.source_tokenizer, translator.target_tokenizer
        alignments = align(translator.model, [tokenize_dates(pair.source, pair.target, tokenizers) for pair in pairs])
        gold = [gold_links(pair) for pair in pairs]
        years = ([link for link in links if link[1] in TARGET_YEAR] for links in alignments)
        scores["year_alignment"] = 100 * sum(map(agreement, years, gold), Agreement()).precision
        scores["AER"] = sum(map(agreement, alignments, gold), Agreement()).error_rate
    return scores


class LossJudge(HeadJudge):
    """Evaluates a translator by the loss of references.

    Args:
        translator: the translator to evaluate.
        pairs: nonempty sources and their references, which the model can read.
    """

    def __init__(self, translator: Translator, pairs: Sequence[tuple[str, str]], metric: Metric = LOSS) -> None:
        super().__init__(translator.model, metric)
        self.translator, self.pairs = translator, [Pair(*pair) for pair in pairs]

    def __len__(self) -> int:
        return len(self.pairs)

    def statistics(self) -> np.ndarray:
        return np.array(
            [(-score.log_probability, score.tokens) for score in self.translator.score(self.pairs)]
        ).reshape(-1, 2)

    def maps(self, example: int) -> Mapping[str, AttentionMap]:
        pair = self.pairs[example]
        return {name: labelled.weights for name, labelled in self.translator.map(pair.source, pair.target).items()}


class BleuJudge(LossJudge):
    """Evaluates a translator by the BLEU of its own translations.

    Args:
        translator: the translator to evaluate.
        pairs: sources and their references.
        tokenize: sacreBLEU's tokenizer.
        settings: search settings.
    """

    def __init__(
        self,
        translator: Translator,
        pairs: Sequence[tuple[str, str]],
        tokenize: str = "13a",
        settings: SearchSettings = GREEDY,
    ) -> None:
        self._bleu: Any = bleu_metric(tokenize, lowercase=False)
        super().__init__(translator, pairs, Metric("BLEU", "BLEU", -1, self._scores))
        self._settings = settings

    def statistics(self) -> np.ndarray:
        translations = self.translator.translate([pair.source for pair in self.pairs], self._settings)
        return np.array(
            self._bleu._extract_corpus_statistics(translations, [[pair.target for pair in self.pairs]]), np.int64
        )

    def _scores(self, sums: np.ndarray) -> np.ndarray:
        return np.array([self._bleu._compute_score_from_stats(row).score for row in sums.tolist()])
