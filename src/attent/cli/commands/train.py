"""attent train: train a model into a run folder."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from attent.cli.options import AUTO, Given, Offer, TrustCode, device_of
from attent.cli.output import say, write
from attent.errors import ArgumentError, check_known, refuse
from attent.setting import Flag, Help
from attent.tasks.overrides import corpus_settings, known_task, override, resolve_corpus, select_table, tasks_of_table
from attent.text.sources import check_utf8

if TYPE_CHECKING:
    from attent.tasks.classification.settings import ImagesSettings, LabelledSettings
    from attent.tasks.evaluation import Results
    from attent.tasks.settings import RunSettings
    from attent.text.settings import LinesSettings, TextSettings, VectorsSettings
    from attent.training.settings import TrainingSettings

CORPORA = ("dates",)
RUNS = Path("runs")
# The option that names the data of each settings table.
DATA_OPTIONS = {
    "text": "--train FILE",
    "dates": "--corpus dates",
    "lines": "--text FILE",
    "images": "--images SOURCE",
    "captions": "--images FOLDER",
    "labelled": "--labelled FILE",
}
# The settings that name training data.
MAIN = {"train", "train_source", "train_target", "source"}
LANGUAGES = ("source_language", "target_language")
PAIRS = ("train", "train_source", "train_target", "valid", "valid_source", "valid_target", "replay", *LANGUAGES)
TRAINING = ("minutes", "updates", "patience", "save_every", "seed", "threads", "device", "log")
TEXT, CLASSIFICATION = "attent.text.settings", "attent.tasks.classification.settings"
Pairs = Annotated["Given[TextSettings]", Offer(TEXT, "TextSettings", PAIRS)]
Lines = Annotated[
    "Given[LinesSettings]", Offer(TEXT, "LinesSettings", options={"train": "text", "valid": "valid_text"})
]
VECTORS = {"source": "source_vectors", "target": "target_vectors", "text": "text_vectors", "frozen": "freeze_vectors"}
Vectors = Annotated["Given[VectorsSettings]", Offer(TEXT, "VectorsSettings", options=VECTORS)]
Images = Annotated[
    "Given[ImagesSettings]", Offer(CLASSIFICATION, "ImagesSettings", options={"source": "images", "size": "size"})
]
Labelled = Annotated[
    "Given[LabelledSettings]",
    Offer(CLASSIFICATION, "LabelledSettings", options={"train": "labelled", "valid": "valid_labelled"}),
]
Training = Annotated[
    "Given[TrainingSettings]", Offer("attent.training.settings", "TrainingSettings", TRAINING, overrides=True)
]


@dataclass(frozen=True)
class Recipe:
    """Options for the settings to start from, other runs, and the run folder."""

    config: Annotated[Path | None, Help("Recipe: a TOML file of settings.")] = None
    task: Annotated[
        str | None,
        Help("translate, fill-mask, text-generation, classify, caption or answer; by the files unless given."),
    ] = None
    corpus: Annotated[str | None, Help("Generated corpus: dates, with the demo's settings.")] = None
    data: Annotated[Path | None, Help("Folder with the files of the corpus.")] = None
    preset: Annotated[str | None, Help("Model size without --config: tiny, small or base.")] = None
    out: Annotated[Path | None, Help("Output folder; runs/NAME unless given.")] = None
    changes: Annotated[tuple[str, ...], Flag("--set"), Help("Change a setting; repeatable.", "TABLE.KEY=VALUE")] = ()
    replace: Annotated[bool, Help("Replace an existing run folder.")] = False
    init_from: Annotated[Path | None, Help("Run folder whose weights and tokenizers to start from.")] = None
    freeze: Annotated[str | None, Help("Do not train embeddings, encoder, decoder or output.", "PART,…")] = None
    teacher: Annotated[tuple[Path, ...], Help("Run to learn from; repeatable, for an ensemble.", "RUN")] = ()
    resume: Annotated[Path | None, Help("Run folder to resume training in.", "RUN")] = None


def train(
    recipe: Recipe,
    pairs: Pairs,
    lines: Lines,
    vectors: Vectors,
    images: Images,
    labelled: Labelled,
    training: Training,
    trust_code: TrustCode = False,
) -> None:
    """Train a model, evaluate it on held-out data, and save everything in a run folder."""
    device = training.values.get("device")
    if device is not None:
        device_of(device)
    task = known_task(recipe.task)
    of_images = "captions" if task == "caption" else "images"
    tables = {"text": pairs, "lines": lines, of_images: images, "labelled": labelled}
    languages = {name: value for name, value in pairs.values.items() if name in LANGUAGES}
    corpora = {name: dict(settings.values) for name, settings in tables.items()}
    corpora["text"] = {name: file for name, file in pairs.values.items() if name not in languages}
    table, files = select_table(corpora, task)
    options = tables[table].options
    if recipe.resume is not None and files:
        raise ArgumentError(f"a resumed run keeps its corpus: omit {options[next(iter(files))]}")
    has_files_alone = bool(files) and recipe.config is None
    if has_files_alone and table == "lines" and "train" in files and task is None:
        first, second = tasks_of_table(table)
        say(f"training a model to {first.goal} ({first.name}); to {second.goal}: --task {second.name}")
    _check_start(recipe, task, has_files_alone=has_files_alone)
    changes = {f"vectors.{name}": value for name, value in vectors.values.items()}
    changes |= {f"text.{name}": value for name, value in languages.items()}
    if recipe.resume is not None:
        names = [*(vectors.options[name] for name in vectors.values), *(pairs.options[name] for name in languages)]
        _check_resumed(recipe, task, names, has_seed="seed" in training.values)
        if device is None:
            device_of(AUTO)
        from attent.tasks.recipe import resume

        run = recipe.resume
        _follow(run, f"resuming {run}", lambda: resume(run, training.values, trust_code=trust_code))
        return
    start = _base_settings(recipe, task, table, files, options, training.values.get("minutes"))
    if languages and start.text is None:
        raise ArgumentError(
            "--source-language and --target-language need pairs: --train, or --train-source and --train-target"
        )
    settings = _change(recipe, start, changes, training.values)
    if device is None:
        device_of(settings.training.device)
    run = recipe.out or RUNS / _name(recipe, next(iter(files.values()), ""))
    check_utf8(str(run), "the run folder's name")
    from attent.tasks.recipe import follow

    options = {"replace": recipe.replace, "init_from": recipe.init_from, "trust_code": trust_code}
    _follow(run, f"training into {run}", lambda: follow(settings, run, **options))


def _base_settings(
    recipe: Recipe,
    task: str | None,
    table: str,
    files: Mapping[str, str],
    options: Mapping[str, str],
    minutes: float | None,
) -> RunSettings:
    """Return the settings of a recipe, a generated corpus or files, before individual changes."""
    from attent.tasks.settings import demo, read

    start = demo() if recipe.corpus is not None else None if recipe.config is None else read(recipe.config)
    if files and not files.keys() & MAIN and getattr(start, table, None) is None:
        main = options["source" if "source" in options else "train"]
        raise ArgumentError(f"{options[next(iter(files))]} needs {main}, or a --config with [{table}]")
    if files:
        start = corpus_settings(files, start, recipe.preset, recipe.data, table, task, recipe.init_from, minutes, say)
    assert start is not None
    if task not in (None, start.task):
        raise ArgumentError(f"--task {task} does not match the settings, whose task is {start.task!r}")
    return start


def _change(recipe: Recipe, start: RunSettings, changes: dict[str, Any], training: Mapping[str, Any]) -> RunSettings:
    """Return the settings with the command's changes, and with paths resolved in the --data folder."""
    if recipe.freeze is not None:
        changes["training.freeze"] = [part.strip() for part in recipe.freeze.split(",")]
    if recipe.teacher:
        changes["training.teacher"] = list(map(str, recipe.teacher))
    all_changes = [*recipe.changes, *(f"{name}={json.dumps(value)}" for name, value in changes.items())]
    settings = override(start, all_changes, **training)
    return settings if recipe.data is None else resolve_corpus(settings, recipe.data)


