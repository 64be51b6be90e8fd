"""Recipes: training a run folder from settings, resuming and validating it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from pydantic import ValidationError

from attent.devices import AUTO, device_of
from attent.errors import ArgumentError, DataError, RunError, first_fault, refuse, reraise
from attent.models.model import Model
from attent.models.settings import MOST_ENDS, RnnSettings, TransformerSettings
from attent.models.transformer import copy_by_depth
from attent.runs.config import CONFIG, RunConfig, check_code, read_config, versions
from attent.runs.folder import MODEL, RunWriter, filled_model, model_of, tokenizers_as_text, tokenizers_of_text
from attent.search.settings import GREEDY, SearchSettings
from attent.tasks import word_vectors
from attent.tasks.evaluation import Results, Say
from attent.tasks.settings import RunSettings
from attent.tasks.task import Vocabularies, task_of
from attent.tasks.translation.distillation import check_teachers
from attent.text.batches import Examples
from attent.text.readers import STANDARD_INPUT
from attent.text.tokenizer import SENTENCE_ENDS, sentence_ends
from attent.training.checkpoint import Checkpoints, latest_checkpoint, read_state
from attent.training.distributed import Processes, process_group
from attent.training.loop import train
from attent.training.progress import Progress, check_installed, open_logger
from attent.training.settings import CHANGEABLE_ON_RESUME


def follow(
    settings: RunSettings,
    path: Path | str,
    *,
    replace: bool = False,
    init_from: Path | str | None = None,
    trust_code: bool = False,
    progress: Progress | None = None,
) -> Results:
    """Build the corpus, train and test the model, and save everything in a run folder.

    If a launcher such as torchrun has started several processes, each calls this with the same arguments, and they
    train together; only the first process needs access to the run folder, and one process per machine to the corpus.

    Args:
        settings: settings of the corpus, the model and training.
        path: the new run folder.
        replace: True to replace an existing run folder.
        init_from: a run folder that provides weights and tokenizers, and the model settings unless `settings` has some;
            without one, the first teacher provides the tokenizers.
        trust_code: True if that run may name modules to import; `settings` always may.
        progress: shows progress; on standard error by default.

    Returns:
        The results in the run folder's config: scores in per cent, by test set and name.

    Raises:
        DeviceError: this machine does not have the device of `settings.training`, or has fewer GPUs than processes.
        ArgumentError: word vectors do not fit the model, or are combined with `init_from`.
        RunError: the run folder already exists, is in use by another process or cannot be written, or `init_from`
            cannot be read.
        KeyboardInterrupt: after Ctrl-C; `resume` continues the run folder.
    """
    device = device_of(settings.training.device)
    check_installed(settings.training.log)
    with process_group(device) as processes:
        if not processes.is_rank0:
            return _train_as_worker(processes, device)
        with RunWriter(path, replace=replace) as run:
            _check(settings, init_from, processes)
            if init_from is not None:
                settings = _settings_from(settings, Path(init_from), trust_code=trust_code)
            task = task_of(settings.task)
            corpus = task.corpus(settings)
            torch.manual_seed(settings.training.seed)
            tokenizer_run = init_from or next(iter(settings.training.teacher), None)
            vocabularies = (
                task.learn_vocabularies(corpus)
                if tokenizer_run is None
                else Vocabularies.read(tokenizer_run, read_config(tokenizer_run))
            )
            config = _new_config(settings, corpus, vocabularies)
            model, embeddings = _new_model(settings, config, vocabularies, init_from)
            is_new = init_from is None and embeddings is None
            run.begin(config, *vocabularies.tokenizers, files=vocabularies.files, start=None if is_new else model)
            return _train(
                run, config, settings, corpus, vocabularies, model.to(device), progress, processes, 0, embeddings
            )


def resume(
    path: Path | str,
    changes: Mapping[str, Any] | None = None,
    *,
    trust_code: bool = False,
    progress: Progress | None = None,
) -> Results:
    """Resume a run from its last checkpoint, as if it had never been interrupted.

    A run that is limited by its number of updates ends with identical weights on the same machine with the same torch
    version and number of threads. The number of processes may differ from before.

    Args:
        path: a run folder.
        changes: changed training settings, among `attent.training.settings.CHANGEABLE_ON_RESUME`; a new limit replaces
            both limits.
        trust_code: True if the run may name modules to import, such as the score "my.module:Class".
        progress: shows progress; on standard error by default.

    Returns:
        As `follow`.

    Raises:
        DeviceError: as `follow`.
        ArgumentError: the run is finished and `changes` has no limit, or a setting cannot be changed.
        DataError: the held-out examples have changed.
        RunError: the run folder is missing or damaged, has no checkpoint, names code and is not trusted, or is trained
            by another process.
    """
    changes = dict(changes or {})
    device = device_of(changes.get("device", AUTO))
    with process_group(device) as processes:
        if not processes.is_rank0:
            return _train_as_worker(processes, device)
        check_code(path, read_config(path), trust_code=trust_code)
        with RunWriter.again(path) as run:
            config = read_config(path)
            settings = _resumed_settings(Path(path), config, changes)
            check_teachers(settings.training.teacher, path)
            checkpoint = latest_checkpoint(path)
            if config.state == "finished" and checkpoint is None:
                raise RunError(
                    f"{path} has no checkpoint to resume from; --init-from starts another run from its weights"
                )
            state = None if checkpoint is None else read_state(checkpoint)
            check_installed(settings.training.log)
            vocabularies, task = Vocabularies.read(path, config), task_of(config.task)
            corpus = task.corpus(settings)
            if config.digests.get("held out") not in (None, task.held_out_digest(corpus)):
                raise DataError(
                    f"the corpus of {path} has changed, so the run would train on its own test data: train a new run "
                    f"({CONFIG} has the digest of the held-out data)"
                )
            run.rewind(0 if state is None else state.log)
            torch.manual_seed(settings.training.seed)
            model = _stored_model(Path(path), config, vocabularies, (checkpoint or Path(path)) / MODEL).to(device)
            changed = {"training": settings.training.table, "versions": versions(), "results": {}}
            config, update = config.model_copy(update=changed), 0 if state is None else state.update
            run.begin(config)
            return _train(run, config, settings, corpus, vocabularies, model, progress, processes, update)


def validate(path: Path | str, model: Model, say: Say, search: SearchSettings = GREEDY) -> Results:
    """Evaluate a run on the validation part of its corpus, read again from its files and split by the same rule.

    Args:
        path: the run folder.
        model: its model, in evaluation mode.
        say: shows the report on the lines of the files to the user.
        search: search settings of a translation run; greedy by default.

    Returns:
        The validation results that `follow` returned, if the model and the search are the same.

    Raises:
        ArgumentError: a file is missing, or was standard input.
        DataError: a file cannot be read, or the training data has changed.
        RunError: the run folder is damaged.
    """
    config = read_config(path)
    settings, task = _settings_of(config, {}), task_of(config.task)
    hint = f"; {task.other_data}" if task.other_data else ""
    if missing := sorted(file for file in settings.files if file == STANDARD_INPUT or not Path(file).exists()):
        relative = "" if Path(missing[0]).is_absolute() else ", relative to the folder where training was started"
        file = "standard input" if missing[0] == STANDARD_INPUT else f"{missing[0]}{relative}"
        raise ArgumentError(f"the corpus of {path} cannot be read again: it was in {file}{hint}")
    vocabularies = replace(Vocabularies.read(path, config), longest=model.longest)
    corpus = task.corpus(settings)
    evaluator = task.evaluator(model, corpus, vocabularies, settings)
    if config.digests.get("train") != _digest(task.encode(corpus, vocabularies)):
        raise DataError(f"the corpus of {path} has changed, so the run may have trained on this test data{hint}")
    for line in corpus.report():
        say(line)
    evaluator.search = search
    return evaluator.results(evaluator.validate(lambda line: None))


def _train_as_worker(processes: Processes, device: torch.device) -> Results:
    """Train on this process's part of each batch; the first process has already started the run folder."""
    message = processes.from_rank0(dict)
    config = RunConfig.model_validate(message["config"])
    settings, tokenizers = _settings_of(config, {}), tokenizers_of_text(message["tokenizers"], config)
    model = model_of(config, tokenizers).to(device)
    vocabularies = Vocabularies(config.tokenizers, tokenizers, message["files"], config.sizes, model.longest)
    examples, corpus = prepare_examples(processes, settings, vocabularies)
    word_vectors.freeze(config.vectors, model)
    train(
        model, examples, settings.training, loss=task_of(config.task).loss_for(settings.training), processes=processes
    )
    # until here, the folder of this corpus is shared with the other processes on this machine
    del corpus
    return processes.from_rank0(dict)


