"""A recipe, followed: from settings to a run folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

import torch

from attent.config.settings import RunSettings
from attent.data.batches import Bitext
from attent.data.dates import dates
from attent.data.dates.corpus import TARGET_YEAR
from attent.data.text import Corpus, Pair
from attent.data.tokenizer import CharTokenizer
from attent.decoding.translator import Translator
from attent.evaluation.alignment import aligned
from attent.evaluation.exact_match import exact_match
from attent.models.transformer import Transformer
from attent.runs.folder import RunConfig, RunWriter
from attent.training.loop import train
from attent.training.progress import Progress

Results = dict[str, dict[str, float]]


def follow(
    settings: RunSettings,
    path: Path | str,
    *,
    replace: bool = False,
    device: torch.device | str = "cpu",
    progress: Progress | None = None,
) -> Results:
    """Make the corpus, train the model, test it, and leave all of it in a run folder.

    Args:
        settings: of corpus, model and training.
        path: the run folder to be.
        replace: whether a run folder that is there already is given up for this one.
        device: where the model is trained.
        progress: where a person sees it; standard error unless said otherwise.

    Returns:
        What the run folder's config holds as results: scores in per cent, by test set and name.

    Raises:
        RunError: the run folder is there already, or cannot be written.
    """
    with RunWriter(path, replace=replace) as run:
        corpus = dates(settings.dates)
        source = CharTokenizer.learn(pair.source for pair in corpus.train)
        target = CharTokenizer.learn(pair.target for pair in corpus.train)
        torch.manual_seed(settings.training.seed)
        model = Transformer(settings.model, source.size, target.size).to(device)
        translator = Translator(model, source, target)
        trained = train(
            model,
            Bitext(corpus.train, source, target, keys=1),
            settings.training,
            validate=lambda: {"exact match": matches(translator, corpus.validation)},
            log=run.log,
            progress=progress,
        )
        results = judge(translator, corpus)
        config = RunConfig(
            model=settings.model,
            corpus={"dates": settings.dates.model_dump(mode="json")},
            training=settings.training.model_dump(mode="json") | {"outcome": asdict(trained)},
            results=results,
        )
        run.finish(config, model, source, target)
    return results


def judge(translator: Translator, corpus: Corpus) -> Results:
    """Each test set's scores in per cent: exact match, and how often the step that emits a year's digit looks at the year."""
    return {name: dict(_scores(translator, pairs)) for name, pairs in corpus.held_out.items() if pairs}


def matches(translator: Translator, pairs: Sequence[Pair]) -> float:
    """Exact match of pairs' translations, in per cent."""
    return exact_match(translator.translate([pair.source for pair in pairs]), [pair.target for pair in pairs])


def _scores(translator: Translator, pairs: Sequence[Pair]) -> Mapping[str, float]:
    tokenizers = translator.source_tokenizer, translator.target_tokenizer
    return {
        "pairs": len(pairs),
        "exact_match": matches(translator, pairs),
        "year_alignment": aligned(translator.model, pairs, *tokenizers, targets=TARGET_YEAR).share,
    }
