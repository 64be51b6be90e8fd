"""A recipe, followed: from settings to a run folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from pydantic import ValidationError

from attent.data.batches import Examples
from attent.data.readers import STANDARD_INPUT
from attent.data.tokenizer import Tokenizer
from attent.devices import AUTO, device_of
from attent.errors import ArgumentError, DataError, RunError, first_fault
from attent.models.model import Model
from attent.runs.config import CONFIG, RunConfig, check_code, must_do, read_config, versions
from attent.runs.folder import MODEL, RunWriter, filled_model, model_of, read_files, read_tokenizers, tokenizers_as_text, tokenizers_of_text
from attent.tasks import word_vectors
from attent.tasks.catalog import task_of
from attent.tasks.settings import RunSettings
from attent.tasks.task import Results, Say, Vocabularies
from attent.training.checkpoint import Checkpoints, latest_checkpoint, read_state
from attent.training.distributed import Processes, process_group
from attent.training.loop import train
from attent.training.progress import Progress
from attent.training.settings import CHANGEABLE_ON_RESUME
from attent.training.tensorboard import TensorBoard, check_installed


def follow(
    settings: RunSettings,
    path: Path | str,
    *,
    replace: bool = False,
    init_from: Path | str | None = None,
    trust_code: bool = False,
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
        trust_code: whether that run may name modules to import; `settings` always may.
        progress: where a person sees it; standard error unless said otherwise.

    Returns:
        What the run folder's config holds as results: scores in per cent, by test set and name.

    Raises:
        DeviceError: this machine does not have the device of `settings.training`, or has fewer GPUs than processes.
        ArgumentError: word vectors do not suit the model, or it starts from another run's weights.
        RunError: the run folder is there already, is trained by another process or cannot be written, or the one to start
            from cannot be read.
        KeyboardInterrupt: after Ctrl-C; the run folder is there, and `resume` goes on with it.
    """
    device = device_of(settings.training.device)
    if settings.training.tensorboard:
        check_installed()
    with process_group(device) as processes:
        if not processes.is_rank0:
            return _helped(processes, device)
        with RunWriter(path, replace=replace) as run:
            if processes.world_size > 1 and STANDARD_INPUT in settings.files:
                raise ArgumentError("standard input cannot be read by several processes: put the pairs into a file")
            if settings.vectors is not None and init_from is not None:
                raise ArgumentError(
                    "embeddings start from word vectors or from another run's, not from both: "
                    f"{', '.join(settings.vectors.files.values())} and --init-from {init_from}"
                )
            word_vectors.check(settings)
            task = task_of(settings.task)
            corpus = task.corpus(settings)
            torch.manual_seed(settings.training.seed)
            if init_from is None:
                learnt = task.learn_vocabularies(corpus)
            else:
                start = read_config(init_from)
                must_do(init_from, start, settings.task)
                if "model" not in settings.model_fields_set:
                    check_code(init_from, start, trust_code=trust_code)
                    settings = settings.model_copy(update={"model": start.model})
                learnt = Vocabularies.of(start, read_tokenizers(init_from, start), read_files(init_from, start))
            config = RunConfig(
                task=settings.task,
                tokenizers=dict(learnt.kinds),
                files=tuple(learnt.files),
                sizes=learnt.sizes,
                model=settings.model,
                corpus=corpus.table,
                digests={"held out": digest} if (digest := task.held_out_digest(corpus)) else {},
                vectors=settings.vectors,
                training=settings.training.table,
            )
            model = model_of(config, learnt.tokenizers) if init_from is None else _filled(config, learnt, Path(init_from))
            started = None
            if settings.vectors is not None:
                tokenizers = dict(zip(learnt.kinds, learnt.tokenizers, strict=True))
                started = word_vectors.init_embeddings(settings.vectors, model, tokenizers, next(iter(corpus.table)))
                config = config.model_copy(update={"coverage": started.coverage()})
            run.begin(config, *learnt.tokenizers, files=learnt.files, start=None if init_from is None and started is None else model)
            return _trained(run, config, settings, corpus, learnt, model.to(device), progress or Progress(), processes, started=started)


