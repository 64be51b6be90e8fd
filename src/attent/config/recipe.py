"""A recipe, followed: from settings to a run folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from pydantic import ValidationError

from attent.config.corpora import Material, borrowed, material
from attent.config.settings import RunSettings
from attent.data.batches import BatchSize, Bitext
from attent.data.dates.corpus import TARGET_YEAR
from attent.data.reading import STANDARD_INPUT
from attent.data.settings import FILES
from attent.data.text import Pair
from attent.data.tokenizer import Tokenizer
from attent.decoding.translator import Translator
from attent.errors import ArgumentError, RunError
from attent.evaluation.alignment import aligned
from attent.evaluation.exact_match import exact_match
from attent.models.encoder_decoder import EncoderDecoder
from attent.models.settings import build
from attent.runs.folder import MODEL, RunConfig, RunWriter, read_config, read_tokenizers, tokenizers_as_text, tokenizers_of_text, versions
from attent.runs.weights import fill, tensors_of
from attent.training.checkpoint import Checkpoints, newest, read_state
from attent.training.loop import train
from attent.training.loss import mean_loss
from attent.training.parallel import Processes, joined
from attent.training.progress import Progress
from attent.training.samples import samples
from attent.training.settings import MAY_CHANGE
from attent.training.tensorboard import TensorBoard, installed

Results = dict[str, dict[str, float]]


def follow(
    settings: RunSettings,
    path: Path | str,
    *,
    replace: bool = False,
    init_from: Path | str | None = None,
    device: torch.device | str = "cpu",
    progress: Progress | None = None,
) -> Results:
    """Make the corpus, train the model, test it, and leave all of it in a run folder.

    Where a launcher such as torchrun has started several processes, each calls this with the same arguments, and they train
    together; the first one alone needs to see the run folder, and one on each machine the corpus.

    Args:
        settings: of corpus, model and training.
        path: the run folder to be.
        replace: whether a run folder that is there already is given up for this one.
        init_from: a run folder whose weights and tokenizers are started from, and whose model's settings are taken
            unless these settings have some.
        device: where the model is trained.
        progress: where a person sees it; standard error unless said otherwise.

    Returns:
        What the run folder's config holds as results: scores in per cent, by test set and name.

    Raises:
        RunError: the run folder is there already, is trained by another process or cannot be written, or the one to start
            from cannot be read.
        KeyboardInterrupt: after Ctrl-C; the run folder is there, and `resume` goes on with it.
    """
    if settings.training.tensorboard:
        installed()
    with joined(device) as processes:
        if not processes.first:
            return _helped(processes, device)
        with RunWriter(path, replace=replace) as run:
            if processes.number > 1 and settings.text is not None and any(getattr(settings.text, name) == STANDARD_INPUT for name in FILES):
                raise ArgumentError("standard input cannot be read by several processes: put the pairs into a file")
            corpus = material(settings)
            torch.manual_seed(settings.training.seed)
            if init_from is None:
                (source, target), kinds = corpus.learn(), corpus.kinds
                model = build(settings.model, source.size, target.size)
            else:
                start = read_config(init_from)
                settings = settings if "model" in settings.model_fields_set else settings.model_copy(update={"model": start.model})
                (source, target), kinds = read_tokenizers(init_from, start), start.tokenizers
                model = _filled(build(settings.model, source.size, target.size), Path(init_from))
            config = RunConfig(
                tokenizers=kinds,
                model=settings.model,
                corpus=corpus.table,
                training=settings.training.model_dump(mode="json"),
            )
            run.begin(config, source, target, None if init_from is None else model)
            translator = Translator(model.to(device), source, target)
            return _trained(run, config, settings, corpus, translator, progress or Progress(), processes)


def resume(
    path: Path | str,
    changes: Mapping[str, Any] | None = None,
    *,
    device: torch.device | str = "cpu",
    progress: Progress | None = None,
) -> Results:
    """Go on with a run from its last checkpoint, as if it had never been interrupted.

    A run that ends by its number of updates ends with the very same weights, on the same machine with the same torch
    and number of threads. Several processes go on together, as with `follow`, however many there were before.

    Args:
        path: a run folder.
        changes: settings of training with other values, of those in `attent.training.settings.MAY_CHANGE`; a limit
            takes the place of both.
        device: where the model is trained.
        progress: where a person sees it; standard error unless said otherwise.

    Returns:
        As `follow`.

    Raises:
        ArgumentError: the run is finished and nothing says for how long it shall go on, or a setting cannot be changed.
        RunError: the run folder is missing or damaged, has no checkpoint to go on from, or is trained by another process.
    """
    with joined(device) as processes:
        if not processes.first:
            return _helped(processes, device)
        with RunWriter.again(path) as run:
            config, changes = read_config(path), dict(changes or {})
            settings = _settings_of(config, changes)
            checkpoint = newest(path)
            if config.state == "finished":
                if not changes:
                    raise ArgumentError(f"{path} is finished; --updates or --minutes says for how long it shall go on")
                if checkpoint is None:
                    raise RunError(f"{path} has no checkpoint to go on from; --init-from starts another run from its weights")
            state = None if checkpoint is None else read_state(checkpoint)
            if settings.training.tensorboard:
                installed()
            source, target = read_tokenizers(path, config)
            run.rewind(0 if state is None else state.log)
            corpus = material(settings)
            torch.manual_seed(settings.training.seed)
            model = build(settings.model, source.size, target.size)
            if state is None and (Path(path) / MODEL).is_file():
                model = _filled(model, Path(path))
            training = settings.training.model_dump(mode="json")
            config = config.model_copy(update={"training": training, "versions": versions(), "results": {}})
            run.begin(config, source, target)
            translator, update = Translator(model.to(device), source, target), 0 if state is None else state.update
            return _trained(run, config, settings, corpus, translator, progress or Progress(), processes, update)


def _helped(processes: Processes, device: torch.device | str) -> Results:
    """What every process but the first does: learn its part of each batch of a run folder that has begun."""
    told = processes.by_first(dict)
    config = RunConfig.model_validate(told["config"])
    settings = _settings_of(config, {})
    source, target = tokenizers_of_text(told["tokenizers"], config)
    bitext, corpus = prepared(processes, settings, source, target)
    model = build(config.model, source.size, target.size).to(device)
    train(model, bitext, settings.training, processes=processes)
    # others on this machine read what lies in its folder
    del corpus
    return processes.by_first(dict)


def prepared(
    processes: Processes, settings: RunSettings, source: Tokenizer, target: Tokenizer, corpus: Material | None = None
) -> tuple[Bitext, Material | None]:
    """The pairs to train on, which the first process of each machine reads and encodes, and the others open.

    Args:
        processes: all of those that train call this at once.
        settings: of the corpus.
        source: what encodes the sources.
        target: what encodes the targets.
        corpus: where it has been read already.

    Returns:
        The pairs, and the corpus where this process has read it: to be kept as long as any process uses the pairs.
    """
    bitext = None
    if processes.first_here:
        corpus = corpus or material(settings)
        bitext = corpus.bitext(source, target)
    place = processes.by_first_here(lambda: str(corpus.lend(bitext)) if processes.number > 1 and corpus and bitext else "")
    if bitext is None and Path(place).is_dir():
        bitext = borrowed(settings, Path(place), source, target)
    if bitext is None:
        corpus = material(settings)
        bitext = corpus.bitext(source, target)
    return bitext, corpus


def _trained(
    run: RunWriter,
    config: RunConfig,
    settings: RunSettings,
    corpus: Material,
    translator: Translator,
    progress: Progress,
    processes: Processes,
    update: int = 0,
) -> Results:
    """Train, judge, and finish a run folder that has begun."""
    processes.by_first(lambda: {"config": config.model_dump(mode="json"), "tokenizers": tokenizers_as_text(run.path)})
    model, source, target = translator.model, translator.source_tokenizer, translator.target_tokenizer
    training = settings.training
    held_out = Bitext(corpus.validation, source, target)
    board = TensorBoard(run.path, update) if training.tensorboard else None

    def validate() -> dict[str, float]:
        if not corpus.validation:
            return {}
        pairs = corpus.validation[: corpus.translated]
        translations = translator.translate([pair.source for pair in pairs])
        for sample in samples(pairs, translations):
            progress.say(str(sample))
        loss = mean_loss(model, held_out, BatchSize(training.batch_pairs, training.batch_tokens))
        return {"loss": loss} | corpus.measure(translations, [pair.target for pair in pairs])

    def log(record: Mapping[str, Any]) -> None:
        run.log(record)
        if board:
            board.log(record)

    bitext, _ = prepared(processes, settings, source, target, corpus)
    for line in corpus.said():
        progress.say(line)
    trained = train(
        model,
        bitext,
        training,
        validate=validate,
        log=log,
        progress=progress,
        checkpoints=Checkpoints(run.path, training, run.logged),
        processes=processes,
    )
    results = judge(translator, corpus.held_out) or {"validation": {"pairs": len(corpus.validation)} | trained.validation}
    outcome = training.model_dump(mode="json") | {"outcome": asdict(trained)}
    run.finish(config.model_copy(update={"training": outcome, "results": results}), model, source, target)
    return processes.by_first(lambda: results)


def _settings_of(config: RunConfig, changes: Mapping[str, Any]) -> RunSettings:
    """The settings that a run was made with, some of them changed."""
    if wrong := sorted(changes.keys() - MAY_CHANGE):
        raise ArgumentError(f"a run that goes on keeps its {wrong[0]}; it may change {', '.join(sorted(MAY_CHANGE))}")
    training = {name: value for name, value in config.training.items() if name != "outcome"}
    if changes.keys() & {"updates", "minutes"}:
        training |= {"updates": None, "minutes": None}
    try:
        return RunSettings.model_validate({**config.corpus, "model": config.model.model_dump(), "training": training | dict(changes)})
    except ValidationError as error:
        first = error.errors()[0]
        raise ArgumentError(f"{'.'.join(map(str, first['loc']))}: {first['msg'][:1].lower()}{first['msg'][1:]}") from error


def _filled(model: EncoderDecoder[Any], run: Path) -> EncoderDecoder[Any]:
    try:
        fill(tensors_of(model), run / MODEL)
    except RunError as error:
        raise RunError(f"{error} (settings without [model] take that of {run})") from error
    return model


def judge(translator: Translator, held_out: Mapping[str, Sequence[Pair]]) -> Results:
    """Each test set's scores in per cent: exact match, and how often the step that emits a year's digit looks at the year.

    A model without attention to the source has no year alignment.
    """
    return {name: dict(_scores(translator, pairs)) for name, pairs in held_out.items() if pairs}


def matches(translator: Translator, pairs: Sequence[Pair]) -> float:
    """Exact match of pairs' translations, in per cent."""
    return exact_match(translator.translate([pair.source for pair in pairs]), [pair.target for pair in pairs])


def _scores(translator: Translator, pairs: Sequence[Pair]) -> Mapping[str, float]:
    tokenizers = translator.source_tokenizer, translator.target_tokenizer
    scores: dict[str, float] = {"pairs": len(pairs), "exact_match": matches(translator, pairs)}
    if any(name.endswith("cross_attention") for name, _ in translator.model.named_modules()):
        scores["year_alignment"] = aligned(translator.model, pairs, *tokenizers, targets=TARGET_YEAR).share
    return scores
