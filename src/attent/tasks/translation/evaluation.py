"""Evaluation of a translator on files and on generated corpora, and of its heads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from attent.alignment.ablation import LOSS, HeadJudge, Metric
from attent.alignment.aligner import align
from attent.alignment.error_rate import Agreement, agreement
from attent.attention.maps.attention_map import AttentionMap
from attent.search.settings import GREEDY, SearchSettings
from attent.tasks.dates.corpus import TARGET_YEAR, gold_links, tokenize_dates
from attent.tasks.evaluation import Evaluation, Results, Say
from attent.tasks.translation.metrics import bleu, bleu_metric, chrf, exact_match, loss
from attent.tasks.translation.translator import Translator
from attent.text.readers import read_with_references
from attent.text.text import Pair


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
    """Evaluate translations of the lines of a file by their references.

    Args:
        translator: whose translations these are.
        source: the file.
        target: that of the references.
        settings: of the search.
        tokenize: sacreBLEU's tokenizer.
        say: shows a message to the user.
        lowercase: whether BLEU and chrF2 are those of small letters.

    Raises:
        ArgumentError: the files have not equally many lines, or none.
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
            f"{len(lines) - len(readable):,} pairs have more tokens than this model can read: the loss is that of "
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
    """Return the scores of each test set of dates: exact match and year alignment in per cent, and AER, 0 to 1.

    Year alignment is the share of steps that produce a digit of the year and attend most to the year; AER is the
    alignment error rate against the links of `gold_links`. Both use the last layer and the mean over its
    heads; a model without attention to the source has neither.
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
    """Judges a translator by the loss of references.

    Args:
        translator: whose model is judged.
        pairs: sources, not empty, and their references, which the model can read.
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
    """Judges a translator by the BLEU of its own translations.

    Args:
        translator: whose model is judged.
        pairs: sources and their references.
        tokenize: sacreBLEU's tokenizer.
        settings: of the search.
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