def prepare_examples(
    processes: Processes, settings: RunSettings, vocabularies: Vocabularies, corpus: Any = None
) -> tuple[Examples[Any], Any]:
    """Return the training examples: the first process on each machine encodes them, and the others open the result.

    Args:
        processes: all training processes; each of them must call this function.
        settings: the run's settings, which name the task and its corpus.
        vocabularies: the run's vocabularies, with the maximum sequence length of its model.
        corpus: the corpus, if it has already been read.

    Returns:
        The examples, and the corpus if this process has read it; keep it as long as any process uses the examples.
    """
    task, examples = task_of(settings.task), None
    if processes.is_local_rank0:
        corpus = corpus or task.corpus(settings)
        examples = task.encode(corpus, vocabularies)
    folder = processes.from_local_rank0(lambda: str(corpus.folder or "") if corpus else "")
    if examples is None and folder and Path(folder).is_dir():
        examples = task.open_shared(settings, Path(folder), vocabularies)
    if examples is None:
        corpus = task.corpus(settings)
        examples = task.encode(corpus, vocabularies)
    return examples, corpus


def _train(
    run: RunWriter,
    config: RunConfig,
    settings: RunSettings,
    corpus: Any,
    vocabularies: Vocabularies,
    model: Any,
    progress: Progress | None,
    processes: Processes,
    update: int,
    embeddings: word_vectors.Initialized | None = None,
) -> Results:
    """Train and evaluate the model of a run folder that has been started, and finish the folder."""
    message = {"config": config.model_dump(mode="json"), "files": dict(vocabularies.files)}
    processes.from_rank0(lambda: message | {"tokenizers": tokenizers_as_text(run.path)})
    task, training, progress = task_of(settings.task), settings.training, progress or Progress()
    evaluator = task.evaluator(model, corpus, vocabularies, settings)
    examples, _ = prepare_examples(processes, settings, replace(vocabularies, longest=model.longest), corpus)
    digest = _digest(examples)
    if config.digests.get("train", digest) != digest:
        progress.say(f"warning: the training {examples.row_name}s differ from those that the run started with")
    config = config.model_copy(update={"digests": {"train": digest} | config.digests})
    coverage, lines = embeddings or ({}, [])
    if coverage:
        config = config.model_copy(update={"coverage": coverage})
    run.begin(config)
    for line in [*corpus.report(), *lines]:
        progress.say(line)

    with open_logger(training.log, run.path, update) as log_scalars:

        def log(record: Mapping[str, Any]) -> None:
            run.log(record)
            log_scalars(record)

        trained = train(
            model,
            examples,
            training,
            loss=task.loss_for(training),
            validate=lambda: evaluator.validate(progress.say),
            announce=lambda budget: replace(
                budget, validation_seconds=budget.epoch_seconds * evaluator.rows / len(examples)
            ).lines(),
            log=log,
            progress=progress,
            checkpoints=Checkpoints(run.path, training, run.sync_log),
            processes=processes,
        )
    results = evaluator.results(trained.validation)
    # under key names compatible with earlier versions
    outcome = {"training": config.training | {"outcome": asdict(trained)}, "results": results}
    run.finish(config.model_copy(update=outcome), model)
    return processes.from_rank0(lambda: results)