def resume(
    path: Path | str,
    changes: Mapping[str, Any] | None = None,
    *,
    trust_code: bool = False,
    progress: Progress | None = None,
) -> Results:
    """Go on with a run from its last checkpoint, as if it had never been interrupted.

    A run that ends by its number of updates ends with the very same weights, on the same machine with the same torch
    and number of threads. Several processes go on together, as with `follow`, however many there were before.

    Args:
        path: a run folder.
        changes: settings of training with other values, of those in `attent.training.settings.MAY_CHANGE`; a limit
            takes the place of both.
        trust_code: whether the run may name modules to import, such as the score "my.module:Class".
        progress: where a person sees it; standard error unless said otherwise.

    Returns:
        As `follow`.

    Raises:
        DeviceError: as `follow`.
        ArgumentError: the run is finished and nothing says for how long it shall go on, or a setting cannot be changed.
        DataError: the examples that a run holds out are others than they were.
        RunError: the run folder is missing or damaged, has no checkpoint to go on from, names code and is not trusted, or is
            trained by another process.
    """
    changes = dict(changes or {})
    device = device_of(changes.get("device", AUTO))
    with process_group(device) as processes:
        if not processes.is_rank0:
            return _helped(processes, device)
        check_code(path, read_config(path), trust_code=trust_code)
        with RunWriter.again(path) as run:
            config = read_config(path)
            try:
                settings = _settings_of(config, {})
            except ArgumentError as error:
                raise RunError(f"{Path(path) / CONFIG} is damaged: {error}") from error
            settings = _settings_of(config, changes)
            checkpoint = latest_checkpoint(path)
            if config.state == "finished":
                if not changes:
                    raise ArgumentError(f"{path} is finished; --updates or --minutes says for how long it shall go on")
                if checkpoint is None:
                    raise RunError(f"{path} has no checkpoint to go on from; --init-from starts another run from its weights")
            state = None if checkpoint is None else read_state(checkpoint)
            if settings.training.tensorboard:
                check_installed()
            learnt = Vocabularies.of(config, read_tokenizers(path, config), read_files(path, config))
            task = task_of(config.task)
            corpus = task.corpus(settings)
            if config.digests.get("held out") not in (None, task.held_out_digest(corpus)):
                raise DataError(
                    f"the corpus of {path} has changed, and the run would learn what it is judged by: train a new one "
                    f"({CONFIG} has the digest of what was held out)"
                )
            run.rewind(0 if state is None else state.log)
            torch.manual_seed(settings.training.seed)
            weights = (checkpoint or Path(path)) / MODEL
            model = (
                filled_model(Path(path), config, learnt.tokenizers, weights) if weights.exists() else model_of(config, learnt.tokenizers)
            )
            word_vectors.freeze(config.vectors, model)
            config = config.model_copy(update={"training": settings.training.table, "versions": versions(), "results": {}})
            run.begin(config)
            update = 0 if state is None else state.update
            return _trained(run, config, settings, corpus, learnt, model.to(device), progress or Progress(), processes, update)


def validate(path: Path | str, model: Model, say: Say) -> Results:
    """Judge a run on the validation of its corpus, which is read from its files again and split by the same rule.

    Args:
        path: the run folder.
        model: its model, in evaluation mode.
        say: shows a person what was done with the lines of the files.

    Returns:
        What `follow` returned of the validation, where the model is the same.

    Raises:
        ArgumentError: a file is not there, or was standard input.
        DataError: a file cannot be read, or what the run learnt from is no longer what it was.
        RunError: the run folder is damaged.
    """
    config, others = read_config(path), "--source FILE --target FILE judges it on other pairs"
    settings, task = _settings_of(config, {}), task_of(config.task)
    if missing := sorted(file for file in settings.files if file == STANDARD_INPUT or not Path(file).is_file()):
        raise ArgumentError(f"the corpus of {path} cannot be read again, it was in {_named(missing[0])}; {others}")
    learnt = replace(Vocabularies.of(config, read_tokenizers(path, config), read_files(path, config)), longest=model.longest)
    corpus = task.corpus(settings)
    judged = task.evaluator(model, corpus, learnt, settings)
    if config.digests.get("train") != _digest(task.encode(corpus, learnt)):
        raise DataError(f"the corpus of {path} has changed, and the run may have learnt what it would be judged by; {others}")
    for line in corpus.said():
        say(line)
    return judged.results(judged.validate(lambda line: None))


def _helped(processes: Processes, device: torch.device) -> Results:
    """What every process but the first does: learn its part of each batch of a run folder that has begun."""
    told = processes.from_rank0(dict)
    config = RunConfig.model_validate(told["config"])
    settings, tokenizers = _settings_of(config, {}), tokenizers_of_text(told["tokenizers"], config)
    model = model_of(config, tokenizers).to(device)
    examples, corpus = prepare_examples(processes, settings, *tokenizers, files=told["files"], longest=model.longest)
    word_vectors.freeze(config.vectors, model)
    train(model, examples, settings.training, loss=task_of(config.task).loss, processes=processes)
    # others on this machine read what lies in its folder
    del corpus
    return processes.from_rank0(dict)