def _check_start(recipe: Recipe, task: str | None, *, has_files_alone: bool) -> None:
    """Check that the command names exactly one thing to train, and that --preset can be used."""
    starts = (recipe.config, recipe.corpus, recipe.resume)
    if sum(start is not None for start in starts) + has_files_alone != 1:
        data_options = [
            option
            for table, option in DATA_OPTIONS.items()
            if task is None or task in [table_task.name for table_task in tasks_of_table(table)]
        ]
        raise ArgumentError(
            f"choose what to train with one of {', '.join([*data_options, '--config FILE.toml'])} and --resume RUN"
        )
    refuse(
        (
            recipe.preset is not None and recipe.init_from is not None,
            "--init-from keeps the sizes of its run: omit --preset",
        ),
        (
            recipe.preset is not None and not has_files_alone,
            "--preset needs --train or other files and no --config; otherwise use --set model.preset=NAME",
        ),
    )
    check_known("corpus", recipe.corpus, CORPORA)


def _name(recipe: Recipe, file: str) -> str:
    """Return the default name of the run folder, from the corpus, the recipe or the first file."""
    return recipe.corpus or (recipe.config.stem if recipe.config else Path(file).name.split(".")[0] or "text")


def _check_resumed(recipe: Recipe, task: str | None, names: Sequence[str], *, has_seed: bool) -> None:
    """Raise `ArgumentError` if an option is given that cannot change in a resumed run."""
    fixed = {
        "--out": recipe.out is not None,
        "--data": recipe.data is not None,
        "--set": recipe.changes,
        "--seed": has_seed,
        "--replace": recipe.replace,
        "--init-from": recipe.init_from is not None,
        "--task": task is not None,
        "--freeze": recipe.freeze is not None,
        "--teacher": recipe.teacher,
        **dict.fromkeys(names, True),
    }
    refuse(*((is_given, f"a resumed run keeps its settings: omit {name}") for name, is_given in fixed.items()))


def _follow(run: Path, message: str, train: Callable[[], Results]) -> None:
    """Train, and print the results if this is the main process."""
    from attent.tasks.evaluation import result_lines
    from attent.training.distributed import is_main_process

    if is_main_process():
        say(message)
    results = train()
    if is_main_process():
        print(f"run: {run}")
        write("\n".join(result_lines(results)))