def _digest(examples: Examples[Any]) -> str:
    return " ".join(map(str, examples.digest()))


def _settings_of(config: RunConfig, changes: Mapping[str, Any]) -> RunSettings:
    """Return the settings of a run, with changes applied."""
    if wrong := sorted(changes.keys() - CHANGEABLE_ON_RESUME):
        raise ArgumentError(
            f"a run that goes on keeps its {wrong[0]}; it may change {', '.join(sorted(CHANGEABLE_ON_RESUME))}"
        )
    training = {name: value for name, value in config.training.items() if name not in ("outcome", "r_drop")}
    if changes.keys() & {"updates", "minutes"}:
        training |= {"updates": None, "minutes": None}
    try:
        vectors = {} if config.vectors is None else {"vectors": config.vectors.model_dump()}
        tables = {**config.corpus, **vectors, "model": config.model.model_dump(), "training": training | dict(changes)}
        return RunSettings.model_validate(tables | {"task": config.task})
    except ValidationError as error:
        raise ArgumentError(first_fault(error)) from error


def _resumed_settings(path: Path, config: RunConfig, changes: Mapping[str, Any]) -> RunSettings:
    """Return the settings of a run that is resumed with changes."""
    with reraise(RunError, f"{path / CONFIG} is damaged", ArgumentError):
        _settings_of(config, {})
    settings = _settings_of(config, changes)
    if config.state == "finished" and not changes:
        raise ArgumentError(f"{path} is finished: give a new limit, --updates or --minutes")
    if "r_drop" in config.training:
        raise ArgumentError(f"{path} was trained with R-Drop, which attent no longer has: --init-from trains another")
    return settings