def prepare_examples(
    processes: Processes,
    settings: RunSettings,
    *tokenizers: Tokenizer,
    files: Mapping[str, str] | None = None,
    corpus: Any = None,
    longest: int | None = None,
) -> tuple[Examples[Any], Any]:
    """What to train on, which the first process of each machine reads and encodes, and the others open.

    Args:
        processes: all of those that train call this at once.
        settings: of the task and its corpus.
        tokenizers: what encodes it, in the order in which the run's config names them.
        files: what else was learnt, by the name of its file.
        corpus: where it has been read already.
        longest: the most places of a sequence that the model can read.

    Returns:
        The examples, and the corpus where this process has read it: to be kept as long as any process uses the examples.
    """
    task, examples, learnt = task_of(settings.task), None, Vocabularies({}, tokenizers, files or {}, longest=longest)
    if processes.is_local_rank0:
        corpus = corpus or task.corpus(settings)
        examples = task.encode(corpus, learnt)
    place = processes.from_local_rank0(lambda: str(corpus.lend(examples)) if processes.world_size > 1 and corpus and examples else "")
    if examples is None and Path(place).is_dir():
        examples = task.open_shared(settings, Path(place), learnt)
    if examples is None:
        corpus = task.corpus(settings)
        examples = task.encode(corpus, learnt)
    return examples, corpus


def _trained(
    run: RunWriter,
    config: RunConfig,
    settings: RunSettings,
    corpus: Any,
    learnt: Vocabularies,
    model: Any,
    progress: Progress,
    processes: Processes,
    update: int = 0,
    started: word_vectors.EmbeddingInit | None = None,
) -> Results:
    """Train, judge, and finish a run folder that has begun."""
    known = {"config": config.model_dump(mode="json"), "files": dict(learnt.files)}
    processes.from_rank0(lambda: known | {"tokenizers": tokenizers_as_text(run.path)})
    task, training = task_of(settings.task), settings.training
    judged = task.evaluator(model, corpus, learnt, settings)
    board = TensorBoard(run.path, update) if training.tensorboard else None

    def log(record: Mapping[str, Any]) -> None:
        run.log(record)
        if board:
            board.log(record)

    examples, _ = prepare_examples(processes, settings, *learnt.tokenizers, files=learnt.files, corpus=corpus, longest=model.longest)
    digest = _digest(examples)
    if config.digests.get("train", digest) != digest:
        progress.say(f"warning: the {examples.row_name}s to learn are others than those that the run began with")
    config = config.model_copy(update={"digests": {"train": digest} | config.digests})
    if started:
        config = config.model_copy(update={"coverage": started.coverage(examples.token_sequences)})
    run.begin(config)
    for line in (*corpus.said(), *(started.report if started else ()), *word_vectors.running_coverage(config.coverage)):
        progress.say(line)
    trained = train(
        model,
        examples,
        training,
        loss=task.loss,
        validate=lambda: judged.validate(progress.say),
        log=log,
        progress=progress,
        checkpoints=Checkpoints(run.path, training, run.logged),
        processes=processes,
    )
    results = judged.results(trained.validation)
    outcome = training.table | {"outcome": asdict(trained)}
    run.finish(config.model_copy(update={"training": outcome, "results": results}), model)
    return processes.from_rank0(lambda: results)


def _digest(examples: Examples[Any]) -> str:
    return " ".join(map(str, examples.digest()))


def _named(file: str) -> str:
    return "standard input" if file == STANDARD_INPUT else file


def _settings_of(config: RunConfig, changes: Mapping[str, Any]) -> RunSettings:
    """The settings that a run was made with, some of them changed."""
    if wrong := sorted(changes.keys() - CHANGEABLE_ON_RESUME):
        raise ArgumentError(f"a run that goes on keeps its {wrong[0]}; it may change {', '.join(sorted(CHANGEABLE_ON_RESUME))}")
    training = {name: value for name, value in config.training.items() if name != "outcome"}
    if changes.keys() & {"updates", "minutes"}:
        training |= {"updates": None, "minutes": None}
    try:
        vectors = {} if config.vectors is None else {"vectors": config.vectors.model_dump()}
        tables = {**config.corpus, **vectors, "model": config.model.model_dump(), "training": training | dict(changes)}
        return RunSettings.model_validate(tables if config.task == "translate" else tables | {"task": config.task})
    except ValidationError as error:
        raise ArgumentError(first_fault(error)) from error


def _filled(config: RunConfig, learnt: Vocabularies, run: Path) -> Model:
    try:
        return filled_model(run, config, learnt.tokenizers)
    except RunError as error:
        raise RunError(f"{error} (settings without [model] take that of {run})") from error