def _check(settings: RunSettings, init_from: Path | str | None, processes: Processes) -> None:
    """Check settings before anything is read."""
    vectors = [] if settings.vectors is None else settings.vectors.files.values()
    refuse(
        (
            processes.world_size > 1 and STANDARD_INPUT in settings.files,
            "standard input cannot be read by several processes: put the pairs into a file",
        ),
        (
            settings.vectors is not None and init_from is not None,
            "embeddings can start from word vectors or from another run, not from both: "
            f"{', '.join(vectors)} and --init-from {init_from}",
        ),
    )
    word_vectors.check(settings)
    task_of(settings.task).loss_for(settings.training)
    if init_from is not None:
        check_teachers(settings.training.teacher, init_from)


def _settings_from(settings: RunSettings, run: Path, *, trust_code: bool) -> RunSettings:
    """Return the settings, with parts that they omit, such as the model, taken from the run to start from."""
    start, task = read_config(run), task_of(settings.task)
    task.check_config(run, start)
    if "model" not in settings.model_fields_set:
        check_code(run, start, trust_code=trust_code)
        settings = settings.model_copy(update={"model": start.model})
    return settings.model_copy(update=task.inherited_tables(settings, start))


def _new_config(settings: RunSettings, corpus: Any, vocabularies: Vocabularies) -> RunConfig:
    """Return the config of a new run."""
    digest = task_of(settings.task).held_out_digest(corpus)
    return RunConfig(
        task=settings.task,
        tokenizers=dict(vocabularies.kinds),
        files=tuple(vocabularies.files),
        sizes=vocabularies.sizes,
        spacing=vocabularies.spacing,
        model=_with_sentence_ends(settings.model, vocabularies),
        corpus=corpus.table,
        digests={"held out": digest} if digest else {},
        vectors=settings.vectors,
        training=settings.training.table,
    )


def _with_sentence_ends(model: Any, vocabularies: Vocabularies) -> Any:
    """Return the settings of a model that reads sentences with the tokens of its source that end one."""
    if not isinstance(model, RnnSettings) or model.sentences == "none" or model.sentence_ends:
        return model
    ends = sentence_ends(vocabularies.tokenizers[0])
    if not 0 < len(ends) <= MOST_ENDS:
        raise ArgumentError(
            f'model.sentences = "{model.sentences}" needs from 1 to {MOST_ENDS:,} source tokens that end with one of '
            f"{' '.join(SENTENCE_ENDS)}, got {len(ends):,}: name them with model.sentence_ends"
        )
    return model.model_copy(update={"sentence_ends": ends})


def _new_model(
    settings: RunSettings, config: RunConfig, vocabularies: Vocabularies, init_from: Path | str | None
) -> tuple[Any, word_vectors.Initialized | None]:
    """Return the model of a new run, with random weights, those of another run, or word vectors."""
    model: Any = (
        model_of(config, vocabularies.tokenizers)
        if init_from is None
        else _init_model(config, vocabularies, Path(init_from))
    )
    model.freeze(settings.training.freeze)
    if settings.vectors is None:
        return model, None
    tokenizers = dict(zip(vocabularies.kinds, vocabularies.tokenizers, strict=True))
    return model, word_vectors.init_embeddings(settings.vectors, model, tokenizers)


def _stored_model(path: Path, config: RunConfig, vocabularies: Vocabularies, weights: Path) -> Any:
    """Return the model of a run with these weights, or with newly initialized ones if the file does not exist."""
    model = (
        filled_model(path, config, vocabularies.tokenizers, weights)
        if weights.exists()
        else model_of(config, vocabularies.tokenizers)
    )
    word_vectors.freeze(config.vectors, model)
    return model


def _init_model(config: RunConfig, vocabularies: Vocabularies, run: Path) -> Model:
    """Return the model with another run's weights, whose Transformer may have other layers or self-attention."""
    settings, start_settings, source = config.model, read_config(run).model, config
    if isinstance(settings, TransformerSettings) and isinstance(start_settings, TransformerSettings):
        own = ("encoder_layers", "decoder_layers", "self_attention")
        update = {name: getattr(start_settings, name) for name in own}
        source = config.model_copy(update={"model": settings.model_copy(update=update)})
    try:
        start = filled_model(run, source, vocabularies.tokenizers)
    except RunError as error:
        raise RunError(f"{error} (settings without [model] use that of {run})") from error
    if source.model == settings:
        return start
    model = model_of(config, vocabularies.tokenizers)
    copy_by_depth(model, start)
    return model
